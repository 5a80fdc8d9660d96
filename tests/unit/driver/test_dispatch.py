"""Commands reach the scheduler and the agents, in order; agents are stood up, and looked after."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from distributed.client import FutureCancelledError

from dask_train.cluster.devices import DeviceOffer
from dask_train.driver import dispatch as dispatch_module
from dask_train.driver import loop as loop_module
from dask_train.driver.preflight import packed
from dask_train.process import messages
from dask_train.process.devices import VisibleDevice
from dask_train.run import events
from dask_train.run.bounds import WorkerBounds
from dask_train.run.commands import Free, Verdict
from dask_train.run.messages import Exited, Go, Ready, RoleProcess, StartProcess, WorkerLost
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.state import RolePhase


async def started(it: Any, *, num: int = 1) -> None:
    await it.scheduler.until(lambda: len(it.scheduler.sent(StartProcess)) >= num)


def happened(it: Any, kind: type[Any]) -> list[Any]:
    return [event.what for event in it.events if isinstance(event.what, kind)]


async def test_roles_of_a_dask_worker_have_one_agent_which_is_there_before_their_letters(driven):
    async with driven(worker=4) as it:
        await started(it, num=4)
        asked = [name for name, _ in it.scheduler.asked]
        assert len(it.scheduler.agents) == asked.count("train_run_agent") == 2
        assert asked.index("train_run_post") > max(at for at, name in enumerate(asked) if name == "train_run_agent")
        assert [of.rank for at, _, of in it.scheduler.letters if at == "a"] == [0, 2]
        it.driver.stop("enough")


async def test_cores_of_a_host_are_shared_by_all_that_runs_there(driven):
    async with driven({"runs_on_host": 3}, worker=2, ps=1) as it:
        await started(it, num=3)
        assert {message.roles_on_host for _, message, _ in it.scheduler.sent(StartProcess)} == {9}
        it.driver.stop("enough")


# Lost workers start again alone.
REPLACEABLE = {"recovery": RecoveryPolicy(), "replaceable": frozenset({"worker"})}


async def lose_two(it):
    """Lose two of three workers at the same time, and wait until they start again."""
    await it.running()
    for rank in (1, 2):
        it.scheduler.tells(Exited(cause="it was killed."), "worker", rank)
    await started(it, num=5)


async def test_roles_that_are_lost_together_share_the_cores_as_before(driven):
    """Else each would count itself alone, with more threads, and other bits."""
    async with driven(plan=REPLACEABLE, worker=3) as it:
        await lose_two(it)
        assert [message.roles_on_host for _, message, _ in it.scheduler.sent(StartProcess)] == [3] * 5
        it.driver.stop("enough")


async def test_the_first_of_several_replacements_has_an_address_of_each_peer(driven):
    async with driven(plan=REPLACEABLE, worker=3) as it:
        await lose_two(it)
        it.scheduler.tells(Ready(pid=7, peer="h:7"), "worker", 1, 1)
        *_, (_, go, _) = await it.scheduler.until(lambda: len(it.scheduler.sent(Go)) == 4 and it.scheduler.sent(Go))
        assert go.peers == {"worker": ["h:0", "h:7", "h:2"]}
        it.driver.stop("enough")


async def test_a_dask_worker_that_has_left_before_its_agent_came_is_lost(driven):
    async with driven(plan={"recovery": None}) as it:
        it.scheduler.answers["train_run_agent"] = {"status": "gone"}
    assert it.scheduler.agents == {}
    assert it.driver.finish.verdict is Verdict.ROLE_LOST
    assert happened(it, WorkerLost)[0].address == "a"


async def test_an_agent_that_fails_is_told_of_and_the_next_role_there_has_another(driven):
    policy = {"recovery": RecoveryPolicy(), "replaceable": frozenset({"worker"})}
    async with driven(plan=policy) as it:
        await it.running()
        first = it.scheduler.agents["a"]
        first.set_exception(ZeroDivisionError("a bug of ours"))
        await started(it, num=2)
        assert it.scheduler.agents["a"] is not first
        assert [of.attempt for _, _, of in it.scheduler.sent(StartProcess)] == [0, 1]
        it.driver.stop("enough")
    assert happened(it, events.AgentFailed)[0].error == "ZeroDivisionError: a bug of ours."
    assert it.driver.history.driver_error is None, "the run was mended"


async def test_an_agent_that_fails_where_nothing_is_replaced_is_the_cause_of_the_end(driven):
    error = ZeroDivisionError("a bug of ours")
    async with driven(plan={"recovery": None}) as it:
        await it.running()
        it.scheduler.agents["a"].set_exception(error)
    assert it.driver.finish.verdict is Verdict.ROLE_LOST
    assert it.driver.history.driver_error is error


async def test_the_task_of_an_agent_on_a_lost_dask_worker_is_cancelled_without_a_word(driven):
    async with driven(worker=2, plan={"recovery": RecoveryPolicy(), "replaceable": frozenset({"worker"})}) as it:
        await it.running()
        agent, ended = it.scheduler.agents["a"], set(it.driver.dispatch._watching)

        async def cancel(futures: list[Any]) -> None:  # as Dask does
            for future in futures:
                if not future.done():
                    future.set_exception(FutureCancelledError("agent", "it was cancelled"))

        it.scheduler.cancel = cancel
        it.scheduler.tells(WorkerLost(address="a"))
        await it.scheduler.until(lambda: agent.done() and any(watching.done() for watching in ended))
        it.driver.stop("enough")
    assert happened(it, events.AgentFailed) == []
    assert it.driver.history.driver_error is None


async def test_an_agent_that_has_told_of_its_roles_ends_in_order_and_the_next_role_there_has_another(driven):
    async with driven(plan={"recovery": RecoveryPolicy(), "replaceable": frozenset({"worker"})}) as it:
        await it.running()
        first = it.scheduler.agents["a"]
        first.set_result(True)
        it.scheduler.tells(Exited(cause="its Dask worker leaves.", leaves=True), "worker", 0)
        await it.scheduler.until(lambda: it.scheduler.agents["a"] is not first)
        it.driver.stop("enough")
    assert happened(it, events.AgentFailed) == []
    assert happened(it, Exited)[0].leaves


@pytest.mark.parametrize(("one_host", "host"), [(True, "host"), (False, "")])
async def test_a_run_that_follows_dask_workers_stays_on_its_host_if_it_has_to(driven, one_host, host):
    plan = {"recovery": RecoveryPolicy(), "replaceable": frozenset({"worker"}), "one_host": one_host}
    async with driven({"follows": WorkerBounds(2, 8)}, worker=2, plan=plan) as it:
        await it.running()
        opened = it.scheduler.questions("train_run_open")[0]
        assert (opened["in_place"], opened["follows"]) == (True, one_host)
        it.scheduler.tells(Exited(cause="it was killed."), "worker", 0)
        await started(it, num=3)
        it.driver.stop("enough")
    assert [asked["host"] for asked in it.scheduler.questions("train_run_place")] == ["", host]


async def test_what_is_for_an_agent_on_a_lost_dask_worker_is_dropped_and_its_task_cancelled(driven):
    async with driven(worker=2, plan={"recovery": None}) as it:
        await started(it, num=2)
        lost = it.scheduler.agents["a"]
        it.scheduler.tells(WorkerLost(address="a"))
        await it.scheduler.until(lambda: lost in it.scheduler.cancelled)
        it.driver.dispatch.answer(RoleProcess("worker", 0, 0), messages.Value(value=b"late"))
        it.driver.dispatch.answer(RoleProcess("worker", 1, 0), messages.Value(value=b"well"))
        await it.scheduler.until(lambda: it.scheduler.sent(messages.Value))
    assert [(at, message.value) for at, message, _ in it.scheduler.sent(messages.Value)] == [("b", b"well")]


async def test_a_large_model_goes_to_its_dask_worker_by_itself(driven, monkeypatch):
    monkeypatch.setattr(dispatch_module, "LARGE_BYTES", 10)
    async with driven(worker=2) as it:
        await started(it, num=2)
        assert [address for _, address in it.scheduler.put_aside] == ["a", "b"]
        it.driver.stop("enough")


async def test_large_arrays_stay_in_this_process_for_dask_workers_that_can_map_them_there(driven, monkeypatch):
    large = packed("function", np.ones(1 << 17))
    async with driven({"functions": {"worker": large}}, worker=2) as it:
        it.scheduler.reach_me = {"a": True}
        await started(it, num=2)
        near = pickle.loads(it.scheduler.briefs["a"])
        assert near.functions["worker"] == large.lent()
        assert near.letterbox == it.driver.history.letterbox.place
        assert [address for _, address in it.scheduler.put_aside] == ["b"], "which could not"
        it.driver.stop("enough")


async def test_small_functions_have_no_letterbox(driven):
    async with driven() as it:
        await started(it)
        assert it.driver.history.letterbox is pickle.loads(it.scheduler.briefs["a"]).letterbox is None
        it.driver.stop("enough")


class Table:
    """A data set of two partitions: the first on ``a``, the second on both."""

    keys = ("first", "second")
    where = (["a"], ["a", "b"])

    def table(self, role: str, ranks: list[str]) -> bytes:
        return pickle.dumps((role, ranks))


async def test_each_agent_is_told_once_what_a_data_set_is_and_not_of_holders_that_are_lost(driven):
    async with driven(worker=3) as it:
        await started(it, num=3)
        for rank in (0, 2, 1):
            it.driver.dispatch.tell_of(RoleProcess("worker", rank, 0), 1, Table())
        told = await it.scheduler.until(
            lambda: len(it.scheduler.sent(messages.DataSetPlaces)) == 2 and it.scheduler.letters
        )
        told = {at: message for at, message, _ in told if isinstance(message, messages.DataSetPlaces)}
        assert sorted(told) == ["a", "b"]
        assert pickle.loads(told["a"].table) == ("worker", ["a", "b", "a"])
        it.driver.dispatch.worker_lost("a")
        it.driver.dispatch.tell_of(RoleProcess("worker", 1, 0), 2, Table())
        last = await it.scheduler.until(
            lambda: [m for _, m, _ in it.scheduler.sent(messages.DataSetPlaces) if m.number == 2]
        )
        assert (told["a"].where, last[0].where) == ([["a"], ["a", "b"]], [[], ["b"]])
        it.driver.stop("enough")


async def test_a_data_set_is_described_while_a_rank_waits_for_room(driven):
    plan = {"recovery": RecoveryPolicy(), "replaceable": frozenset({"worker"})}
    async with driven(worker=2, plan=plan) as it:
        await it.running()
        it.scheduler.answers["train_run_place"] = {"status": "waiting", "why": "a is busy"}
        it.scheduler.tells(Exited(cause="it was killed."), "worker", 1)
        await it.scheduler.until(lambda: it.phase("worker", 1) is RolePhase.PLACING)
        it.driver.dispatch.tell_of(RoleProcess("worker", 0, 0), 1, Table())
        ((_, message, _),) = await it.scheduler.until(lambda: it.scheduler.sent(messages.DataSetPlaces))
        assert pickle.loads(message.table) == ("worker", ["a", "b"])
        it.driver.stop("enough")


NO_ROOM = [
    (
        {"status": "unknown", "addresses": ["x"], "known": "a, b"},
        "worker=2 can't be placed.",
        "on= names x, and the Dask workers are a, b.",
    ),
    ({"status": "never", "why": "no Dask worker has a GPU"}, "worker=2 can't be placed.", "no Dask worker has a GPU."),
    (
        {"status": "waiting", "why": "a is busy"},
        "worker=2 found no room within 0.01 s.",
        "a is busy",
    ),
]


@pytest.mark.parametrize(("answer", "what", "cause"), NO_ROOM, ids=[answer["status"] for answer, _, _ in NO_ROOM])
async def test_no_room_is_told_in_words_and_what_was_asked_for_given_back(driven, answer, what, cause):
    async with driven(worker=2, plan={"placement_s": 0.01}) as it:
        it.scheduler.answers["train_run_place"] = answer
    finish = it.driver.finish
    assert (finish.verdict, finish.what, finish.cause) == (Verdict.PLACEMENT, what, cause)
    assert it.scheduler.questions("train_run_free")[0]["roles"] == [["worker", 0], ["worker", 1]]


async def test_a_run_that_waits_for_room_says_for_what(driven):
    async with driven() as it:
        it.scheduler.answers["train_run_place"] = {"status": "waiting", "why": "a is busy"}
        await it.scheduler.until(lambda: it.driver.summary()["waiting"] == "a is busy")
        del it.scheduler.answers["train_run_place"]
        await started(it)
        requests = {asked["request"] for asked in it.scheduler.questions("train_run_place")}
        assert len(requests) == 1, "it keeps its place in the queue"
        it.driver.stop("enough")


async def test_a_run_that_may_use_gpus_waits_until_a_dask_worker_has_said_which_it_has(driven, monkeypatch):
    monkeypatch.setattr(dispatch_module, "COME_POLL_S", 0.01)
    workers: dict[str, Any] = {}

    async def there() -> dict[str, Any]:
        return workers

    async with driven({"gpus": "auto"}) as it:
        it.scheduler.workers = there
        await it.scheduler.until(lambda: it.driver.summary()["waiting"] == "There is no Dask worker.")
        assert not it.scheduler.questions("train_run_place")
        x = VisibleDevice(uuid="GPU-x", entry="0")
        it.scheduler.reach_me = {"a": DeviceOffer(devices=(x,), num_devices=1, is_given=True, names=("H100",))}
        workers["a"] = {}
        await started(it)
        assert it.scheduler.questions("train_run_place")[0]["devices"]["offers"] == {"a": [["GPU-x"], 1]}
        it.driver.stop("enough")


async def test_room_that_is_given_back_for_one_role_is_still_asked_for_the_others(driven):
    async with driven(worker=3) as it:
        it.scheduler.answers["train_run_place"] = {"status": "waiting", "why": "a is busy"}
        await it.scheduler.until(lambda: it.scheduler.questions("train_run_place"))
        it.driver.dispatch.put(Free(roles=(("worker", 1),)))
        others = [["worker", 0, {}], ["worker", 2, {}]]
        await it.scheduler.until(lambda: it.scheduler.questions("train_run_place")[-1]["roles"] == others)
        asked = [(name, message.get("roles")) for name, message in it.scheduler.asked]
        assert asked.index(("train_run_free", [["worker", 1]])) < asked.index(("train_run_place", others))
        it.driver.stop("enough")


async def test_too_few_threads_are_told(driven, capfd):
    async with driven(worker=2) as it:
        places = [["worker", rank, "a", "host", ""] for rank in (0, 1)]
        it.scheduler.answers["train_run_place"] = {"status": "OK", "places": places, "threads": 1}
        await started(it, num=2)
        it.driver.stop("enough")
    assert capfd.readouterr().err == "dask_train: 2 roles share 1 threads of the Dask cluster.\n"


async def test_an_agent_that_does_not_end_keeps_nobody(driven, monkeypatch):
    monkeypatch.setattr(loop_module, "AGENTS_S", 0.05)

    async def ends(**_: Any) -> dict[str, Any]:
        return {"status": "OK"}  # and the agent goes on

    async with driven() as it:
        it.scheduler._train_run_end = ends
        await started(it)
        agent = it.scheduler.agents["a"]
        it.driver.stop("enough")
    assert agent.cancelled()
