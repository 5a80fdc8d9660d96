"""States of rounds in memory: who writes, when, which one is taken, and from where a loop continues."""

from __future__ import annotations

import os
import secrets
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.state_memory import StateMemory, new_files
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.agreement import SessionAgreement
from dask_train.trainers.common.checkpointer import Checkpointer
from dask_train.trainers.common.kept_rounds import SHARE, KeptRounds
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.rounds import RoundLoop
from dask_train.trainers.common.task import LoopTask


class Session:
    """What a loop sees of its run, on one of several ranks that are threads."""

    peers, num_rows = {}, 1000

    def __init__(self, replicas, attempt=0, folder=None, scratch=None):
        self._replicas, self.world_rank, self.world_size = replicas, replicas.rank, replicas.size
        self.attempt, self._folder, self.scratch = attempt, folder, scratch
        self.scores, self.notices = [], []
        self._link = SimpleNamespace(spent=TimeSpent())

    def all_reduce(self, array):
        channel = self._replicas.channel([array.shape], array.dtype)
        (found,) = self._replicas.sum(channel, [array])
        return found.copy()

    def all_gather(self, rows):
        (found,) = self._replicas.gather(("rows", rows.dtype.str), [rows])
        return np.array(found)

    def report(self, **scores):
        self.scores.append(scores)

    def notice(self, text):
        self.notices.append(text)

    def should_stop(self):
        return False

    def checkpoints(self):
        return self._folder

    def open_checkpoint(self, *, own):
        loaded = self._folder.load(self.scratch, own=own)
        return loaded and loaded.folder


@pytest.fixture
def memory():
    """Makes the files of one Dask worker after the other."""
    made = []

    def make():
        made.append(new_files())
        return StateMemory(made[-1])

    yield make
    for descriptor in [descriptor for files in made for descriptor in files]:
        os.close(descriptor)


def test_one_is_due_when_the_last_one_has_cost_no_more_than_a_part_of_the_time_since():
    now = [0.0]
    alone = SimpleNamespace(rank=0, size=1)
    kept = KeptRounds(SimpleNamespace(write=lambda *_: None), alone, print, clock=lambda: now[0])
    assert kept.due(), "the first round's costs nearly nothing"

    def take():
        now[0] += 0.25

    kept.write(1, take)
    now[0] += 0.25 / SHARE - 1
    assert not kept.due()
    now[0] += 1.01
    assert kept.due()


def test_one_rank_of_each_dask_worker_writes_what_the_first_one_has(on_each_rank, memory):
    of_dask_worker = [memory(), memory()]

    def written(rank, replicas):
        mine = of_dask_worker[rank % 2]
        kept = KeptRounds(mine, SessionAgreement(Session(replicas)), print)
        before = kept.last()
        writes, write = [], mine.write
        mine = SimpleNamespace(write=lambda *what: (writes.append(rank), write(*what)))
        kept._memory = mine
        kept.write(7, lambda: f"of {rank}")
        return before, writes

    found = on_each_rank(written, 4)
    assert found == [(None, [0]), (None, [1]), (None, []), (None, [])]
    of_first = KeptRounds(
        of_dask_worker[1], SimpleNamespace(rank=0, of_all=lambda v: [v], of_rank=lambda _, v: v), print
    )
    assert of_first.last() == "of 0"


def test_the_last_one_of_all_is_taken(on_each_rank, memory):
    steps_by_rank = [3, 5, 0]
    memories = [memory() for _ in steps_by_rank]

    def found(rank, replicas):
        if steps_by_rank[rank]:
            only = KeptRounds(memories[rank], SimpleNamespace(rank=0), print)
            only._writes = True
            only.write(steps_by_rank[rank], lambda: f"after {steps_by_rank[rank]}")
        return KeptRounds(memories[rank], SessionAgreement(Session(replicas)), print).last()

    assert on_each_rank(found, 3) == ["after 5"] * 3


def test_without_memory_training_continues_with_a_notice():
    def full(*_):
        raise OSError(28, "No space left on device")

    told = []
    kept = KeptRounds(SimpleNamespace(write=full), SimpleNamespace(rank=0), told.append)
    kept._writes = True
    kept.write(4, lambda: None)
    kept.write(5, lambda: None)
    (text,) = told
    assert text.startswith("The state after step 4 could not be kept in memory: [Errno 28] No space")


def test_what_can_not_be_pickled_is_not_kept_and_training_continues_with_a_notice(on_each_rank, memory):
    of_dask_worker = [memory(), memory()]

    def written(rank, replicas):
        told = []
        kept = KeptRounds(of_dask_worker[rank], SessionAgreement(Session(replicas)), told.append)
        kept.last()
        kept.write(3, lambda: "fine")
        kept.write(4, lambda: iter([]) if rank else (each for each in ()))
        return told, kept.due() if rank == 0 else None

    (told, due), others = on_each_rank(written, 2)
    assert told[0].startswith("The state of a round can't be kept in memory (TypeError: cannot pickle 'generator'")
    assert (len(told), due, others) == (1, False, ([], None))
    assert [each.read()[0] for each in of_dask_worker] == [3, 3]


