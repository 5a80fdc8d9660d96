"""What a session does with checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.data.account import Account, read_account
from dask_train.data.segment import Segment
from dask_train.driver.history import History
from dask_train.process.messages import Accounted, WentOn
from dask_train.role.session import Session
from dask_train.run.messages import RoleProcess
from dask_train.run.state import RunPlan

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)


def test_checkpoints_need_a_place(session):
    for call in (lambda one: one.save_checkpoint(print), Session.load_checkpoint, Session.checkpoint_due):
        with pytest.raises(ValueError, match=r"no place for checkpoints. Pass it: train\(..., checkpoint="):
            call(session())


def test_a_damaged_checkpoint_is_told_of(tmp_path, capsys, session, fake_link):
    link = fake_link()
    one = session(
        link=link, checkpoint=CheckpointFolder(CheckpointPlace(url=str(tmp_path / "kept"), run="run")), scratch=tmp_path
    )
    for text in ("first", "second"):
        where = one.save_checkpoint(lambda folder, text=text: (folder / "state").write_text(text))
    (Path(where.removeprefix("file://")) / "state").write_text("sec0nd")
    assert (one.load_checkpoint() / "state").read_text() == "first"
    (notice,) = link.notices
    assert "its file state has other contents than were written" in notice
    assert capsys.readouterr().err == f"{notice}\n"


def test_the_best_checkpoint_is_known_by_what_was_reported_before_it(tmp_path, session, fake_link):
    def begun(best):
        place = CheckpointPlace(url=str(tmp_path / "kept"), run="run", best=best, mode="max")
        return session(link=fake_link(), checkpoint=CheckpointFolder(place), scratch=tmp_path)

    def kept(one, text):
        one.save_checkpoint(lambda folder: (folder / "state").write_text(text))

    one = begun("skill")
    assert one.load_checkpoint(best=True) is None
    for text, reports in (("a", [0.5]), ("b", [0.9, 0.7]), ("c", []), ("d", [0.6]), ("e", [0.2])):
        for skill in reports:
            one.report(skill=skill, loss=1.0)
        kept(one, text)
    assert (one.load_checkpoint(best=True) / "state").read_text() == "b"
    assert (one.load_checkpoint() / "state").read_text() == "e"
    assert one._link.notices == []
    one = begun("skil")
    for text in "fg":
        one.report(skill=1.0)
        kept(one, text)
    (notice,) = one._link.notices
    assert "the best one has the best 'skil', and worker 0 has reported only skill." in notice
    with pytest.raises(ValueError, match=r"Pass checkpoint=dt\.Checkpoint\(..., best='val_loss'\)"):
        begun(None).load_checkpoint(best=True)


def test_only_a_run_that_resumes_begins_with_the_checkpoint_of_another(tmp_path, session, fake_link):
    def begun(run, attempt=0, **how):
        folder = CheckpointFolder(CheckpointPlace(url=str(tmp_path / "kept"), run=run, **how), attempt)
        return session(link=fake_link(), checkpoint=folder, scratch=tmp_path, attempt=attempt)

    begun("first").save_checkpoint(lambda folder: (folder / "state").write_text("first"))
    assert begun("second").load_checkpoint() is None
    assert (begun("first", 1).load_checkpoint() / "state").read_text() == "first"
    assert (begun("second", resume=True).load_checkpoint() / "state").read_text() == "first"


def test_a_checkpoint_is_due_as_train_was_told(laid_out, tmp_path, session, fake_link):
    def due(**how):
        folder = CheckpointFolder(CheckpointPlace(url=str(tmp_path / "kept"), run="run", **how))
        one, found = session(link=fake_link(), checkpoint=folder, scratch=tmp_path, data=laid_out(Y)), []
        for _ in one.batches(epochs=2, batch_size=3):
            found.append(one.checkpoint_due())
            if found[-1]:
                one.save_checkpoint(lambda folder: (folder / "state").write_text("x"))
        return found

    assert due(every_steps=3) == [False, False, True] * 2 + [False] * 2
    assert due(every_s=1e-9) == [True] * 8
    assert due(every_s=1000.0) == due() == [False] * 8


def test_a_checkpoint_tells_what_is_in_it(laid_out, tmp_path, session, fake_link):
    def begun(run, **more):
        place = CheckpointPlace(url=str(tmp_path / "kept"), run=run, resume=True)
        link, folder = fake_link(), CheckpointFolder(place, more.get("attempt", 0))
        return session(link=link, checkpoint=folder, scratch=tmp_path, data=laid_out(Y), **more), link

    def kept(one, start, num):
        for number, _ in enumerate(one.batches(epochs=2, batch_size=3, start=start), 1):
            if number == num:
                one.save_checkpoint(lambda folder: (folder / "state").write_text("x"))
                break

    one, link = begun("first")
    kept(one, (0, 0), 2)
    assert link.covers == []
    one, link = begun("first", attempt=1)
    one.load_checkpoint()
    first = ["first", "worker", [[0, 0, 0, 3, 0, 2, 2, 0, 0, -1, 0]]]
    assert [list(cover) for cover in link.covers[0]] == [first]
    kept(one, (0, 2), 3)
    one, link = begun("second")
    one.load_checkpoint()
    more = ["first", "worker", [[0, 0, 0, 3, 2, 2, 2, 0, 0, -1, 0], [0, 0, 1, 3, 0, 1, 1, 0, 0, -1, 0]]]
    assert [list(cover) for cover in link.covers[0]] == [first, more]


@pytest.mark.parametrize("within", [False, True])
def test_passes_over_partitions_go_on_after_a_checkpoint(table_of, mapped, tmp_path, session, fake_link, within):
    """Two passes of three, then all start again; rank 0, which keeps the checkpoint, has 6 rows, and rank 1 has 4."""
    parts = [(Y[:6],), (Y[6:],)]
    table = table_of(parts, host_of_rank=np.zeros(2, np.int64))
    rows = mapped(table, {number: Segment(part) for number, part in enumerate(parts)})
    history = History(SimpleNamespace(id="run", plan=RunPlan(counts={"worker": 2}, training=frozenset({"worker"}))))
    for attempt in (0, 1):
        history._all_at_once.append({("worker", rank): attempt for rank in (0, 1)})
        for rank in (0, 1):
            file, link = os.memfd_create("account"), fake_link()
            folder = CheckpointFolder(CheckpointPlace(url=str(tmp_path / "kept"), run="run"), attempt)
            more = {"data": (table, rows), "account": Account(file), "checkpoint": folder, "scratch": tmp_path}
            one = session("worker", rank, link=link, attempt=attempt, **more)
            one.load_checkpoint()
            for pass_number in range(2 if attempt == 0 else 1 + within):
                for _ in one.partitions():
                    if attempt == rank == 0 and pass_number == 1 and within:
                        one.save_checkpoint(lambda folder: (folder / "state").write_text("x"))
            if attempt == rank == 0 and not within:
                one.save_checkpoint(lambda folder: (folder / "state").write_text("x"))
            of = RoleProcess("worker", rank, attempt)
            history.record(of, Accounted(account=read_account(file)))
            for covers in link.covers:
                history.record(of, WentOn(covers=covers))
    ledger = history.ledger({("worker", 0): 10})
    assert [(line.rank, line.turn, line.trained) for line in ledger.lines] == [
        (rank, turn, rows) for rank, rows in ((0, 6), (1, 4)) for turn in range(3)
    ]
    assert (ledger.trained, ledger.repeated, ledger.dropped) == (30, 10 if within else 0, 0)


def test_tools_are_told_where_checkpoints_go(tmp_path, session):
    with pytest.raises(ValueError, match="This run has no place for checkpoints"):
        _ = session().checkpoint_location
    place = CheckpointPlace(url=f"{tmp_path}/run")
    assert session(checkpoint=CheckpointFolder(place)).checkpoint_location == f"{tmp_path}/run"


def test_who_is_late_begins_with_the_checkpoint_of_all_also_where_no_batch_was_taken(tmp_path, session, fake_link):
    """Rows of partitions, and a user's own files, are in no account."""

    def begun(rank, attempt, alone=False, **more):
        place = CheckpointPlace(url=str(tmp_path / "kept"), run="run")
        more |= {"rank": rank, "attempt": attempt, "alone": alone, "scratch": tmp_path / f"{rank}"}
        return session(link=fake_link(), checkpoint=CheckpointFolder(place, attempt), **more)

    def keep(one, *texts):
        for text in texts:
            one.save_checkpoint(lambda folder, text=text: (folder / "state").write_text(text))

    def state(one):
        folder = one.load_checkpoint()
        return None if folder is None else (folder / "state").read_text()

    chief, late = begun(0, 0), begun(1, 0)
    assert state(chief) is None
    keep(chief, "a", "b")
    assert (state(late), state(late), state(chief)) == (None, "b", "b"), "from the second call on, all that is kept"
    chief = begun(0, 1)
    assert state(chief) == "b"
    keep(chief, "c", "d", "e")
    assert (state(begun(1, 1)), state(begun(1, 1, alone=True))) == ("b", "e")
    assert state(begun(0, 1, role="scorer", counts={"worker": 2, "scorer": 1})) == "e"
    assert state(begun(0, 1, counts={"worker": 1})) == "e", "there are no others"
    chief._meeting._group = object()  # a barrier
    keep(chief, "f", "g")
    assert len(list((tmp_path / "kept").glob("*.json"))) == 2, "what all have begun with is needed no more"
    late = begun(1, 1)
    late._meeting._group = object()
    assert state(late) == "g"


