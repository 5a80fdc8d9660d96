"""Checkpoints are whole or not taken."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import fsspec
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError


def writes(text: str):
    def write(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "weights").write_text(text)
        (folder / "inner" / "more").write_text(f"more {text}")

    return write


def of(url, run: str = "a-run", began: float = 0.0, attempt: int = 0, **which) -> CheckpointFolder:
    return CheckpointFolder(CheckpointPlace(url=str(url), run=run, began=began, **which), attempt)


def weights(loaded) -> str:
    return (loaded.folder / "weights").read_text()


@pytest.fixture
def kept(tmp_path):
    """A folder with two checkpoints, and their names."""
    folder = of(tmp_path / "run")
    names = [Path(folder.save(writes(text), tmp_path / "scratch")).name for text in ("first", "second")]
    return tmp_path / "run", names


def test_what_is_saved_is_loaded(url, tmp_path):
    folder = of(url)
    folder.check()
    assert folder.load(tmp_path) is None
    folder.save(writes("first"), tmp_path / "scratch")
    loaded = folder.load(tmp_path / "scratch")
    found = {file.relative_to(loaded.folder).as_posix() for file in loaded.folder.rglob("*") if file.is_file()}
    assert found == {"weights", "inner/more"}
    assert (weights(loaded), loaded.notice) == ("first", "")
    for text in ("second", "third", "fourth"):
        where = folder.save(writes(text), tmp_path / "scratch", covers=[("a-run", "worker", [[0, 0]])])
    assert "/checkpoint-00000003-" in where
    loaded = folder.load(tmp_path / "other")
    assert weights(loaded) == "fourth"
    assert (loaded.manifest.run, loaded.manifest.covers) == ("a-run", [("a-run", "worker", [[0, 0]])])


def test_there_is_none_at_first(tmp_path):
    assert of(tmp_path / "none").load(tmp_path) is None


def test_the_last_two_are_kept(tmp_path):
    folder = of(tmp_path / "run")
    for number in range(4):
        folder.save(writes(str(number)), tmp_path / "scratch")
    names = sorted(entry.name.rpartition("-")[0] for entry in (tmp_path / "run").iterdir())
    assert [name[:19] for name in names] == 2 * ["checkpoint-00000002"] + 2 * ["checkpoint-00000003"]


def scored(folder, scratch, *scores):
    for number, score in enumerate(scores):
        folder.save(writes(f"{number}: {score}"), scratch, score=score)


def numbers(root) -> list[int]:
    return [int(entry.stem.split("-")[1]) for entry in sorted(root.glob("checkpoint-*.json"))]


@pytest.mark.parametrize(
    ("which", "scores", "left", "best"),
    [
        ({"keep": 3}, [1.0] * 5, [2, 3, 4], None),
        ({"keep": 1}, [1.0] * 5, [4], None),
        ({"keep": 4}, [1.0] * 3, [0, 1, 2], None),
        ({"keep": 9}, [1.0] * 7, [0, 1, 2, 3, 4, 5, 6], None),
        ({"keep": 2, "best": "loss", "mode": "min"}, [3.0, 1.0, 2.0, 1.0, None], [1, 3, 4], "1: 1.0"),
        ({"keep": 2, "best": "skill", "mode": "max"}, [3.0, 1.0, 2.0, 1.0, 0.5], [0, 3, 4], "0: 3.0"),
        ({"keep": 1, "best": "loss", "mode": "min"}, [3.0, float("nan"), 2.0, 3.0, 3.0], [2, 4], "2: 2.0"),
        ({"keep": 2, "best": "loss", "mode": "min"}, [1.0, 3.0, 3.0, 3.0, 0.5], [0, 3, 4], "4: 0.5"),
        ({"keep": 2, "best": "loss", "mode": "min"}, [None, float("nan")], [0, 1], None),
    ],
)
def test_the_last_ones_and_the_best_are_kept(tmp_path, which, scores, left, best):
    folder = of(tmp_path / "run", **which)
    scored(folder, tmp_path / "scratch", *scores)
    assert numbers(tmp_path / "run") == left
    for reader in (folder, of(tmp_path / "run", "another", **which)):
        loaded = reader.load_best(tmp_path / "scratch")
        assert (loaded and weights(loaded)) == best


def test_one_that_is_held_stays_until_its_score_is_known(url, tmp_path):
    which, scratch = {"keep": 1, "best": "val_loss", "mode": "min"}, tmp_path / "scratch"
    folder = of(url, **which)
    names = [folder.save(writes(str(number)), scratch, is_held=number < 2).rpartition("/")[2] for number in range(3)]
    system, root = fsspec.core.url_to_fs(url)

    def left():
        return sorted(name for name in names if system.exists(f"{root}/{name}.json"))

    assert left() == names
    folder.set_score(names[0], 2.0, "min")
    assert left() == names
    reader = of(url, "another", **which)
    assert (weights(reader.load_best(scratch)), weights(reader.load(scratch))) == ("0", "2")
    folder.set_score(names[1], 3.0, "min")
    assert left() == [names[0], names[2]], "it is not the best, nor the last"
    names.append(folder.save(writes("3"), scratch, is_held=True).rpartition("/")[2])
    folder.set_score(names[3], 1.0, "min")
    assert left() == [names[3]]
    reader = of(url, "another", **which)
    assert weights(reader.load(scratch)) == weights(reader.load_best(scratch)) == "3"
    assert not [path for path in system.find(f"{root}/{names[3]}") if path.endswith(".partial")]


def test_the_best_is_that_of_the_one_that_is_gone_on_with(tmp_path):
    root, scratch, which = tmp_path / "run", tmp_path / "scratch", {"best": "loss", "mode": "min"}
    scored(of(root, **which), scratch, 2.0, 3.0, 1.0)
    flip(max(root.glob("checkpoint-00000002-*/weights")))
    again = of(root, "again", 1.0, **which)
    assert weights(again.load(scratch)) == "1: 3.0", "the last one is damaged"
    assert weights(again.load_best(scratch)) == "0: 2.0", "which is there still"
    scored(again, scratch, 2.5, 2.5, 2.5)
    assert weights(again.load_best(scratch)) == "0: 2.0"
    anew = of(root, "anew", 2.0, **which)
    scored(anew, scratch, 9.0, 10.0, 11.0)
    assert weights(anew.load_best(scratch)) == "0: 9.0", "nothing of what was before"
    assert len(numbers(root)) == 3
    with pytest.raises(
        CheckpointError, match=r"the one with the min of 'loss', and this run keeps that with the max of"
    ):
        of(root, best="skill", mode="max").load(scratch)
    flip(max(root.glob("checkpoint-00000006-*/weights")))
    with pytest.raises(CheckpointError, match=r"The best checkpoint at .* can't be taken: its file weights has other"):
        of(root, **which).load_best(scratch)


def test_one_that_saves_nothing_finds_the_best_of_now(tmp_path):
    root, scratch, which = tmp_path / "run", tmp_path / "scratch", {"keep": 1, "best": "loss", "mode": "min"}
    writer, reader = of(root, **which), of(root, **which)
    scored(writer, tmp_path / "writer", 3.0)
    assert weights(reader.load_best(scratch)) == weights(reader.load(scratch)) == "0: 3.0"
    scored(writer, tmp_path / "writer", 2.0, 4.0)
    assert weights(reader.load_best(scratch)) == "0: 2.0", "that of before was removed"
    assert reader.best.score == 2.0


def test_a_best_one_that_is_removed_while_it_is_read_was_replaced(tmp_path, monkeypatch):
    root, scratch, which = tmp_path / "run", tmp_path / "scratch", {"keep": 1, "best": "loss", "mode": "min"}
    writer, reader = of(root, **which), of(root, **which)
    scored(writer, tmp_path / "writer", 3.0, 4.0)
    fetch, scores = CheckpointFolder._fetch, [2.0, 1.0]

    def fetched(self, *args):
        if scores:
            scored(writer, tmp_path / "writer", scores.pop(0))
        fetch(self, *args)

    monkeypatch.setattr(CheckpointFolder, "_fetch", fetched)
    assert weights(reader.load_best(scratch)) == "0: 1.0"
    for best in root.glob(f"{reader.best.checkpoint}*"):
        best.rename(root / f"former-{best.name}")
    writer.save(writes("last"), tmp_path / "writer", score=2.0)
    with pytest.raises(CheckpointError, match=r"The best checkpoint at .* can't be taken: it is missing"):
        reader.load_best(scratch)


def test_a_torn_one_is_never_loaded_and_removed_by_the_next(kept, tmp_path):
    root, (_, second) = kept
    torn = root / "checkpoint-00000002-aaaaaaaa-aaaa"
    torn.mkdir()
    (torn / "weights").write_text("torn")
    folder = of(root)
    assert weights(folder.load(tmp_path / "scratch")) == "second"
    assert "/checkpoint-00000003-" in folder.save(writes("next"), tmp_path / "scratch")
    assert {entry.stem[:19] for entry in root.iterdir()} == {second[:19], "checkpoint-00000003"}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def another(file: Path) -> None:
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "files": {}}))


DAMAGE = [
    ("{}/weights", flip, "its file weights has other contents than were written"),
    ("{}/inner/more", cut, r"its file inner/more has 3 of \d+ bytes"),
    ("{}/weights", empty, r"its file weights has 0 of \d bytes"),
    ("{}/weights", Path.unlink, "its file weights is missing"),
    ("{}.json", empty, "its manifest of 0 bytes can't be read"),
    ("{}.json", cut, "its manifest of 3 bytes can't be read"),
    ("{}.json", another, "its manifest has other contents than were written"),
]


@pytest.mark.parametrize(("file", "harm", "why"), DAMAGE)
def test_a_damaged_one_is_passed_over_and_told(kept, tmp_path, file, harm, why):
    root, (first, second) = kept
    harm(root / file.format(second))
    folder = of(root)
    loaded = folder.load(tmp_path / "scratch")
    assert weights(loaded) == "first"
    with pytest.raises(AssertionError, match=rf"is damaged \(of {second}, {why}\)\. Training resumes from .* {first} "):
        raise AssertionError(loaded.notice)
    folder.save(writes("third"), tmp_path / "scratch")
    left = {entry.stem[:19] for entry in root.iterdir()}
    assert left == {first[:19], "checkpoint-00000002"}, "the damaged one does not count as the one before"
    assert folder.load(tmp_path / "scratch").notice == "", "that is over"


@pytest.mark.parametrize(("file", "harm", "why"), DAMAGE)
def test_where_none_is_whole_there_is_an_error(kept, tmp_path, file, harm, why):
    root, names = kept
    for name in names:
        harm(root / file.format(name))
    with pytest.raises(CheckpointError, match=f"No checkpoint at .*run is whole: of .*, {why}"):
        of(root).load(tmp_path / "scratch")


def test_folders_of_others_stay(tmp_path):
    for name in ("2024", "20240101", "00000007", "checkpoint-00000009"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("mine")
    folder = of(tmp_path)
    assert folder.load(tmp_path / "scratch") is None
    for text in ("first", "second", "third"):
        where = folder.save(writes(text), tmp_path / "scratch")
    assert "/checkpoint-00000002-" in where
    for name in ("2024", "20240101", "00000007", "checkpoint-00000009"):
        assert (tmp_path / name / "file").read_text() == "mine"
    below = of(tmp_path / "2024")
    below.save(writes("below"), tmp_path / "scratch")
    assert weights(below.load(tmp_path / "scratch")) == "below"
    assert weights(folder.load(tmp_path / "scratch")) == "third"


def test_two_runs_in_one_folder(tmp_path):
    earlier, later = of(tmp_path / "run", "earlier", 1.0), of(tmp_path / "run", "later", 2.0)
    earlier.check()
    later.check()
    earlier.save(writes("earlier"), tmp_path / "scratch")
    with pytest.raises(
        CheckpointError, match=r"Run earlier, which has been running since .*, keeps its checkpoints .*too: "
    ):
        later.save(writes("later"), tmp_path / "scratch")
    for number in range(3):
        earlier.save(writes(f"earlier {number}"), tmp_path / "scratch")


def test_the_earlier_of_two_runs_goes_on_and_removes_nothing_of_the_other(tmp_path):
    earlier, later = of(tmp_path / "run", "earlier", 1.0), of(tmp_path / "run", "later", 2.0)
    earlier.check()
    later.check()
    where = later.save(writes("later"), tmp_path / "scratch")
    for number in range(3):
        earlier.save(writes(f"earlier {number}"), tmp_path / "scratch")
    assert Path(where.removeprefix("file://")).is_dir()
    again = of(tmp_path / "run", "earlier", 1.0, attempt=1)
    assert weights(again.load(tmp_path / "scratch")) == "earlier 2"
    with pytest.raises(CheckpointError, match="Run earlier, which has been running since"):
        later.save(writes("later"), tmp_path / "scratch")


def test_a_role_that_was_replaced_writes_no_more(tmp_path):
    first, second = of(tmp_path / "run", "run"), of(tmp_path / "run", "run", attempt=1)
    first.save(writes("first"), tmp_path / "scratch")
    second.save(writes("second"), tmp_path / "scratch")
    with pytest.raises(CheckpointError, match="has been started again elsewhere"):
        first.save(writes("third"), tmp_path / "scratch")


def test_a_run_that_starts_again_takes_its_own(tmp_path):
    of(tmp_path / "run", "before").save(writes("before"), tmp_path / "scratch")
    run = of(tmp_path / "run", "run", 1.0, attempt=1)
    assert run.load(tmp_path / "scratch", own=True) is None
    assert weights(run.load(tmp_path / "scratch")) == "before"
    own = run.save(writes("own"), tmp_path / "scratch")
    of(tmp_path / "run", "later", 2.0).save(writes("later"), tmp_path / "scratch")
    assert weights(run.load(tmp_path / "scratch", own=True)) == "own"
    assert weights(run.load(tmp_path / "scratch")) == "own"
    flip(Path(own.removeprefix("file://")) / "weights")
    with pytest.raises(CheckpointError, match="No checkpoint"):
        run.load(tmp_path / "scratch", own=True)


def test_one_that_its_writer_removes_meanwhile_is_not_damaged(kept, tmp_path, monkeypatch):
    root, (_, second) = kept
    reader, writer, fetch = of(root, attempt=1), of(root), CheckpointFolder._fetch

    def fetch_late(self, name, manifest, folder):
        if name == second:
            for text in ("third", "fourth"):
                writer.save(writes(text), tmp_path / "scratch of the writer")
        fetch(self, name, manifest, folder)

    monkeypatch.setattr(CheckpointFolder, "_fetch", fetch_late)
    loaded = reader.load(tmp_path / "scratch")
    assert (weights(loaded), loaded.notice) == ("fourth", "")


def test_all_is_synced_before_it_counts(tmp_path, monkeypatch):
    synced, sync, opened, open_ = [], os.fsync, {}, os.open

    def noted_open(path, *more):
        opened[number := open_(path, *more)] = str(path)
        return number

    def noted(number):
        synced.append((opened[number], sorted(tmp_path.glob("run/*.json"))))
        sync(number)

    monkeypatch.setattr(os, "open", noted_open)
    monkeypatch.setattr(os, "fsync", noted)
    where = of(tmp_path / "run").save(writes("x"), tmp_path / "scratch").removeprefix("file://")
    before = [path for path, manifests in synced if not manifests]
    after = [path for path, manifests in synced if manifests]
    run = str(tmp_path / "run")
    files = [f"{where}/inner/more", f"{where}/weights", f"{where}/inner", where, run, str(tmp_path)]
    assert [before[:-1], Path(before[-1]).suffix] == [files, ".partial"]
    assert after == [f"{where}.json", run, str(tmp_path)]


def test_a_kill_while_the_manifest_is_written_costs_no_other_checkpoint(kept, tmp_path, monkeypatch):
    root, names = kept
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _killed)
        with pytest.raises(KeyboardInterrupt):
            of(root).save(writes("third"), tmp_path / "scratch")
    assert [path.stem for path in sorted(root.glob("*.json"))] == list(names)
    loaded = of(root).load(tmp_path / "scratch")
    assert (weights(loaded), loaded.notice) == ("second", "")
    of(root).save(writes("next"), tmp_path / "scratch")
    assert list(root.rglob("*.partial")) == []


def _killed(*_paths):
    raise KeyboardInterrupt


def test_checkpoints_of_other_formats(kept, tmp_path, monkeypatch):
    old = tmp_path / "old" / "00000003"
    old.mkdir(parents=True)
    (old / "fit.pickle").write_bytes(b"")
    (old / "complete").write_text("1")
    with pytest.raises(CheckpointError, match="the format of dask-train before checksums, which is not read"):
        of(old.parent).load(tmp_path / "scratch")
    new = of(old.parent, attempt=1)
    assert new.load(tmp_path / "scratch", own=True) is None
    new.save(writes("new"), tmp_path / "scratch")
    assert weights(new.load(tmp_path / "scratch")) == "new"
    monkeypatch.setattr("dask_train.checkpoint.manifest.FORMAT", 3)
    of(kept[0]).save(writes("x"), tmp_path / "scratch")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="has format 3, and this dask-train reads up to 2"):
        of(kept[0]).load(tmp_path / "scratch")


def test_what_cannot_be_kept(tmp_path):
    with pytest.raises(CheckpointError, match="has written no file"):
        of(tmp_path).save(lambda folder: None, tmp_path / "scratch")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"can't be written at .*/file/run"):
        of(tmp_path / "file" / "run").save(writes("x"), tmp_path / "scratch")
    with pytest.raises(CheckpointError, match="can't be read at nosuch://bucket: ValueError"):
        of("nosuch://bucket").load(tmp_path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("{}/file", "is a file"),
        ("{}/file/run", "NotADirectoryError"),
        ("/proc/run", "/proc/run"),
        ("nosuch://bucket", "Protocol not known: nosuch"),
    ],
)
def test_where_none_can_be_kept_is_seen_before(tmp_path, url, why):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=f"can't be written at .*{why}"):
        of(url.format(tmp_path)).check()


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match=r"no space is left at .*/scratch/checkpoint-being-written.*own disk"):
        of(tmp_path).save(lambda folder: Path("/dev/full").write_text("x"), tmp_path / "scratch")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.put_file", full)
    with pytest.raises(CheckpointError, match=rf"can't be written at {tmp_path}/run: no space is left there"):
        of(tmp_path / "run").save(writes("x"), tmp_path / "scratch")
    with pytest.raises(FileNotFoundError, match="of the user"):
        of(tmp_path).save(lambda folder: (folder / "of the user").read_text(), tmp_path / "scratch")


def test_who_begins_late_begins_where_all_began(tmp_path):
    """Not where a faster role of the same start is by now; what is before the first batch counts."""
    scratch, covers = tmp_path / "scratch", [("this-run", "worker", [[0, 0]])]

    def this(attempt=0):
        return of(tmp_path / "run", run="this-run", attempt=attempt)

    of(tmp_path / "run", run="earlier").save(writes("earlier"), scratch)
    fast, late = this(), this()
    fast.check()
    fast.save(writes("before the first batch"), scratch)
    assert weights(late.load(scratch, begins=True)) == "before the first batch"
    fast.save(writes("one batch"), scratch, covers)
    fast.save(writes("two batches"), scratch, covers)
    assert late.load(scratch, begins=True) is None
    assert weights(late.load(scratch)) == "two batches"
    assert weights(this(attempt=1).load(scratch, begins=True)) == "two batches"
    again = this(attempt=1)
    again.check()
    again.save(writes("three batches"), scratch, covers)
    assert weights(this(attempt=1).load(scratch, begins=True)) == "two batches", "with which all began again"
    assert weights(this(attempt=2).load(scratch, begins=True)) == "three batches"
    again.save(writes("four batches"), scratch, covers)
    assert weights(this(attempt=1).load(scratch, begins=True)) == "four batches", "others may be replaced before"


def test_who_begins_late_does_not_begin_anew_where_the_others_have_resumed_another_run(tmp_path):
    scratch, earlier = tmp_path / "scratch", [("earlier", "worker", [[0, 0]])]
    of(tmp_path / "run", run="earlier").save(writes("earlier"), scratch, earlier)
    fast, late = (of(tmp_path / "run", run="this-run", resume=True) for _ in range(2))
    fast.check()
    assert weights(fast.load(scratch, begins=True)) == "earlier"
    for text in ("one batch", "two batches"):
        fast.save(writes(text), scratch, [*earlier, ("this-run", "worker", [[0, 0]])])
    assert weights(late.load(scratch, begins=True)) == "two batches", "what they began with is gone"
