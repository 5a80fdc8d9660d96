"""What a rank mirrors and gives at the borders of its loop."""

from __future__ import annotations

import importlib.util
import pickle
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.agreement import GroupAgreement
from dask_train.trainers.common.in_place import Borders
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.task import LoopTask

_found = importlib.util.spec_from_file_location(
    "losing_ranks", Path(__file__).parents[2] / "collectives" / "losing_ranks.py"
)
_module = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_module)
Course, Lost, RestartError = _module.Course, _module.Lost, _module.RestartError
joined, lived = _module.joined, _module.lived


@pytest.fixture
def rank():
    """A rank with a state, and a group that notes what it is told."""
    state = SimpleNamespace(weights=np.zeros(2), metrics=0, random=np.arange(3))
    parts = RankState().shared("weights", state.weights.copy, lambda _: None)
    parts.shared("metrics", lambda: state.metrics, lambda _: None, led=True)
    parts.own("random", state.random.copy, lambda _: None)
    group = SimpleNamespace(mirrors={}, number=None, give=None)
    group.mirror = lambda border, own: group.mirrors.update({border: own})
    group.border = lambda number, give: vars(group).update(number=number, give=give)
    return SimpleNamespace(state=state, group=group, borders=Borders(group, parts))


def mirrored(rank, border):
    own = rank.group.mirrors[border]
    return None if own is None else (pickle.loads(pickle.loads(own).parts)[0]["random"].tolist(), pickle.loads(own).led)


def test_what_is_alike_is_given_and_what_is_its_own_is_mirrored(rank):
    rank.borders.reached(0, {"history": 1}, {"position": 0})
    assert mirrored(rank, 0) == ([0, 1, 2], ({"metrics": 0}, {"history": 1}))
    rank.state.weights += 1
    shared, alike = rank.group.give()
    np.testing.assert_array_equal(shared["weights"], [1, 1])
    assert (list(shared), alike, rank.group.number) == (["weights"], {"position": 0}, 0)


def test_other_ranks_mirror_nothing_that_only_the_first_one_has(rank):
    rank.borders.reached(0, None, {})
    assert mirrored(rank, 0) == ([0, 1, 2], None)


def test_the_next_border_is_mirrored_before_it_is_reached_from_the_second_step_on(rank):
    rank.borders.reached(0, None, {})
    rank.state.random += 1
    rank.borders.mirror(1, None)
    assert mirrored(rank, 1) is None, "nobody knows yet whether it changes before the border"
    rank.borders.reached(1, None, {})
    assert mirrored(rank, 1) == ([1, 2, 3], None)
    rank.state.random += 1
    rank.borders.mirror(2, None)
    assert mirrored(rank, 2) == ([2, 3, 4], None)


@pytest.mark.parametrize("step", [1, 2])
def test_nothing_is_mirrored_any_more_once_it_has_changed_behind_the_mirror(rank, step):
    rank.borders.reached(0, None, {})
    for border in range(1, 4):
        rank.borders.mirror(border, None)
        if border == step:
            rank.state.random += 1  # as by an optimizer that draws random numbers
        rank.borders.reached(border, None, {})
        assert (mirrored(rank, border) is None) == (border >= step)


ROWS, BATCH_SIZE, EPOCHS, SIZE = 40, 8, 3, 3  # five batches an epoch


class Session:
    """What a loop sees of its run: batches are lists of row numbers."""

    num_rows, peers, attempt = ROWS, {}, 0

    def __init__(self, folder, scratch, rank, run):
        self.rank, self._folder, self.scratch = rank, folder, scratch
        self._link = SimpleNamespace(spent=TimeSpent(), start_all_again=run.start_all_again, wanted_size=0)

    def batches(self, *, epochs, batch_size, shuffle, seed, start):
        for epoch in range(start[0], epochs):
            order = np.random.default_rng([seed, epoch]).permutation(ROWS)
            for at in range(start[1] * batch_size if epoch == start[0] else 0, ROWS, batch_size):
                yield order[at : at + batch_size][self.rank :: SIZE]

    def report(self, **scores):
        pass

    def should_stop(self):
        return False

    def checkpoints(self):
        return self._folder


class Sums:
    """A kind of model: it adds up rows, over all in ``total``, of its own rank in ``own``."""

    def __init__(self, loop, dies):
        self.loop, self.total, self.own, self.counted, self._dies = loop, 0, 0, 0, dies
        state = RankState().shared("total", lambda: self.total, lambda value: setattr(self, "total", value))
        state.shared(
            "counted", lambda: self.counted, lambda value: setattr(self, "counted", value), within_epoch=True, led=True
        )
        state.own("own", lambda: self.own, lambda value: setattr(self, "own", value))
        loop.keep(state)

    def train(self, agreement):
        loop = self.loop
        for epoch in loop.epochs():
            self.counted = self.counted if loop.position.batch else 0
            for rows in loop.batches():
                self._look("step")
                self.own += int((rows * (epoch + 1)).sum())
                everyones = agreement.of_all(self.own)
                self.counted += loop.leads
                loop.mirror_step()
                self._look("sum")
                self.total = self.total * 31 % 1_000_003 + sum(agreement.of_all(self.own)) + max(everyones)
                self._look("border")
                loop.step_done()
            self._look("validation")
            scores = agreement.of_first({"total": self.total, "counted": self.counted})
            self._look("epoch")
            loop.epoch_done(**scores)
        outcome = loop.outcome(lambda: {"total": self.total})
        loop.settle()
        self._look("end")
        agreement.replaceable.confirm()
        return self.total, self.own, outcome and (outcome.history, outcome.epoch, outcome.steps, outcome.applied)

    def _look(self, point):
        if self._dies(point, self.loop.position.steps):
            self.loop.settle()  # a thread of a process would be gone with it
            raise Lost


