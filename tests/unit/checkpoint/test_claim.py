"""One run at a time keeps its checkpoints at a place."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest

from dask_train.checkpoint import claim
from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError


def of(url, run: str = "a-run", began: float = 0.0, attempt: int = 0, **which) -> CheckpointFolder:
    return CheckpointFolder(CheckpointPlace(url=str(url), run=run, began=began, **which), attempt)


@pytest.fixture
def soon(monkeypatch):
    """Claims are renewed, and looked at, many times a second."""
    for name, seconds in (("BEAT_S", 0.02), ("WATCH_S", 0.3), ("LOOK_S", 0.01)):
        monkeypatch.setattr(claim, name, seconds)


def claims(url) -> list[str]:
    system, root = fsspec.core.url_to_fs(url)
    return sorted(Path(name).name for name in system.find(root) if Path(name).name.startswith("run-"))


def claimed_by(url, **more) -> CheckpointFolder:
    """A run of that place, as it would be on another host."""
    folder = of(url, **more)
    folder._claiming._claim = replace(folder._claiming._claim, process="another host")
    folder.check()
    folder.claim()
    return folder


@pytest.mark.parametrize("is_here", [True, False])
def test_two_runs_in_one_place_are_found_when_the_second_begins(url, soon, is_here):
    if is_here:
        first = of(url, run="the-first", began=9.0)
        first.check()
        first.claim()
    else:
        first = claimed_by(url, run="the-first", began=9.0)
    second = of(url, run="the-second", began=5.0)  # it has waited for room
    with pytest.raises(
        CheckpointError, match=r"Run the-first, which has been running since .*; run the-second was to keep"
    ):
        second.claim()
    assert len(claims(url)) == 1
    first.release()
    assert claims(url) == []
    second = of(url, run="the-second", began=5.0)
    second.claim()
    second.release()


@pytest.mark.parametrize("where", ["here", "elsewhere", "long ago"])
def test_a_run_that_was_killed_keeps_nobody_off(url, soon, monkeypatch, where):
    dead = of(url, run="the-first")
    dead.check()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    told = claim._process(process.pid) if where == "here" else "another host"
    dead._claiming._claim = replace(dead._claiming._claim, process=told)
    dead._claiming._renew(settled=True)
    process.communicate(b"\n")
    if where == "long ago":
        monkeypatch.setattr(claim.time, "time", lambda now=claim.time.time: now() + 3600.0)
    if where != "elsewhere":
        monkeypatch.setattr(claim, "WATCH_S", 3600.0)  # it is not waited for
    after = of(url, run="the-second", began=5.0)
    after.claim()
    assert len(claims(url)) == 1
    after.release()


@pytest.mark.parametrize("was_first", [True, False])
def test_of_two_runs_that_come_at_once_the_later_gives_way(url, soon, monkeypatch, was_first):
    """The earlier waits for that; and is refused itself where the later one has settled before it came."""
    later = of(url, run="later", began=2.0)
    later.check()
    later._claiming._renew(settled=not was_first)
    earlier = of(url, run="earlier", began=1.0)
    looked = []

    def looks(_: float) -> None:
        looked.append(1)
        if was_first:
            with pytest.raises(CheckpointError, match="Run earlier, which has been running"):
                later.claim()

    monkeypatch.setattr(claim.time, "sleep", looks)
    if was_first:
        earlier.claim()
        assert looked == [1]
    else:
        with pytest.raises(CheckpointError, match="Run later, which has been running"):
            earlier.claim()
    earlier.release()


def test_a_run_that_starts_again_is_not_kept_off_by_itself(url, soon):
    first, again = of(url), of(url, attempt=1)
    first.check()
    first.claim()
    again.claim()
    again.release()
    first.release()


@pytest.mark.parametrize(
    "content", [b'{"loss": 1}', b'{"run": 1}\n{"run": 2}\n', b'{"run": "a"}', b"no JSON", b"[]", b""]
)
def test_a_file_of_the_users_that_is_named_like_a_claim_stays(url, soon, content):
    folder = of(url)
    folder.check()
    system, root = fsspec.core.url_to_fs(url)
    system.pipe_file(f"{root}/run-20260131.json", content)
    folder.claim()
    folder.release()
    assert system.cat_file(f"{root}/run-20260131.json") == content


@pytest.mark.parametrize("content", [b"", b'{"run": "a', b'{"run": "a"}'])
def test_a_file_in_which_no_claim_was_written_for_long_is_not_waited_for(url, monkeypatch, content):
    folder = of(url)
    folder.check()
    system, root = fsspec.core.url_to_fs(url)
    system.pipe_file(f"{root}/run-0123abcd.json", content)
    now = claim.time.time()
    monkeypatch.setattr(claim, "time", SimpleNamespace(time=lambda: now + 1000.0, sleep=None, monotonic=lambda: 0.0))
    folder.claim()
    folder.release()
    assert claims(url) == ["run-0123abcd.json"]


def test_a_claim_of_another_version_counts_as_long_as_it_is_renewed(url, soon, monkeypatch):
    folder = of(url)
    folder.check()
    system, root = fsspec.core.url_to_fs(url)
    other = claim.Claim(run="the-first", began=9.0, process="another host", settled=True, at=claim.time.time())

    def renew(seconds: float = 0.0, sleep=claim.time.sleep) -> None:
        nonlocal other
        sleep(seconds)
        other = replace(other, beat=other.beat + 1)
        system.pipe_file(f"{root}/run-0123abcd.json", json.dumps({**asdict(other), "more": 1}).encode())

    renew()
    monkeypatch.setattr(claim.time, "sleep", renew)
    with pytest.raises(CheckpointError, match="Run the-first, which has been running since"):
        folder.claim()
    assert claims(url) == ["run-0123abcd.json"]
