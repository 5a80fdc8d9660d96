"""Templates that several Dask workers share, which here are several ``Templates`` of one process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dask_train.process import template_connection
from dask_train.process.launch import Preload
from dask_train.process.templates import Template, Templates


@pytest.fixture
def sharing(no_leaks: Any, made: list[Any]) -> Callable[..., None]:
    """Runs a test with the templates of two Dask workers of a cluster."""

    def run(test: Callable[[Templates, Templates], Awaitable[None]], *folders: str) -> None:
        async def on_loop() -> None:
            both = [Templates("tcp://scheduler", folder) for folder in folders or ("", "")]
            try:
                await asyncio.wait_for(test(*both), 60)
            finally:
                for templates in both:
                    templates.close()
                for child in made:
                    child.close()

        with no_leaks():
            asyncio.run(on_loop())

    return run


async def gone(pid: int) -> None:
    while psutil.pid_exists(pid):
        await asyncio.sleep(0.01)


def test_one_is_shared_until_the_last_leaves_it(sharing: Any, children: Any, begin: Any, preload: Preload) -> None:
    async def test(first: Templates, second: Templates) -> None:
        told = await asyncio.gather(*(begin(each, children(), preload) for each in (first, second)))
        (shared,) = first.pids()
        assert first.pids() == second.pids()
        assert {one["imported_by"] for one in told} == {shared}
        assert len({one["pid"] for one in told}) == 2
        first.close()
        assert (await begin(second, children(), preload))["imported_by"] == shared
        second.close()
        await gone(shared)

    sharing(test)


def test_where_they_differ_each_has_its_own(
    sharing: Any, children: Any, begin: Any, preload: Preload, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(first: Templates, second: Templates) -> None:
        await begin(first, children(), preload)
        monkeypatch.setenv("MY_SETTING", "1")
        told = await begin(second, children(), preload)
        assert told["environment"]["MY_SETTING"] == "1"
        assert not first.pids().keys() & second.pids().keys()
        monkeypatch.delenv("MY_SETTING")
        other, alone = Templates("tcp://other"), Templates()
        for templates in (other, alone):
            await begin(templates, children(), preload)
        assert len({*first.pids(), *other.pids(), *alone.pids()}) == 3, "other clusters"
        for templates in (other, alone):
            templates.close()

    sharing(test)


def test_each_fork_has_the_import_path_of_its_dask_worker(
    sharing: Any, children: Any, begin: Any, preload: Preload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]

    async def started(templates: Templates, folder: Path) -> Any:
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            return await begin(templates, children(), preload)

    async def test(first: Templates, second: Templates) -> None:
        told = [await started(each, folder) for each, folder in zip((first, second), folders, strict=True)]
        assert first.pids() == second.pids()
        assert [one["path"][0] for one in told] == list(map(str, folders))
        assert told[0]["path"][1:] == told[1]["path"][1:]
        (folders[1] / "cheap_framework.py").write_text("IMPORTED_BY = 'its own'")
        told = [await started(each, folder) for each, folder in zip((first, second), folders, strict=True)]
        (shared,) = first.pids()
        assert [one["imported_by"] for one in told] == [shared, "its own"]

    for folder in folders:
        folder.mkdir()
    sharing(test, *map(str, folders))


def test_one_that_hangs_is_killed_for_all(
    sharing: Any, children: Any, begin: Any, preload: Preload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dask_train.process.templates.FORK_S", 0.2)

    async def test(first: Templates, second: Templates) -> None:
        child = children()
        await begin(first, child, preload)
        await begin(second, children(), preload)
        (stopped,) = first.pids()
        os.kill(stopped, signal.SIGSTOP)
        assert (await begin(second, children(), preload))["imported_by"] is None, "it starts anew"
        await gone(stopped)
        assert child.tell("exit 5") == 5, "what it has forked continues"
        told = [await begin(each, children(), preload) for each in (first, second)]
        assert told[0]["imported_by"] == told[1]["imported_by"] != stopped

    sharing(test)


def listening(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(address)
    made.listen()
    return made


@pytest.mark.parametrize("case", ["no template", "another place", "nobody listens"])
def test_what_has_taken_the_address_is_not_trusted(
    case: str, sharing: Any, children: Any, begin: Any, preload: Preload, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(first: Templates, second: Templates) -> None:
        await begin(first, children(), preload)
        (shared,) = first.pids()
        if case == "another place":
            monkeypatch.setattr(template_connection, "place_of", lambda pid: pid)
        else:
            first.close()
            await gone(shared)
            taken = listening(names[0])
            if case == "nobody listens":
                monkeypatch.setattr(template_connection, "LISTEN_S", 0.1)
                monkeypatch.setattr(template_connection, "_connected", lambda address: connected(address, names[0]))
        told = await begin(second, children(), preload)
        (own,) = second.pids()
        assert told["imported_by"] == own != shared
        if case != "another place":
            taken.close()

    names: list[str] = []
    connected_once = template_connection._connected

    def connected(address: Any, refused: str) -> Any:
        return None if address == refused else connected_once(address)

    connect = template_connection.TemplateConnection.connect

    async def noting(self: Any, name: str) -> None:
        names.append(f"\0dask-train-{name}")
        monkeypatch.setattr(template_connection, "LISTEN_S", 20.0) if not name else None
        await connect(self, name)

    monkeypatch.setattr(template_connection.TemplateConnection, "connect", noting)
    sharing(test)


def test_who_waits_for_an_import_survives_who_has_started_it(
    sharing: Any, children: Any, begin: Any, modules: Path
) -> None:
    (modules / "slow_framework.py").write_text(
        "import os, time\nwhile not os.path.exists(os.path.join(os.path.dirname(__file__), 'go')): time.sleep(0.01)"
    )
    preload = Preload(modules=("slow_framework",), idle_s=60.0)

    async def test(first: Templates, second: Templates) -> None:
        starting = [asyncio.create_task(begin(each, children(), preload)) for each in (first, second)]
        while not first.pids() or first.pids() != second.pids():
            await asyncio.sleep(0.01)
        (template,) = second.pids()
        found: Template = next(iter(second._templates.values()))
        while found._connection.end is None:
            await asyncio.sleep(0.01)
        first.close()
        await asyncio.wait(starting[:1])
        starting[0].exception()
        (modules / "go").touch()
        told = await starting[1]
        assert second.pids().keys() == {template}
        assert told["parent"] != os.getpid(), "it is a fork"

    sharing(test)
