"""The solvers by name, and one way to call all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dask_train.linear_model.admm import admm
from dask_train.linear_model.composite import newton_cd, proximal_gradient
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Evaluate, Ranks, led
from dask_train.linear_model.sampling import Sample
from dask_train.linear_model.solvers import gradient_descent, lbfgs, newton_cholesky
from dask_train.linear_model.standardised import Standardised, standardised
from dask_train.linear_model.steps import UNASKED, Found, SolverSteps

# Without a penalty of absolute values.
SMOOTH: dict[str, Callable[..., Found]] = {
    "newton-cholesky": newton_cholesky,
    "lbfgs": lbfgs,
    "gradient_descent": gradient_descent,
}
# With or without one.
COMPOSITE: dict[str, Callable[..., Found]] = {
    "newton-cd": newton_cd,
    "proximal_gradient": proximal_gradient,
}
WITH_L1 = (*COMPOSITE, "admm")
SOLVERS = (*SMOOTH, *WITH_L1)
# These follow gradients, so that the scale of the features matters to them.
FIRST_ORDER = ("lbfgs", "gradient_descent", "proximal_gradient", "admm")
# These can begin with the Hessian matrix of a sample.
WITH_HESSIAN = ("newton-cholesky", "admm")


def solved(
    ranks: Ranks,
    objective: Objective,
    solver: str,
    start: np.ndarray,
    tol: float,
    max_iter: int,
    sample: Sample | None = None,
) -> Found:
    """Coefficients, steps, and whether the solver has converged; the same on all ranks.

    Parameters
    ----------
    ranks, objective
        The ranks that fit, and what is minimised.
    solver
        One of ``SOLVERS``; of ``WITH_L1`` where absolute values are penalised.
    start, tol, max_iter
        Where it begins, the largest part of a gradient that it leaves (of standardised features where a solver needs
        them), and the steps that it may take.
    sample
        Rows that it fits first; with all rows it begins at the minimum of these.

    Returns
    -------
    tuple
        As solvers return it; steps are those with all rows.
    """
    steps = ranks.steps
    solution = steps.begin()
    if solution is not None:
        return solution
    max_iter = max(max_iter, steps.first)  # this many have been taken
    if solver in FIRST_ORDER:
        problem = standardised(ranks, objective, sample)
        coef, taken, converged = _solved(ranks, problem, solver, problem.standard(start), tol, max_iter, sample)
        # What is 0 has to stay exactly that, which it does, as a product.
        solution = problem.raw(coef), taken, converged
    else:
        solution = _solved(ranks, objective, solver, start, tol, max_iter, sample)
    steps.end(solution)
    return solution


def _solved(
    ranks: Ranks,
    problem: Objective | Standardised,
    solver: str,
    start: np.ndarray,
    tol: float,
    max_iter: int,
    sample: Sample | None = None,
) -> Found:
    hessians: tuple[np.ndarray, np.ndarray] | None = None
    if solver != "admm":  # which begins with the Hessian matrices of a sample, also where it resumes
        ranks.steps.enter()
    if sample is not None and (ranks.steps.state is None or solver == "admm"):
        part = problem.of(sample)
        near, _, _ = _minimum(ranks, part, solver, start, max(tol, sample.tol), max_iter, UNASKED)
        order = 2 if solver == "newton-cd" else 1
        is_nearer = _value(problem, near, order) <= _value(part, start, 0)  # of NaN it is false
        # The first rank decides: processors of several kinds may round a tie differently, and would make other calls.
        if ranks.broadcast(np.array(float(is_nearer))):
            start = near
            if solver in WITH_HESSIAN:
                hessians = part.evaluate(near, 2)[2], part.own(near, 2)[2]
    return _minimum(ranks, problem, solver, start, tol, max_iter, ranks.steps, hessians)


def _minimum(
    ranks: Ranks,
    problem: Objective | Standardised,
    solver: str,
    start: np.ndarray,
    tol: float,
    max_iter: int,
    steps: SolverSteps,
    hessians: tuple[np.ndarray, np.ndarray] | None = None,
) -> Found:
    if solver == "admm":
        return admm(ranks, problem, start, tol, max_iter, hessians, steps=steps)

    def solve(evaluate: Evaluate) -> Found:
        if solver == "newton-cholesky":
            return newton_cholesky(evaluate, start, tol, max_iter, hessians and hessians[0], steps=steps)
        if solver in SMOOTH:
            return SMOOTH[solver](evaluate, start, tol, max_iter, steps=steps)
        return COMPOSITE[solver](evaluate, start, tol, max_iter, problem.l1, steps=steps)

    packed = led(ranks, problem.size, problem.evaluate, solve, steps)
    return packed[: problem.size], int(packed[-2]), bool(packed[-1])


def _value(problem: Objective | Standardised, coef: np.ndarray, order: int) -> float:
    """Return what is minimised at a point; with the order of derivatives that will be asked for next."""
    return float(problem.evaluate(coef, order)[0] + problem.l1 @ np.abs(coef))
