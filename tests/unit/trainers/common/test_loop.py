"""The training loop with a session that is played: what is reported, kept and resumed, and when all ranks end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.errors import CheckpointError
from dask_train.role.time_spent import TimeSpent
from dask_train.run.stopping import Patience, Threshold
from dask_train.trainers.common import loop as loop_module
from dask_train.trainers.common.agreement import GroupAgreement
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.sync_point import Position
from dask_train.trainers.common.task import LoopTask

ROWS, BATCH_SIZE = 50, 8  # seven batches an epoch


class Session:
    """What a loop sees of its run: batches are lists of row numbers."""

    num_rows, peers, attempt = ROWS, {}, 0

    def __init__(self, folder, scratch, rank, size, stops_after):
        self._folder, self.scratch, self.rank, self.size = folder, scratch, rank, size
        self._asked, self._stops_after, self.scores = 0, stops_after, []
        self._link = SimpleNamespace(spent=TimeSpent())

    def batches(self, *, epochs, batch_size, shuffle, seed, start):
        for epoch in range(start[0], epochs):
            order = np.random.default_rng([seed, epoch]).permutation(ROWS) if shuffle else np.arange(ROWS)
            for at in range(start[1] * batch_size if epoch == start[0] else 0, ROWS, batch_size):
                yield order[at : at + batch_size][self.rank :: self.size]

    def report(self, **scores):
        self.scores.append(scores)

    def should_stop(self):
        self._asked += 1
        return self._asked == self._stops_after

    def checkpoints(self):
        return self._folder

    def open_checkpoint(self, *, own):
        loaded = self._folder.load(self.scratch, own=own)
        return loaded and loaded.folder


class Sums:
    """A kind of model: it adds up rows, over all in ``total``, of its own rank in ``own``."""

    more_scores: ClassVar[dict[str, Any]] = {}

    def __init__(self, loop, parts, anew):
        self.loop, self.total, self.own, self.counted, self.epochs = loop, 0, 0, 0, []
        state = RankState().shared(parts[0], lambda: self.total, lambda value: setattr(self, "total", value))
        state.shared("counted", lambda: self.counted, lambda value: setattr(self, "counted", value), within_epoch=True)
        state.own(parts[1], lambda: self.own, lambda value: setattr(self, "own", value), may_begin_anew=anew)
        loop.keep(state)

    def train(self, all_of):
        for epoch in self.loop.epochs():
            self.epochs.append(epoch)
            self.counted = self.counted if self.loop.position.batch else 0
            for rows in self.loop.batches():
                mine = int((rows * (epoch + 1)).sum())
                self.own += mine
                self.total = self.total * 31 % 1_000_003 + all_of(mine)
                self.counted += 1
                self.loop.step_done(total=self.total)
            if self.loop.epoch_done(total=self.total, counted=self.counted, **self.more_scores):
                break
        return self


@pytest.fixture
def trained(tmp_path, on_each_rank):
    """Trains on so many ranks; the model of each, its outcome and its session."""

    def train(name, *, size=1, epochs=3, stops_after=None, parts=("total", "own"), best=None, anew=False, **task):
        task = {"run": "this", "resume": False, **task}
        of_best = {"best": best, "mode": "max", "restore_best": True} if best else {}
        kept = Checkpoint(tmp_path / name, every_steps=3, every_s=None, **of_best)
        whole = LoopTask(epochs=epochs, batch_size=BATCH_SIZE, checkpoint=kept, **task)

        def take_part(rank, replicas):
            place = CheckpointPlace(url=str(tmp_path / name), run=whole.run, best=best, mode="max", resume=whole.resume)
            scratch = tmp_path / f"scratch-{name}-{whole.run}-{rank}"
            scratch.mkdir(exist_ok=True)
            session = Session(CheckpointFolder(place, 0), scratch, rank, size, stops_after)
            agreement = GroupAgreement(replicas)
            model = Sums(TrainingLoop(whole, session, agreement), parts, anew)
            model.train(lambda mine: sum(agreement.of_all(mine)))
            return model, model.loop.outcome(lambda: {"total": model.total}), session

        return on_each_rank(take_part, size)

    return train


def test_scores_of_numpy_are_plain_numbers_in_the_history(trained, monkeypatch):
    monkeypatch.setattr(Sums, "more_scores", {"auc": np.float32(0.5), "hits": np.int64(3), "curve": np.ones(2)})
    ((_, outcome, _),) = trained("numpy", epochs=1)
    assert [type(outcome.history[name][0]) for name in ("auc", "hits", "curve")] == [float, int, np.ndarray]


@pytest.mark.parametrize("stops_after", [4, 7, 9])
@pytest.mark.parametrize("size", [1, 2])
def test_what_was_stopped_goes_on_to_the_same_end(trained, size, stops_after):
    whole, cut = trained("whole", size=size), trained("cut", size=size, stops_after=stops_after)
    assert [model.loop.position for model, *_ in cut] == [Position(*divmod(stops_after, 7), stops_after)] * size
    resumed = trained("cut", size=size, resume=True, run="other")
    for (then, outcome, _), (now, resumed_outcome, _) in zip(whole, resumed, strict=True):
        assert (now.total, now.own) == (then.total, then.own)
        if outcome is not None:
            assert resumed_outcome.history == outcome.history, "without that of the epoch that was cut short"
            assert resumed_outcome.steps == outcome.steps == 21
            batches = [*resumed_outcome.read[0][2][0], *resumed_outcome.applied[0]]
            assert sum(some.done for some in batches) == 21, "each batch once"
    assert [outcome for _, outcome, _ in resumed[1:]] == [None] * (size - 1)


def test_with_another_number_of_ranks_each_keeps_what_it_has_where_it_may(trained):
    (whole, *_), cut = trained("whole")[0], trained("cut", size=2, stops_after=9)
    assert cut[0][0].own
    ((resumed, *_),) = trained("cut", resume=True, run="other", anew=True)
    assert resumed.total == whole.total
    assert resumed.own < whole.own


def test_with_another_number_of_ranks_a_checkpoint_is_refused_where_each_needs_what_it_had(trained):
    trained("cut", size=2, stops_after=9)
    with pytest.raises(CheckpointError, match=r"was made by 2 workers, and this run has 1: .* \(own\)"):
        trained("cut", resume=True, run="other")


def test_the_first_rank_reports_and_the_others_do_not(trained, monkeypatch):
    monkeypatch.setattr(loop_module, "REPORT_INTERVAL_S", 0.0)
    (model, _, first), (_, _, second) = trained("told", size=2, epochs=1)
    assert second.scores == []
    assert [score.get("step") for score in first.scores] == [1, 2, 3, 4, 5, 6, None]
    assert first.scores[-1] == {"epoch": 0, "num_steps": 7, "total": model.total, "counted": 7}


def test_scores_between_steps_are_not_reported_more_often_than_they_can_be_read(trained):
    ((_, _, session),) = trained("told", epochs=2)
    assert [score["epoch"] for score in session.scores] == [0, 1]


def test_a_score_that_the_rule_to_stop_by_looks_at_has_to_come(trained):
    with pytest.raises(ValueError, match="stop looks at totals, and after the first epoch there are total, counted"):
        trained("told", stop_names=frozenset({"totals"}))


PATIENCE = {"epoch_rules": (Patience("counted", 2),)}  # it is 7 in each epoch


@pytest.mark.parametrize("size", [1, 2])
def test_all_ranks_end_with_the_epoch_in_which_patience_does(trained, size):
    told = trained("told", size=size, epochs=9, **PATIENCE)
    assert [model.epochs for model, *_ in told] == [[0, 1, 2]] * size
    outcome = told[0][1]
    assert outcome.stop_reason == "counted was not better than 7 in 2 reports"
    assert (outcome.epoch, outcome.steps) == ([0, 1, 2], 21)


def test_patience_is_that_of_a_run_that_was_not_interrupted(trained):
    ((whole, outcome, _),) = trained("whole", epochs=9, **PATIENCE)
    trained("cut", epochs=2)
    ((resumed, second, _),) = trained("cut", epochs=9, resume=True, run="other", **PATIENCE)
    assert (resumed.epochs, resumed.total) == ([2], whole.total)
    assert second.stop_reason == outcome.stop_reason
    ((again, third, _),) = trained("cut", epochs=9, resume=True, run="third", **PATIENCE)
    assert (again.epochs, again.total) == ([], whole.total)
    assert third.stop_reason == outcome.stop_reason


@pytest.mark.parametrize(
    ("rule", "reason"), [("epoch >= 1", "epoch is 1 >= 1"), ("counted > 6 and epoch > 0", "epoch is 1")]
)
def test_a_threshold_ends_with_the_epoch_whose_scores_meet_it(trained, rule, reason):
    ((model, outcome, _),) = trained("told", epochs=9, epoch_rules=(Threshold(rule),))
    assert model.epochs == [0, 1]
    assert reason in outcome.stop_reason


def test_a_score_that_patience_looks_at_has_to_come(trained):
    with pytest.raises(ValueError, match="stop looks at count, and after the first epoch there are total, counted"):
        trained("told", epoch_rules=(Patience("count", 2),))


def test_other_arguments_are_no_way_to_go_on(trained):
    trained("kept", epochs=1, configuration={"clusters": 3})
    with pytest.raises(CheckpointError, match="clusters was 3, and is 4"):
        trained("kept", configuration={"clusters": 4}, resume=True, run="other")


def test_what_differs_in_the_configuration_is_told_before_the_order_of_rows(trained):
    trained("kept", epochs=1, configuration={"batches": 3}, seed=1)
    with pytest.raises(CheckpointError, match="batches was 3, and is 4"):
        trained("kept", configuration={"batches": 4}, seed=2, resume=True, run="other")


def test_a_checkpoint_of_another_kind_of_model_is_refused(trained):
    trained("kept", epochs=1)
    with pytest.raises(CheckpointError, match="it holds counted, total, own, and this one has counted, weights, own"):
        trained("kept", parts=("weights", "own"), resume=True, run="other")


def test_training_ends_with_the_best_state_where_that_is_asked_for(trained):
    ((model, outcome, _),) = trained("best", best="total", epochs=4)
    totals = outcome.history["total"]
    assert (model.total, outcome.best_epoch) == (max(totals), int(np.argmax(totals)))
    assert outcome.best_epoch < 3, "else it tells nothing"


@pytest.mark.parametrize(
    ("forgotten", "told"),
    [("step_done", r"step_done\(\) is called once"), ("epoch_done", r"epoch_done\(\) is called")],
)
def test_a_loop_that_leaves_out_a_sync_point_is_told(trained, monkeypatch, forgotten, told):
    monkeypatch.setattr(TrainingLoop, forgotten, lambda self, **scores: False)
    with pytest.raises(AssertionError, match=told):
        trained("wrong")
