"""The plug-in on a scheduler of plain objects: how a network is closed."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.scheduler.plugin import TrainPlugin
from dask_train.tensorflow_network.on_scheduler import plugin
from dask_train.tensorflow_network.on_scheduler.networks import RUNNING, LeasedNetwork
from dask_train.tensorflow_network.on_scheduler.plugin import NetworksPlugin


@pytest.fixture
def closing(monkeypatch):
    """A plug-in with the network n1 on a and b, what was done to it, and what its parts answer."""
    did: list[Any] = []
    answers = SimpleNamespace(stuck=[], restarted=([], []))
    worker = SimpleNamespace(address="a", name="a")
    locks = SimpleNamespace(locks=defaultdict(list), release=lambda user: did.append(f"release {user}"))
    scheduler = SimpleNamespace(
        workers={"a": worker}, plugins={}, handlers={}, clients={}, tasks={}, extensions={"multi_locks": locks}
    )
    plug = NetworksPlugin()
    plug.start(scheduler)
    net = LeasedNetwork("n1", "me", False, {"closed": b"@reason@", "lost": b"@reason@"}, 60.0, state=RUNNING)
    net.members = {"a": ("ps", 0), "b": ("worker", 0)}
    plug.networks.by_id["n1"] = net

    async def quiet(addresses: list[str]) -> None:
        did.append(("quiet", addresses))

    async def restart_emptied(_: Any, addresses: list[str], timeout_s: float, *, force: bool) -> Any:
        did.append(("restart", addresses, timeout_s, force, net.state))
        if isinstance(answers.restarted, Exception):
            raise answers.restarted
        return answers.restarted

    monkeypatch.setattr(plug.lost_worker_checks, "quiet", quiet)
    monkeypatch.setattr(plugin, "restart_emptied", restart_emptied)
    monkeypatch.setattr(plugin, "stuck", lambda _, addresses: answers.stuck)
    monkeypatch.setattr(plugin, "RELEASE_S", 0.01)
    return SimpleNamespace(plug=plug, net=net, did=did, answers=answers)


def close(closing: Any, **settings: Any) -> Any:
    return asyncio.run(closing.plug.train_close(**{"network": "n1", "force": False, "timeout_s": 9.0, **settings}))


def test_its_questions_are_answered(closing):
    names = {name for name in dir(NetworksPlugin) if name.startswith("train_")}
    assert names == set(closing.plug.scheduler.handlers) >= {"train_reserve", "train_board_read", "train_networks"}


def test_it_waits_for_quiet_restarts_and_ends(closing):
    assert close(closing) == {"status": "OK", "missing": []}
    assert closing.did == [("quiet", ["a"]), ("restart", ["a"], 9.0, False, "closing"), "release n1"]
    assert (closing.net.state, closing.plug.networks.by_id) == ("closed", {})
    assert close(closing) == {"status": "OK", "missing": []}
    assert len(closing.did) == 3


def test_a_reservation_that_comes_after_it_was_given_up_is_refused(closing):
    asked = {"client": "me", "counts": {}, "on": None, "leave_servers": True, "errors": {}, "close_s": 1.0}
    closing.plug.scheduler.clients["me"] = None
    asyncio.run(closing.plug.train_forget(network="n2", spent=False))
    assert asyncio.run(closing.plug.train_reserve(network="n2", **asked)) == {"status": "forgotten"}
    assert "n2" not in closing.plug.networks.by_id
    asyncio.run(closing.plug.train_forget(network="n1", spent=False))
    assert list(closing.plug._given_up) == ["n2"], "of one that was reserved no such message is on its way"


def test_what_is_stuck_leaves_it_untouched(closing):
    closing.answers.stuck = ["x (7 bytes)"]
    assert close(closing) == {"status": "held", "keys": ["x (7 bytes)"]}
    assert (closing.did, closing.net.state) == ([], "running")
    assert close(closing, force=True)["status"] == "OK"
    assert closing.did[1] == ("restart", ["a"], 9.0, True, "closing")


def test_what_stops_it_half_way_can_be_tried_again(closing):
    closing.answers.restarted = ([], ["x (7 bytes)"])
    assert close(closing) == {"status": "held", "keys": ["x (7 bytes)"]}
    assert (closing.net.state, closing.net.loss) == ("lost", "The close of network n1 stopped half-way.")
    closing.answers.restarted = (["a nanny"], [])
    assert close(closing) == {"status": "OK", "missing": ["a nanny"]}
    assert closing.net.state == "closed"


def test_an_error_ends_the_lease(closing, caplog):
    closing.answers.restarted = OSError("no route")
    with pytest.raises(OSError, match="no route"), caplog.at_level(logging.ERROR, "dask_train.scheduler"):
        close(closing)
    assert closing.did[-1] == "release n1"
    assert closing.plug.networks.by_id == {}
    assert closing.plug.networks.spent == {"a": "n1"}, "it may still hold a server"
    assert "Closing network n1 failed" in caplog.text


@pytest.mark.parametrize("stuck", [[], ["x (7 bytes)"]])
def test_a_client_that_leaves(closing, caplog, stuck):
    closing.answers.stuck = stuck

    async def leave() -> None:
        closing.plug.remove_client(client="another")
        closing.plug.remove_client(client="me")
        await asyncio.gather(*closing.plug._closing)

    with caplog.at_level(logging.WARNING, "dask_train.scheduler"):
        asyncio.run(leave())
    assert closing.plug.networks.by_id == {}
    assert [step[0] for step in closing.did[:-1]] == ([] if stuck else ["quiet", "restart"])
    assert closing.plug.networks.spent == ({"a": "n1"} if stuck else {})
    assert ("ends without a restart" in caplog.text) == bool(stuck)
    closing.plug.remove_worker(worker="a")
    assert closing.plug.networks.spent == {}


def test_a_lease_of_a_client_that_left_ends_whatever_goes_wrong(closing, caplog, monkeypatch):
    def fails(*_: Any) -> Any:
        raise OSError("no answer")

    monkeypatch.setattr(plugin, "stuck", fails)

    async def leave() -> None:
        closing.plug.remove_client(client="me")
        await asyncio.gather(*closing.plug._closing)

    with caplog.at_level(logging.ERROR, "dask_train.scheduler"):
        asyncio.run(leave())
    assert (closing.did, closing.plug.networks.by_id) == (["release n1"], {})
    assert closing.plug.networks.spent == {"a": "n1"}
    assert "Closing network n1 of a client that left failed" in caplog.text


def test_servers_that_stay_need_no_restart(closing):
    closing.net.leave_servers = True
    assert close(closing)["status"] == "OK"
    assert (closing.did, closing.net.state) == (["release n1"], "closed")


# Beside runs


@pytest.mark.parametrize("kinds", [(TrainPlugin, NetworksPlugin), (NetworksPlugin, TrainPlugin)])
def test_networks_and_runs_never_take_the_same_dask_worker(a_scheduler, kinds):
    scheduler = a_scheduler(a=1, b=1)
    for kind in kinds:
        scheduler.install(kind())

    async def ask(handler: str, **message: Any) -> dict[str, Any]:
        return await scheduler.handlers[f"train_{handler}"](**message)

    async def reserve(network: str, *on: str) -> dict[str, Any]:
        settings = {"leave_servers": True, "errors": {"closed": b"@reason@", "lost": b"@reason@"}, "close_s": 60.0}
        return await ask("reserve", network=network, client="me", counts={"ps": 1}, on=list(on) or None, **settings)

    async def place(request: str, count: int) -> dict[str, Any]:
        roles = [["worker", rank, {}] for rank in range(count)]
        return await ask("run_place", run=request, request=request, roles=roles, on=None, timeout_s=0.0)

    async def story() -> None:
        for run in ("r1", "r2"):
            await ask("run_open", run=run, client="me", info={}, lease_s=60.0, keys=[])
        assert (await reserve("n1", "a"))["jobs"] == {"ps": ["a"]}
        assert (await place("r2", 2))["why"] == (
            "2 roles need as many free threads, and 1 of 2 are free. a carries network n1."
        )
        await ask("run_end", run="r2", summary={})
        assert [place[2] for place in (await place("r1", 1))["places"]] == ["b"]
        assert scheduler.locked == {"a": ["n1"], "b": ["train-roles-on-b"]}
        taken = {"a": "carries network n1", "b": "carries roles of a run"}
        assert await reserve("n2") == {"status": "too few", "need": 1, "free": 0, "taken": taken}
        everyone = list(scheduler.workers.values())
        for installed in scheduler.plugins.values():
            everyone = installed.valid_workers_downscaling(scheduler, everyone)
        assert everyone == []
        await ask("run_end", run="r1", summary={})
        assert (await reserve("n2"))["jobs"] == {"ps": ["b"]}
        await ask("forget", network="n2", spent=True)
        await ask("run_open", run="r3", client="me", info={}, lease_s=60.0, keys=[])
        why = (await place("r3", 1))["why"]
        assert why.endswith("b holds a server of network n2, which ended without a restart.")
        await ask("run_end", run="r3", summary={})

    asyncio.run(story())
