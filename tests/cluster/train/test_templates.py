"""Templates in a cluster: whose they are, what roles see of them, and what is left when their Dask worker is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import dask
import psutil
import pytest
from dask_workers import own_dask_worker
from distributed import Client
from rich.console import Console

import dask_train as dt
from dask_train.cli.doctor import _print_plainly
from dask_train.cli.recorded_runs import print_templates
from dask_train.doctor.diagnosis import diagnose
from dask_train.doctor.examination import examine, examine_templates
from dask_train.frameworks.base import Framework

pytestmark = pytest.mark.usefixtures("fresh_cluster")  # whose Dask workers have no templates


class Cheap(Framework):
    """Its import takes no time."""

    name = "cheap"
    imports = ("sqlite3",)


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    """Templates are made in these tests."""
    with dask.config.set({"train.template.idle": "10 minutes"}):
        yield


def what_i_am(session: dt.Session) -> tuple[bool, int, int]:
    """Whether this was forked of a template, this process, and its Dask worker."""
    return "dask_train.process.template" in sys.modules, os.getpid(), own_dask_worker()


def report_and_wait(session: dt.Session) -> None:
    session.report(pid=os.getpid())
    session.wait_until_stopped()


def start_another_and_wait(session: dt.Session) -> None:
    subprocess.Popen(["sleep", "1000"])
    report_and_wait(session)


def templates_of(client: Client) -> dict[str, dict[int, str]]:
    """By Dask worker, the processes of its templates."""

    def tell(dask_worker: Any) -> dict[int, str]:
        plugin = dask_worker.plugins.get("dask-train-templates")
        return plugin.pids() if plugin else {}

    return {address: found for address, found in client.run(tell).items() if found}


def test_roles_of_both_dask_workers_are_forked_of_one_template(client: Client) -> None:
    dask_workers = set(client.run(os.getpid).values())
    first = dt.train(what_i_am, roles={"worker": 4}, framework=Cheap())
    made = templates_of(client)
    assert [list(found.values()) for found in made.values()] == [["sqlite3"]] * 2
    assert len({pid for found in made.values() for pid in found}) == 1, "they share it"
    second = dt.train(what_i_am, roles={"worker": 2}, framework=Cheap())
    assert templates_of(client) == made, "they stay"
    told = [*first.results["worker"], *second.results["worker"]]
    assert all(forked for forked, _, _ in told)
    assert len({pid for _, pid, _ in told}) == 6, "a process a role"
    assert {own for _, _, own in told} == dask_workers
    with dask.config.set({"train.template.idle": 0}):
        ((forked, _, _),) = dt.train(what_i_am, roles={"worker": 1}, framework=Cheap()).results["worker"]
    assert not forked


def test_the_doctor_and_the_status_tell_of_them(client: Client, capsys: Any) -> None:
    dt.train(what_i_am, roles={"worker": 2}, framework=Cheap())
    examination = examine(client)
    _print_plainly(examination, diagnose(examination))
    assert "Templates of processes on 2 Dask workers: sqlite3" in capsys.readouterr().out
    print_templates(examine_templates(client), Console(highlight=False, width=200))
    _, heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["template", "Dask", "worker", "process", "memory", "unused", "for"]
    pids = {address: pid for address, found in templates_of(client).items() for pid in found}
    assert {row.split()[1]: int(row.split()[2]) for row in rows} == {
        address.removeprefix("tcp://"): pid for address, pid in pids.items()
    }
    assert all(re.fullmatch(r"sqlite3 .* [\d.]+ MiB +[\d.]+ s", row) for row in rows), rows


def test_templates_import_modules_that_users_name(client: Client) -> None:
    def has_it(session: dt.Session) -> bool:
        return "wave" in sys.modules

    with dask.config.set({"train.template.imports": ["wave"]}):
        found = dt.train(has_it, roles={"worker": 2}, framework=Cheap())
    assert found.results["worker"] == [True, True]
    assert "sqlite3+wave" in {name for made in templates_of(client).values() for name in made.values()}
    assert dt.train(has_it, roles={"worker": 1}, framework=Cheap()).results["worker"] == [False]


def test_a_killed_template_takes_no_role_with_it(client: Client, until: Any, wait_for: Any, is_alive: Any) -> None:
    run = dt.train(report_and_wait, roles={"worker": 2}, framework=Cheap(), wait=False)
    roles = until(run, 2)
    killed = {pid for found in templates_of(client).values() for pid in found}
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, killed)), "the templates are dead")
    assert all(is_alive(role["pid"]) for role in roles.values())
    run.stop()
    run.result()
    ((forked, _, _),) = dt.train(what_i_am, roles={"worker": 1}, framework=Cheap()).results["worker"]
    assert forked, "there is another"


def test_roles_end_with_their_dask_worker_and_the_template_with_the_last(
    client: Client, until: Any, wait_for: Any, is_alive: Any, workers: Any
) -> None:
    runs, roles = [], []
    options = {"roles": {"worker": 1}, "framework": Cheap(), "wait": False, "recovery": None}
    for address in workers(client):
        run = dt.train(start_another_and_wait, on=[address], **options)
        runs.append(run)
        roles.append(until(run, 1)["worker", 0]["pid"])
    guards = [psutil.Process(pid).ppid() for pid in roles]
    started = [child.pid for pid in roles for child in psutil.Process(pid).children()]
    pids = client.run(os.getpid)
    first, last = (pids[address] for address in workers(client))
    ((template,),) = {tuple(found) for found in templates_of(client).values()}
    os.kill(first, signal.SIGKILL)
    wait_for(
        lambda: not any(map(is_alive, (roles[0], guards[0], started[0]))), "its role is gone, and what that started"
    )
    with pytest.raises(dt.RoleLostError):
        runs[0].result()
    assert all(map(is_alive, (template, last, roles[1], guards[1]))), "the other goes on"
    os.kill(template, signal.SIGSTOP)
    os.kill(last, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, (template, roles[1], guards[1], started[1]))), "nothing is left")
    with pytest.raises(dt.RoleLostError):
        runs[1].result()
    wait_for(lambda: len(workers(client)) == 2, "the nannies have started the Dask workers again")