def trained(in_threads, folder, *losses, hosts=None, **policy):
    """What ranks come to, lost at ``(rank, point, steps)``; how often each began; why all were to begin anew."""
    course, left, reasons = Course(SIZE, hosts=hosts), list(losses), []
    kept = Checkpoint(folder, every_steps=2, every_s=None, **policy)

    def life(rank):
        def dies(point, steps):
            if (rank, point, steps) not in left:
                return False
            left.remove((rank, point, steps))
            return True

        scratch = folder / f"scratch-{rank}-{course.attempts[rank]}"
        scratch.mkdir(parents=True)
        run = course.of(rank)
        place = CheckpointPlace(url=str(folder), run="this", best=kept.best, mode="max", resume=False)
        session = Session(CheckpointFolder(place, course.attempts[rank]), scratch, rank, run)
        try:
            with closing(joined(course, rank)) as group:
                agreement = GroupAgreement(group)
                task = LoopTask(epochs=EPOCHS, batch_size=BATCH_SIZE, checkpoint=kept, run="this")
                return Sums(TrainingLoop(task, session, agreement), dies).train(agreement)
        except RestartError as restart:
            reasons.append(str(restart))
            course.end_all()

    found = lived(in_threads, course, life)
    assert not left, "all were lost that should be"
    return found, course.attempts, reasons


@pytest.fixture(scope="module")
def whole(in_threads, tmp_path_factory):
    return trained(in_threads, tmp_path_factory.mktemp("whole"))[0]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("point", "steps"),
    [
        *[("step", steps) for steps in (0, 1, 6, 14)],
        *[("sum", steps) for steps in (0, 1, 4, 14)],
        *[("border", steps) for steps in (1, 6, 14)],
        *[(point, steps) for point in ("validation", "epoch") for steps in (5, 15)],
        ("end", 15),
    ],
)
def test_a_loop_goes_on_where_a_rank_is_lost(in_threads, tmp_path, whole, rank, point, steps):
    found, attempts, _ = trained(in_threads, tmp_path, (rank, point, steps))
    assert found == whole
    assert attempts == [int(each == rank) for each in range(SIZE)]


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("hosts", [[0, 0, 1], pytest.param([0, 1, 2], marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("point", "steps"), [("step", 6), ("sum", 4), ("border", 5), ("border", 6), ("validation", 5), ("epoch", 10)]
)
def test_a_loop_over_hosts_goes_on_where_a_rank_is_lost(in_threads, tmp_path, whole, hosts, rank, point, steps):
    """Sums of whole numbers have no order, so it comes to what one host does."""
    found, attempts, _ = trained(in_threads, tmp_path, (rank, point, steps), hosts=hosts)
    assert found == whole
    assert attempts == [int(each == rank) for each in range(SIZE)]


def test_a_loop_goes_on_where_several_are_lost(in_threads, tmp_path, whole):
    losses = [(0, "step", 6), (1, "sum", 6), (0, "validation", 10), (2, "epoch", 10), (1, "end", 15)]
    found, attempts, _ = trained(in_threads, tmp_path, *losses)
    assert (found, attempts) == (whole, [2, 2, 1])


@pytest.mark.parametrize(
    ("loss", "policy", "why"),
    [
        ((1, "border", 0), {}, "what was worker 1's own is not in its mirror"),  # not proven to stay before a border
        ((0, "step", 6), {"best": "total", "mode": "max"}, "which knew the best checkpoint"),
    ],
)
def test_all_are_to_start_again_where_there_is_a_doubt(in_threads, tmp_path, loss, policy, why):
    *_, reasons = trained(in_threads, tmp_path, loss, **policy)
    assert any(why in reason for reason in reasons)


def test_one_that_takes_a_place_has_its_mirror_already_and_goes_on_mirroring(rank):
    rank.borders.begin(4, {"position": 4}, is_proven=True)
    assert (rank.group.mirrors, rank.group.number, rank.group.give()[1]) == ({}, 4, {"position": 4})
    rank.borders.mirror(5, None)
    assert mirrored(rank, 5) == ([0, 1, 2], None)


def test_nothing_is_mirrored_where_that_is_refused(rank):
    rank.borders.reached(0, None, {})
    rank.borders.refuse()
    rank.borders.mirror(1, None)
    rank.borders.reached(1, None, {})
    assert rank.group.mirrors[1] is None
