"""Fits that go on where a rank is lost between any two calls: a thread each, through real shared memory."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.linear_model import sampling
from dask_train.linear_model.families import Logistic
from dask_train.linear_model.fitting import Task
from dask_train.linear_model.penalised_squares import PenalisedSquares
from dask_train.linear_model.rank_role import FOUND, LinearRole
from dask_train.linear_model.solving import SOLVERS, WITH_L1
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.step_loop import StepLoop
from dask_train.trainers.common.task import LoopTask

_found = importlib.util.spec_from_file_location(
    "losing_ranks", Path(__file__).parents[1] / "collectives" / "losing_ranks.py"
)
_module = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_module)
Course, Lost, RestartError, lived = _module.Course, _module.Lost, _module.RestartError, _module.lived

SIZE = 3
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(90, 3)) * [1.0, 3.0, 0.3] + [0.0, 5.0, 0.0]
Y = (X[:, 0] + RANDOM.logistic(size=90) > 0).astype(int)
TARGETS = np.column_stack([X @ [1, 2, 3], X @ [0, -1, 2]]) + RANDOM.normal(size=(90, 2))
CUT = [[slice(0, 20), slice(20, 35)], [slice(35, 60)], [slice(60, 90)]]  # partitions of each rank


class Session:
    """What a rank sees of its run."""

    num_rows, peers, meeting, size, world_size, _state_memory = len(X), {}, None, SIZE, SIZE, None

    def __init__(self, rank, attempt, run, folder, y, resumes):
        self.rank = self.world_rank = rank
        self.attempt, self._alone, self._meeting, self._y = attempt, attempt > 0, run, y
        self.scores, self.is_counted = [], True
        self._link = SimpleNamespace(spent=TimeSpent(), start_all_again=run.start_all_again, wanted_size=0)
        self._link.note = self._link.moved = lambda *_, **__: None
        self.partition_numbers = np.arange(len(CUT[rank])) + 10 * rank
        if folder is not None:
            self.scratch = folder.with_name(f"{folder.name}-scratch-{rank}-{attempt}-{resumes}")
            self.scratch.mkdir(parents=True)
            place = CheckpointPlace(url=str(folder), run=run_of(resumes), resume=resumes)
            self._checkpoints = CheckpointFolder(place, attempt)

    def partitions(self):
        yield from ((X[rows], self._y[rows]) for rows in CUT[self.rank])

    def _go_on_among(self, size):
        pass

    def _count_no_rows(self):
        self.is_counted = False

    def report(self, **scores):
        self.scores.append(scores)

    def should_stop(self):
        return False

    def checkpoints(self):
        return self._checkpoints

    def open_checkpoint(self, *, own):
        loaded = self._checkpoints.load(self.scratch, own=own)
        return loaded and loaded.folder


def run_of(resumes):
    return "next" if resumes else "this"


@contextmanager
def losing(course, *losses):
    """Ranks that are lost before so many calls of their first life; also counts the calls of each."""
    made, counts, left = ReplaceableGroup._made, [0] * SIZE, list(losses)

    def counted(group, *args, **kwargs):
        if not group._is_inside and not course.attempts[group.rank]:
            counts[group.rank] += 1
            if (group.rank, counts[group.rank]) in left:
                left.remove((group.rank, counts[group.rank]))
                raise Lost
        return made(group, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplaceableGroup, "_made", counted)
        yield counts
    assert not left, "all were lost that should be"


def fitted(in_threads, problem, *losses, y=Y, folder=None, resumes=False, meddle=lambda session: None):
    """What ranks come to; how often each began anew; the calls of each; why all were to start again."""
    course, reasons, counted = Course(SIZE), [], []
    kept = None if folder is None else Checkpoint(folder, every_steps=2, every_s=None)
    task = LoopTask(checkpoint=kept, run=run_of(resumes), resume=resumes)
    role = LinearRole(problem=problem, task=task, in_place=True)

    def life(rank):
        session = Session(rank, course.attempts[rank], course.of(rank), folder, y, resumes)
        meddle(session)
        try:
            outcome = role(session)
        except RestartError as restart:
            reasons.append(str(restart))
            course.end_all()
            return None
        counted.append(session.is_counted)
        return outcome and (outcome.header[FOUND], outcome.history, outcome.epoch, outcome.steps)

    with losing(course, *losses) as counts:
        found = lived(in_threads, course, life)
    return SimpleNamespace(found=found, attempts=course.attempts, counts=counts, reasons=reasons, counted=counted)


def logistic(solver, **settings):
    return Task(
        **{
            "family": Logistic(),
            "num_features": 3,
            "fit_intercept": True,
            "alpha": 0.05,
            "of_sum": False,
            "solver": solver,
            "tol": 1e-9,
            "max_iter": 12,
            "l1_ratio": 0.3 if solver in WITH_L1 else 0.0,
            "classes": np.array([0, 1]),
            "class_weight": "balanced",
            **settings,
        }
    )


def check_same(run, wanted):
    assert run.reasons == []
    (found, *course), *others = run.found
    (of_undisturbed, *undisturbed), *_ = wanted.found
    assert course == undisturbed, "history, epochs and steps"
    assert others == [None] * (SIZE - 1)
    for one, other in zip(listed(found), listed(of_undisturbed), strict=True):
        assert one.coef.tobytes() == other.coef.tobytes()
        assert (one.steps, one.converged, one.separable) == (other.steps, other.converged, other.separable)


def listed(found):
    return found if isinstance(found, list) else [found]


def moments(count, first, num):
    """That many calls before which a rank is lost, from one on."""
    return sorted({*np.linspace(first, count, min(num, count - first + 1)).astype(int).tolist()})


# Before the second call, the first border is not there yet: who is lost then is not replaced.
FIRST = 2


def lose_each(in_threads, problem, num, y=Y, folder=lambda: None, first=FIRST, share=1.0):
    """Lose the first rank and a follower at several calls, up to that share of all, and compare."""
    wanted = fitted(in_threads, problem, y=y, folder=folder())
    assert (wanted.attempts, wanted.reasons) == ([0] * SIZE, [])
    for rank in (0, 1):
        for call in moments(int(share * wanted.counts[rank]), first, num):
            run = fitted(in_threads, problem, (rank, call), y=y, folder=folder())
            check_same(run, wanted)
            assert run.attempts == [int(each == rank) for each in range(SIZE)], (rank, call)
            assert sorted(run.counted) == [False, True, True], "rows of who comes in its place count once"


@pytest.fixture
def samples(monkeypatch):
    """Let a sample of these few rows be fitted first."""
    monkeypatch.setattr(sampling, "FEWEST_ROWS", 10)
    monkeypatch.setattr(sampling, "_FOR_EACH", 0)
    monkeypatch.setattr(sampling, "_SHARE", 0.5)
    monkeypatch.setattr(sampling, "_LARGEST_SHARE", 1.0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_fit_goes_on_where_a_rank_is_lost(in_threads, solver):
    lose_each(in_threads, logistic(solver), 3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_fit_goes_on_that_has_begun_with_a_sample(in_threads, samples, solver):
    lose_each(in_threads, logistic(solver), 2)


@pytest.mark.nightly
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("begins", ["from 0", "from a sample"])
def test_a_fit_goes_on_where_a_rank_is_lost_before_any_call(in_threads, request, solver, begins):
    if begins == "from a sample":
        request.getfixturevalue("samples")
    lose_each(in_threads, logistic(solver), 10_000)


def squares(solver, max_iter, tol=1e-9):
    settings = {"fit_intercept": True, "num_features": 3, "tol": tol}
    return PenalisedSquares(l2=0.1, l1=0.1, solver=solver, max_iter=max_iter, **settings)


@pytest.mark.parametrize(("max_iter", "tol"), [(100, 0.1), (2, 1e-9)], ids=["converged", "not converged"])
@pytest.mark.parametrize("solver", WITH_L1)
def test_several_targets_go_on_with_the_one_in_hand(in_threads, solver, max_iter, tol):
    lose_each(in_threads, squares(solver, max_iter, tol), 4, y=TARGETS)


def test_who_comes_sums_the_hessian_matrix_of_squares_with_the_others_which_have_summed_it_before(in_threads):
    lose_each(in_threads, squares("admm", 3), 9, y=TARGETS[:, :1])  # once more behind the second step


@pytest.mark.nightly
@pytest.mark.parametrize("solver", WITH_L1)
def test_several_targets_go_on_where_a_rank_is_lost_before_any_call(in_threads, solver):
    lose_each(in_threads, squares(solver, 4), 10_000, y=TARGETS)


@pytest.mark.parametrize("solver", ["lbfgs", "admm"])
def test_a_fit_goes_on_that_keeps_checkpoints(in_threads, tmp_path, solver):
    folders = (tmp_path / str(number) for number in range(1000))
    # The more of them are written, the more calls there are: how many depends on how long each takes.
    lose_each(in_threads, logistic(solver), 3, folder=lambda: next(folders), first=FIRST + 1, share=0.6)


def test_a_fit_resumes_from_a_checkpoint_of_one_that_has_come_in_place_of_the_first_rank(in_threads, tmp_path):
    wanted = fitted(in_threads, logistic("lbfgs"))
    cut = fitted(in_threads, logistic("lbfgs", max_iter=7), (0, 20), folder=tmp_path / "kept")
    assert (cut.reasons, cut.attempts, cut.found[0][-1]) == ([], [1, 0, 0], 7)
    run = fitted(in_threads, logistic("lbfgs"), (0, 9), (1, 15), folder=tmp_path / "kept", resumes=True)
    check_same(run, wanted)
    assert run.attempts == [1, 1, 0]


@pytest.mark.parametrize("solver", ["lbfgs", "admm"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_fit_goes_on_where_a_rank_is_lost_before_it_has_mirrored_a_step(in_threads, monkeypatch, solver, rank):
    wanted, mirror, left = fitted(in_threads, logistic(solver)), StepLoop.mirror_step, [rank]

    def mirror_step(loop):
        if loop.position.steps == 4 and loop._agreement.rank in left:
            left.clear()
            raise Lost
        mirror(loop)

    monkeypatch.setattr(StepLoop, "mirror_step", mirror_step)
    run = fitted(in_threads, logistic(solver))
    check_same(run, wanted)
    assert run.attempts == [int(each == rank) for each in range(SIZE)]


def test_a_fit_goes_on_where_several_are_lost(in_threads):
    problem = logistic("lbfgs")
    wanted = fitted(in_threads, problem)
    run = fitted(in_threads, problem, (0, 20), (1, 20), (2, 31))
    check_same(run, wanted)
    assert run.attempts == [1, 1, 1]


def test_a_fit_begins_again_where_a_rank_is_lost_before_the_first_border(in_threads):
    reasons = fitted(in_threads, logistic("lbfgs"), (1, 1)).reasons
    assert any("lost before the first step" in reason for reason in reasons)


def test_a_fit_begins_again_where_who_comes_has_other_rows(in_threads):
    def meddle(session):
        if session.attempt:
            session.partition_numbers = session.partition_numbers + 1

    run = fitted(in_threads, logistic("lbfgs"), (1, 20), meddle=meddle)
    assert "the rows of a lost worker are shared out anew" in run.reasons  # those that heard it may have ended before