class Powers:
    """A kind of model: each round doubles it."""

    def __init__(self, loop):
        self.loop, self.model, self.numbers = loop, 1, []
        loop.keep(RankState().shared("model", lambda: self.model, lambda value: setattr(self, "model", value)))

    def train(self, rounds):
        for number in self.loop.rounds(rounds):
            self.numbers.append(number)
            self.model *= 2
            self.loop.round_done(loss=1 / self.model)
        self.loop.rounds_done()
        return self


@pytest.fixture
def trained(tmp_path, on_each_rank, memory, monkeypatch):
    """Trains on ranks that share memory: the models of all, their sessions and outcomes; and rounds of checkpoints."""
    monkeypatch.setattr(KeptRounds, "due", lambda _: True)
    shared, written, keep = memory(), [], Checkpointer.keep

    def noted(checkpointer, kept, **how):
        written.append(kept.steps)
        if how.pop("fails", None) or kept.steps not in lost:
            keep(checkpointer, kept, **how)
            checkpointer.finish()
        else:
            checkpointer.steps = kept.steps

    monkeypatch.setattr(Checkpointer, "keep", noted)
    lost, run = set(), secrets.token_hex(4)

    def train(rounds, *, size=2, attempt=0, every=None, best=None, never_written=()):
        lost.clear()
        lost.update(never_written)
        of_best = {"best": best, "mode": "min"} if best else {}
        policy = None if every is None else Checkpoint(tmp_path / "kept", every_steps=every, every_s=None, **of_best)
        task = LoopTask(run=run, checkpoint=policy)

        def take_part(rank, replicas):
            place = CheckpointPlace(url=str(tmp_path / "kept"), run=run, resume=False, **of_best)
            scratch = tmp_path / f"scratch-{rank}"
            scratch.mkdir(exist_ok=True)
            session = Session(replicas, attempt, CheckpointFolder(place, attempt), scratch)
            session._state_memory = shared
            model = Powers(RoundLoop(task, session, SessionAgreement(session))).train(rounds)
            return model, model.loop.outcome(), session

        return on_each_rank(take_part, size), list(written)

    return train


@pytest.mark.parametrize("size", [1, 2])
def test_all_continue_from_the_last_round_in_memory(trained, size):
    (first, *_), _ = trained(3, size=size)
    assert first[2].notices == []
    found, _ = trained(5, size=size, attempt=1)
    assert [(model.numbers, model.model) for model, _, _ in found] == [([3, 4], 32)] * size
    _, outcome, session = found[0]
    assert (outcome.history, outcome.epoch, outcome.steps) == (
        {"loss": [0.5**n for n in range(1, 6)]},
        [0, 1, 2, 3, 4],
        5,
    )
    assert session.notices == ["All workers have started again, from round 3, whose state was kept in memory."]
    assert [other.notices for _, _, other in found[1:]] == [[]] * (size - 1)


def test_without_a_state_all_begin_anew(trained):
    found, _ = trained(2, attempt=1)
    assert [model.numbers for model, _, _ in found] == [[0, 1]] * 2
    assert found[0][2].notices == [
        "All workers have started again, from the beginning: no Dask worker of theirs has a state in memory."
    ]


def test_a_checkpoint_that_is_as_late_is_taken(trained):
    trained(4, every=4)
    found, written = trained(6, every=4, attempt=1)
    assert found[0][0].numbers == [4, 5]
    assert found[0][2].notices == ["All workers have started again, from the checkpoint of round 4."]
    assert written == [4, 6]


def test_a_checkpoint_that_was_not_written_is_made_up_for(trained):
    """The one of round 4, the last, was taken, and its worker was lost before it was written."""
    trained(4, every=2, never_written={4})
    found, written = trained(4, every=2, attempt=1)
    assert (found[0][0].numbers, found[0][0].model) == ([], 16)
    assert written == [2, 4, 4]


def test_where_one_that_may_be_the_best_was_not_written_its_rounds_are_taken_again(trained):
    trained(5, every=2, best="loss", never_written={4, 5})
    found, written = trained(6, every=2, best="loss", attempt=1)
    assert found[0][0].numbers == [2, 3, 4, 5]
    (notice,) = found[0][2].notices
    assert notice.endswith(
        "from the checkpoint of round 2: a later one, which may be the best, was not written in time."
    )
    assert written == [2, 4, 5, 4, 6]
