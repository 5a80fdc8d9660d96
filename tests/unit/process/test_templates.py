"""Children that are forked of a template: the same as new ones, but for the import."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dask_train.process import templates as templates_module
from dask_train.process.launch import Preload, spawn
from dask_train.process.templates import GivenUpError, ProcessStart, Templates


def template_of(templates: Templates) -> int:
    (pid,) = templates.pids()
    return pid


# What differs by nature between two children, or says that one of them was forked
OWN = (
    "pid",
    "parent",
    "session",
    "imported_by",
    "import_collects",
    "num_kept",
    "random",
    "numpy",
    "shown",
    "descriptors",
)


def test_a_fork_is_what_a_new_process_is(children: Any, with_templates: Any, begin: Any, preload: Preload) -> None:
    async def test(templates: Templates) -> None:
        told = await begin(templates, children(), preload, environment={"OF_ITS_OWN": "1"})
        fresh = children()
        process = spawn(fresh.launch(None, environment={"OF_ITS_OWN": "1"}))
        expected = await asyncio.to_thread(fresh.started, process)
        assert told["imported_by"] == template_of(templates) != told["pid"]
        assert {name: told[name] for name in told if name not in OWN} == {
            name: expected[name] for name in expected if name not in OWN
        }
        assert told["parent"] not in (os.getpid(), told["imported_by"]), "its guard"
        assert told["session"] == told["pid"]
        assert told["name"] == "__main__"
        assert len(told["descriptors"]) == len(expected["descriptors"]), "nothing of the template's is open"
        shown = told["shown"].rstrip("\0").split("\0")
        assert shown[:6] == expected["shown"].split("\0")[:6], "ps shows the role"

    with_templates(test)


def test_forks_share_one_import_and_draw_other_numbers(
    children: Any, with_templates: Any, begin: Any, preload: Preload
) -> None:
    preload = replace(preload, modules=(*preload.modules, "numpy.random"))

    async def test(templates: Templates) -> None:
        told = await asyncio.gather(*(begin(templates, children(), preload) for _ in range(3)))
        assert {one["imported_by"] for one in told} == {template_of(templates)}
        for name in ("pid", "random", "numpy"):
            assert len({one[name] for one in told}) == 3, name

    with_templates(test)


def test_garbage_is_collected_in_forks_not_in_imports(
    children: Any, with_templates: Any, begin: Any, preload: Preload
) -> None:
    async def test(templates: Templates) -> None:
        told = await begin(templates, children(), preload)
        assert (told["import_collects"], told["collects"]) == (False, True)
        assert told["num_kept"], "collections leave the pages of modules alone"

    with_templates(test)


def test_what_the_import_printed_is_in_each_output(
    children: Any, with_templates: Any, begin: Any, preload: Preload
) -> None:
    async def test(templates: Templates) -> None:
        for _ in range(2):
            child = children()
            await begin(templates, child, preload)
            assert child.printed() == "the framework says hello\nthe child says hello\n"

    with_templates(test)


@pytest.mark.parametrize(("order", "status"), [("exit 0", 0), ("exit 3", 3), ("kill", -signal.SIGKILL), ("raise", 1)])
def test_how_a_fork_ended_is_known(
    order: str, status: int, children: Any, with_templates: Any, begin: Any, preload: Preload
) -> None:
    async def test(templates: Templates) -> None:
        child = children()
        await begin(templates, child, preload)
        assert child.tell(order) == status
        assert ("ValueError: as it was told" in child.printed()) == (order == "raise")

    with_templates(test)


def test_a_fork_ends_with_its_lifeline(children: Any, with_templates: Any, begin: Any, preload: Preload) -> None:
    async def test(templates: Templates) -> None:
        child = children()
        await begin(templates, child, preload)
        os.close(child.lifeline)
        child.lifeline = -1
        assert await asyncio.to_thread(child.process.wait, 20) == -signal.SIGKILL

    with_templates(test)


def test_forks_outlive_their_template(
    children: Any, with_templates: Any, begin: Any, preload: Preload, wait_for: Any
) -> None:
    async def test(templates: Templates) -> None:
        child, second = children(), children()
        await begin(templates, child, preload)
        killed = template_of(templates)
        os.kill(killed, signal.SIGKILL)
        await asyncio.to_thread(wait_for, lambda: not psutil.pid_exists(killed), "the template is dead, and waited for")
        told = await begin(templates, second, preload)
        assert told["imported_by"] == template_of(templates) != killed, "there is another"
        assert child.tell("exit 5") == 5

    with_templates(test)


def test_a_template_that_hangs_is_ended_and_the_child_is_new(
    children: Any,
    with_templates: Any,
    begin: Any,
    preload: Preload,
    wait_for: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(templates_module, "FORK_S", 0.2)

    async def test(templates: Templates) -> None:
        await begin(templates, children(), preload)
        stopped = template_of(templates)
        os.kill(stopped, signal.SIGSTOP)
        told = await begin(templates, children(), preload)
        assert told["imported_by"] is None
        await asyncio.to_thread(wait_for, lambda: not psutil.pid_exists(stopped), "it is killed")
        told = await begin(templates, children(), preload)
        assert told["imported_by"] == template_of(templates)

    with caplog.at_level(logging.WARNING):
        with_templates(test)
    assert [record.message for record in caplog.records] == [
        "Processes with cheap_framework start without a template: it forked no process within 0.2 s"
    ]


UNFIT = {
    "raises": ("raise ImportError('there is none')", "ImportError: there is none"),
    "ends": ("import os; os._exit(7)", "ended with status 7"),
    "starts a thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "it has other threads",
    ),
    "opens a device": ("import os; kept = os.open('/dev/zero', os.O_RDONLY)", "it has opened /dev/zero"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_can_not_be_forked_starts_anew_and_is_told_once(
    case: str,
    modules: Path,
    children: Any,
    with_templates: Any,
    begin: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if case == "opens a device":
        monkeypatch.setattr("dask_train.process.template.DEVICES", ("/dev/zero",))
        (modules / "sitecustomize.py").write_text("")
    code, why = UNFIT[case]
    code = f"import dask_train.process.template as t; t.DEVICES = ('/dev/zero',)\n{code}" if "device" in case else code
    (modules / "odd_framework.py").write_text(code)
    preload = Preload(modules=("odd_framework",), idle_s=60.0)

    async def test(templates: Templates) -> None:
        for _ in range(2):
            told = await begin(templates, children(), preload)
            assert told["imported_by"] is None
            assert not templates.pids(), "it is ended, and not tried again"

    with caplog.at_level(logging.WARNING):
        with_templates(test)
    (record,) = caplog.records
    assert why in record.message


def change_environment(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")


def change_path(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(modules.parent))


def upload(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (modules / "cheap_framework.py").write_text((modules / "cheap_framework.py").read_text() + "NEW = 1\n")


def install(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (modules / "cheap_framework-2.0.dist-info").mkdir()


def change_folder(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(modules.parent)


@pytest.mark.parametrize("change", [change_environment, change_path, upload, install, change_folder])
def test_a_template_ends_when_a_new_process_would_be_another(
    change: Callable[..., None],
    children: Any,
    with_templates: Any,
    begin: Any,
    preload: Preload,
    modules: Path,
    wait_for: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(templates: Templates) -> None:
        await begin(templates, children(), preload)
        old = template_of(templates)
        (modules / "a-role's scratch folder").mkdir()
        (modules / "data.csv").write_text("1")
        (modules / "my_model.py").write_text("")
        await begin(templates, children(), preload)
        assert template_of(templates) == old, "what it has not imported makes no difference"
        change(modules, monkeypatch)
        told = await begin(templates, children(), preload)
        assert told["imported_by"] == template_of(templates) != old
        await asyncio.to_thread(wait_for, lambda: not psutil.pid_exists(old), "the old one is gone")

    with_templates(test)


def test_an_unused_template_ends(
    children: Any, with_templates: Any, begin: Any, preload: Preload, wait_for: Any
) -> None:
    async def test(templates: Templates) -> None:
        child = children()
        await begin(templates, child, replace(preload, idle_s=0.05))
        await asyncio.to_thread(wait_for, lambda: not templates.pids(), "the template is gone")
        assert child.tell("exit 0") == 0
        told = await begin(templates, children(), preload)
        assert told["imported_by"] == template_of(templates)

    with_templates(test)


def test_how_long_one_is_unused(
    children: Any, with_templates: Any, begin: Any, preload: Preload, wait_for: Any
) -> None:
    async def test(templates: Templates) -> None:
        starting = asyncio.create_task(begin(templates, children(), preload))
        while not templates.pids():
            await asyncio.sleep(0)
        assert templates.idle_s() == {template_of(templates): 0.0}, "it imports"
        await starting
        await asyncio.to_thread(wait_for, lambda: templates.idle_s()[template_of(templates)] > 0.05, "it is unused")
        assert templates.idle_s().keys() == templates.pids().keys()

    with_templates(test)


def test_none_is_made_where_templates_are_off(children: Any, with_templates: Any, begin: Any, preload: Preload) -> None:
    async def test(templates: Templates) -> None:
        for off in (replace(preload, idle_s=0.0), None):
            told = await begin(templates, children(), off)
            assert told["imported_by"] is None
        assert not templates.pids()

    with_templates(test)


def test_only_so_many_are_kept(modules: Path, children: Any, with_templates: Any, begin: Any, preload: Preload) -> None:
    names = [f"framework_{number}" for number in range(templates_module.MAX_TEMPLATES)]
    for name in names:
        (modules / f"{name}.py").write_text("")

    async def test(templates: Templates) -> None:
        await begin(templates, children(), preload)
        for name in names:
            await begin(templates, children(), replace(preload, modules=(name,)))
        assert sorted(templates.pids().values()) == names, "the one used least recently has made room"

    with_templates(test)


def test_a_start_is_given_up_while_its_template_imports(
    modules: Path, children: Any, with_templates: Any, preload: Preload
) -> None:
    (modules / "slow_framework.py").write_text("import time; time.sleep(60)")

    async def test(templates: Templates) -> None:
        start = ProcessStart(children().launch(replace(preload, modules=("slow_framework",))))
        starting = asyncio.create_task(templates.start(start))
        while start.template is None or not start.template.pid:
            await asyncio.sleep(0)
        await asyncio.to_thread(start.give_up)
        with pytest.raises(GivenUpError):
            await starting
        assert templates.pids(), "the next one may use it"

    with_templates(test)


def test_a_start_is_given_up_while_others_are_forked(children: Any, with_templates: Any, preload: Preload) -> None:
    class GivenUpLate(ProcessStart):
        async def wait_for(self, ready: asyncio.Future[None]) -> None:
            await super().wait_for(ready)
            self.give_up()

    async def test(templates: Templates) -> None:
        with pytest.raises(GivenUpError):
            await templates.start(GivenUpLate(children().launch(preload)))

    with_templates(test)


def test_a_start_that_was_given_up_starts_nothing_anew(children: Any, with_templates: Any) -> None:
    async def test(templates: Templates) -> None:
        start = ProcessStart(children().launch(None))
        start.give_up()
        with pytest.raises(GivenUpError):
            await templates.start(start)

    with_templates(test)


def test_imports_that_hang_are_not_waited_for_twice(
    modules: Path, children: Any, with_templates: Any, begin: Any, preload: Preload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates_module, "IMPORT_S", -1.0)
    (modules / "slow_framework.py").write_text("import time; time.sleep(60)")

    async def test(templates: Templates) -> None:
        told = await begin(templates, children(), replace(preload, modules=("slow_framework",)))
        assert told["imported_by"] is None
        assert not templates.pids()

    with_templates(test)


def test_nothing_starts_once_they_are_closed(
    children: Any, with_templates: Any, begin: Any, preload: Preload, wait_for: Any
) -> None:
    async def test(templates: Templates) -> None:
        await begin(templates, children(), preload)
        old = template_of(templates)
        templates.close()
        await asyncio.to_thread(wait_for, lambda: not psutil.pid_exists(old), "it is gone")
        with pytest.raises(OSError, match="the Dask worker closes"):
            await templates.start(ProcessStart(children().launch(preload)))

    with_templates(test)