def test_roles_of_a_name_of_the_users_begin_with_the_same_checkpoint_and_others_look_at_it(
    laid_out, tmp_path, session, fake_link
):
    """Else rows of who is late would be no one's, and the ledger would count them."""
    roles = {"counts": {"learner": 2, "onlooker": 1}, "training": ("learner", "onlooker")}

    def begun(role, rank, **more):
        place = CheckpointPlace(url=str(tmp_path / "kept"), run="run")
        more |= {"scratch": tmp_path / f"{role}{rank}", **roles}
        return session(role, rank, link=fake_link(), checkpoint=CheckpointFolder(place), **more)

    fast = begun("learner", 0, data=laid_out(Y))
    assert fast.load_checkpoint() is None
    next(fast.batches(batch_size=3))
    fast.save_checkpoint(lambda folder: (folder / "state").write_text("a"))
    late = begun("learner", 1, data=laid_out(Y))
    assert (late.load_checkpoint(), late.load_checkpoint()) == (None, None)
    next(late.batches(batch_size=3))
    assert (late.load_checkpoint() / "state").read_text() == "a"
    assert (begun("learner", 1, alone=True).load_checkpoint() / "state").read_text() == "a"
    assert (begun("onlooker", 0).load_checkpoint() / "state").read_text() == "a"
