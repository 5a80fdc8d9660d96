"""Solvers that are stopped between two steps, and resume: the steps that are left are those of one that was not."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.checkpoint.stored import store, stored
from dask_train.linear_model import solving
from dask_train.linear_model.families import Logistic
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.penalised_squares import PenalisedSquares
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.run_steps import RunSteps
from dask_train.linear_model.sampling import Sample
from dask_train.linear_model.solving import FIRST_ORDER, SOLVERS, WITH_L1, solved

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3)) * [1.0, 3.0, 0.3]
Y = (X[:, 0] + RANDOM.logistic(size=60) > 0).astype(float)
CUT = [slice(0, 25), slice(25, None)]


class Loop:
    """What the steps of a solver see of the loop of a rank: it stops after so many steps."""

    def __init__(self, kept, stops_after, stopped):
        self.stopped, self._kept, self._stops_after, self.losses, self.states = stopped, kept, stops_after, [], []

    def keep(self, state):
        self._state = state
        if self._kept is not None:
            shared, own = self._kept
            state.restore_shared(shared, within_epoch=False)
            state.restore_own(own, within_epoch=False)

    def step_done(self, loss):
        self.losses.append(loss)
        self.stopped = len(self.losses) == self._stops_after
        return self.stopped

    def state(self):
        return self._state.take_shared(), self._state.take_own()


@pytest.fixture
def run(ranks_of, tmp_path):
    """Runs a problem on two ranks; what each has found, the losses of the first one, and what a checkpoint has."""

    def run(problem, solver, *, kept=None, stops_after=None, stopped=False):
        loops = [Loop(None if kept is None else kept[rank], stops_after, stopped) for rank in range(2)]

        def task(rank):
            rank.steps = RunSteps(loops[rank.world_rank], has_own=solver == "admm", keeps=True)
            return problem(rank)

        found = ranks_of([[(X[at], Y[at])] for at in CUT], task)
        states = [loop.state() for loop in loops]
        again = []
        for rank, (_, own) in enumerate(states):
            folder = tmp_path / f"{len(list(tmp_path.iterdir()))}-{rank}"
            folder.mkdir()
            store(folder, {"shared": states[0][0], "own": own})  # rank 0 writes what all share
            there = stored(folder)
            again.append((there["shared"], there["own"]))
        return found, loops[0].losses, again

    return run


def logistic(solver, *, max_iter=2000, samples=False, first=0):
    """A problem for ranks: a logistic regression, perhaps with a sample that is fitted first, of every second row."""

    def problem(ranks):
        parts = [rows_of(*part) for part in ranks.partitions()]
        l1 = 0.02 if solver in WITH_L1 else 0.0
        known = {"fit_intercept": True, "penalty": 0.05, "l1": l1, "total": 60.0}
        objective = Objective(ranks, parts, Logistic(), 3, **known)
        some = [(x[first::2], y[first::2], weight[first::2]) for x, y, weight in parts]
        sample = Sample(some, 31.0 - 2 * first, 1e-2) if samples else None
        return solved(ranks, objective, solver, np.zeros(4), 1e-9, max_iter, sample)

    return problem


@pytest.mark.parametrize("samples", [False, True], ids=["from 0", "from a sample"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_what_was_stopped_after_any_step_comes_to_the_same_bits(run, solver, samples):
    problem = logistic(solver, samples=samples)
    whole, losses, _ = run(problem, solver)
    (coef, steps, converged), other = whole
    assert converged
    assert len(losses) == steps > 1
    assert other[0].tobytes() == coef.tobytes()
    for stops_after in sorted({1, 2, steps // 2, steps - 1} & set(range(1, steps))):
        ((_, taken, ended), _), before, kept = run(problem, solver, stops_after=stops_after)
        assert (taken, ended) == (stops_after, False)
        (found, _), after, _ = run(problem, solver, kept=kept)
        assert (found[0].tobytes(), found[1:]) == (coef.tobytes(), (steps, True))
        assert [*before, *after] == losses


@pytest.mark.parametrize("solver", sorted({*FIRST_ORDER} - {"admm"}))
def test_what_resumes_with_another_sample_has_the_coordinates_of_its_state(run, solver):
    problem = logistic(solver, samples=True)
    (whole, _), losses, _ = run(problem, solver)
    _, before, kept = run(problem, solver, stops_after=2)
    (found, _), after, _ = run(logistic(solver, samples=True, first=1), solver, kept=kept)
    assert (found[0].tobytes(), found[1:]) == (whole[0].tobytes(), whole[1:])
    assert [*before, *after] == losses


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_is_to_stop_at_the_step_that_it_resumes_at_takes_none(run, solver):
    ((coef, *_), _), _, kept = run(logistic(solver), solver, stops_after=3)
    (found, _), losses, _ = run(logistic(solver), solver, kept=kept, stopped=True)
    assert (found[0].tobytes(), found[1:], losses) == (coef.tobytes(), (3, False), [])


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_has_ended_is_not_solved_again(run, solver, monkeypatch):
    problem = logistic(solver)
    (found, _), _, kept = run(problem, solver)
    monkeypatch.setattr(solving, "_solved", None)
    (again, _), losses, _ = run(problem, solver, kept=kept)
    assert (again[0].tobytes(), again[1:], losses) == (found[0].tobytes(), found[1:], [])


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_had_too_few_steps_takes_more(run, solver):
    whole, losses, _ = run(logistic(solver), solver)
    ((_, taken, ended), _), before, kept = run(logistic(solver, max_iter=2), solver)
    assert (taken, ended) == (2, False)
    (found, _), after, _ = run(logistic(solver), solver, kept=kept)
    assert (found[0].tobytes(), found[1:]) == (whole[0][0].tobytes(), whole[0][1:])
    assert [*before, *after] == losses
    (fewer, _), none, _ = run(logistic(solver, max_iter=1), solver, kept=kept)
    assert (fewer[1:], none) == ((2, False), []), "no fewer steps than were taken"


@pytest.mark.parametrize("solver", WITH_L1)
def test_several_targets_resume_with_the_one_that_was_in_hand(run, solver, monkeypatch):
    targets = np.column_stack([X @ [1, 2, 3], X @ [0, -1, 2]]) + RANDOM.normal(size=(60, 2))
    monkeypatch.setitem(globals(), "Y", targets)
    settings = {"fit_intercept": True, "num_features": 3, "solver": solver, "tol": 1e-9, "max_iter": 1000}
    problem = PenalisedSquares(l2=0.1, l1=0.1, **settings)
    (whole, _), losses, _ = run(problem, solver)
    for stops_after in (1, whole[0].steps + 1):
        (cut, _), before, kept = run(problem, solver, stops_after=stops_after)
        ends_first = stops_after > whole[0].steps
        assert [each.stopped for each in cut][: 1 + ends_first] == [not ends_first, True][: 1 + ends_first]
        (found, _), after, _ = run(problem, solver, kept=kept)
        assert [each.coef.tobytes() for each in found] == [each.coef.tobytes() for each in whole]
        assert [each.steps for each in found] == [each.steps for each in whole]
        assert [*before, *after] == losses
