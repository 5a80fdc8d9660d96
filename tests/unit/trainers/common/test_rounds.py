"""The loop of kinds without epochs, with a session that is played: what is reported and kept, and when ranks end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.errors import CheckpointError
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.agreement import GroupAgreement
from dask_train.trainers.common.checkpointer import Checkpointer
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.rounds import RoundLoop
from dask_train.trainers.common.task import LoopTask


class Session:
    """What a loop sees of its run."""

    peers, num_rows, _state_memory = {}, 1000, None

    def __init__(self, folder, scratch, attempt, stops_after):
        self._folder, self.scratch, self.attempt = folder, scratch, attempt
        self._stops_after, self.scores, self.asked = stops_after, [], 0
        self._link = SimpleNamespace(spent=TimeSpent())

    def report(self, **scores):
        self.scores.append(scores)

    def should_stop(self):
        self.asked += 1
        return self.asked == self._stops_after

    def checkpoints(self):
        return self._folder

    def open_checkpoint(self, *, own):
        loaded = self._folder.load(self.scratch, own=own)
        return loaded and loaded.folder


class Powers:
    """A kind of model: each round doubles it."""

    def __init__(self, loop):
        self.loop, self.model, self.numbers = loop, 1, []
        loop.keep(RankState().shared("model", lambda: self.model, lambda value: setattr(self, "model", value)))

    def train(self, rounds, ends_after):
        for number in self.loop.rounds(rounds):
            self.numbers.append(number)
            self.model *= 2
            self.loop.round_done(loss=1 / self.model)
            if number + 1 == ends_after:
                break
        self.loop.rounds_done()
        return self


@pytest.fixture
def kept(monkeypatch):
    """The rounds after which checkpoints were taken."""
    taken, keep = [], Checkpointer.keep

    def noted(checkpointer, kept, **how):
        taken.append(kept.steps)
        keep(checkpointer, kept, **how)
        checkpointer.finish()  # none is due while one is written

    monkeypatch.setattr(Checkpointer, "keep", noted)
    return taken


@pytest.fixture
def trained(tmp_path, on_each_rank):
    """Trains on so many ranks; the model of each, its outcome and its session."""

    def train(rounds, *, size=1, every=2, attempt=0, stops_after=None, ends_after=None, best=None, **task):
        of_best = {"best": best, "mode": "min"} if best else {}
        policy = None if every is None else Checkpoint(tmp_path / "kept", every_steps=every, every_s=None, **of_best)
        whole = LoopTask(checkpoint=policy, **{"run": "this", **task})

        def take_part(rank, replicas):
            place = CheckpointPlace(url=str(tmp_path / "kept"), run=whole.run, resume=whole.resume, **of_best)
            scratch = tmp_path / f"scratch-{rank}"
            scratch.mkdir(exist_ok=True)
            session = Session(CheckpointFolder(place, attempt), scratch, attempt, stops_after if rank == 0 else None)
            model = Powers(RoundLoop(whole, session, GroupAgreement(replicas)))
            return model.train(rounds, ends_after), model.loop.outcome(), session

        return on_each_rank(take_part, size)

    return train


def test_the_first_rank_reports_each_round_and_returns_what_was_trained(trained):
    (first, outcome, told), (second, nothing, silent) = trained(3, size=2)
    assert told.scores == [{"round": 1, "loss": 0.5}, {"round": 2, "loss": 0.25}, {"round": 3, "loss": 0.125}]
    assert (outcome.header, outcome.steps, outcome.epoch) == ({"model": 8}, 3, [0, 1, 2])
    assert outcome.history == {"loss": [0.5, 0.25, 0.125]}
    assert outcome.applied == {}, "the session counts the partitions"
    assert (nothing, silent.scores, second.model, second.numbers) == (None, [], first.model, [0, 1, 2])


@pytest.mark.parametrize(
    ("how", "rounds"),
    [
        ({"every": 2}, [2, 4, 5]),
        ({"every": 5}, [5]),
        ({"every": 9}, [5]),
        ({"every": None}, []),
        ({"every": 2, "ends_after": 3}, [2, 3]),
        ({"every": 2, "stops_after": 3}, [2, 3]),
        ({"every": 2, "stops_after": 4}, [2, 4]),
    ],
    ids=["due", "due at the end", "at the end", "no checkpoints", "the library ends", "stopped", "stopped when due"],
)
@pytest.mark.parametrize("size", [1, 2])
def test_a_checkpoint_is_taken_when_it_is_due_and_after_the_last_round_however_it_ends(
    trained, kept, how, rounds, size
):
    trained(5, size=size, **how)
    assert kept == rounds


@pytest.mark.parametrize("size", [1, 2])
def test_all_ranks_stop_after_the_same_round_and_go_on_there(trained, kept, size):
    for model, *_ in trained(5, size=size, stops_after=3):
        assert (model.numbers, model.loop.stopped) == ([0, 1, 2], True)
    resumed = trained(5, size=3 - size, resume=True, run="other")
    for model, *_ in resumed:
        assert (model.numbers, model.model, model.loop.start.steps) == ([3, 4], 32, 3)
    assert resumed[0][1].history == {"loss": [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32]}
    taken = list(kept)
    ((again, outcome, session),) = trained(5, resume=True, run="third")
    assert (again.numbers, again.model, outcome.epoch, session.scores) == ([], 32, [0, 1, 2, 3, 4], [])
    assert kept == taken, "nothing is kept twice"
    ((more, *_),) = trained(6, resume=True, run="fourth")
    assert (more.numbers, more.model) == ([5], 64)


def test_a_second_attempt_goes_on_with_its_own_run_alone(trained):
    trained(4, stops_after=2)
    ((model, *_),) = trained(4, attempt=1, run="other")
    assert model.numbers == [0, 1, 2, 3]
    ((model, *_),) = trained(5, attempt=1, run="other")
    assert model.numbers == [4]


def test_a_checkpoint_that_was_begun_with_something_else_is_refused(trained):
    trained(2, configuration={"depth": 3})
    with pytest.raises(CheckpointError, match="depth was 3, and is 4"):
        trained(2, configuration={"depth": 4}, resume=True, run="other")


def test_the_best_checkpoint_is_known_by_the_score_of_its_round(trained):
    ((_, _, session),) = trained(5, every=2, best="loss")
    assert (session.checkpoints().best.score, session.checkpoints().best.of) == (1 / 32, "loss")


def test_a_score_that_the_rule_to_stop_by_looks_at_has_to_come(trained):
    trained(1, stop_names=frozenset({"round", "loss"}))
    with pytest.raises(ValueError, match="looks at epoch, and after the first round there are loss"):
        trained(1, stop_names=frozenset({"epoch", "round"}))
    with pytest.raises(ValueError, match=r"looks at los, and after the first round there are loss\. Did you mean"):
        trained(1, stop_names=frozenset({"los"}))
