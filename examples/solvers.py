"""Six solvers side by side on one logistic regression, and a picture of the objective against seconds.

All of them run in one ``dt.train``, on the same partitions in shared memory; each is a small function in
``dask_train.linear_model`` over ``session.partitions()`` and ``session.all_reduce``. What to look at:

* Newton's two take a handful of passes, each of which sums a Hessian matrix; the others take more passes that cost
  less. Which is the fastest depends on the number of columns, and on how alike they are.
* Between two passes there is one sum over the workers' own network, and nothing for Dask's scheduler to do: where its
  task stream had white space between the steps of an iterative algorithm, here is none.

Run it::

    python examples/solvers.py             # 1,000,000 x 50, half a minute on two cores
    python examples/solvers.py --small     # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import dask.array as da
import matplotlib as mpl
import numpy as np

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.linear_model.families import Logistic
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import SessionRanks
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.solving import SOLVERS, solved

Curve = list[tuple[float, float]]
NUM_FEATURES, PENALTY = 50, 1e-4


class Watched(Objective):
    """The objective, which notes what it is asked for: seconds since the start, and the value."""

    def watch(self) -> Curve:
        self._begun, self._curve = time.perf_counter(), []
        return self._curve

    def evaluate(self, coef: np.ndarray, order: int) -> list[np.ndarray]:
        found = super().evaluate(coef, order)
        self._curve.append((time.perf_counter() - self._begun, float(found[0])))
        return found


def worker(session: Any) -> dict[str, Curve]:
    """Solve the same problem with each solver."""
    ranks = SessionRanks(session, list(session.partitions()))
    parts = [rows_of(*part) for part in ranks.partitions()]
    (columns,) = session.schema.columns[0].row_shape
    curves = {}
    for solver in SOLVERS:
        objective = Watched(
            ranks, parts, Logistic(), columns, fit_intercept=True, penalty=PENALTY, total=float(session.num_rows)
        )
        curves[solver] = objective.watch()
        solved(ranks, objective, solver, np.zeros(objective.size), tol=1e-8, max_iter=500)
    return curves


def draw(curves: dict[str, Curve], best: float, path: str) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for solver, curve in curves.items():
        seconds, values = np.array(curve).T
        axes.semilogy(seconds, np.maximum(np.minimum.accumulate(values) - best, 1e-16), label=solver, marker=".")
    axes.set_xlabel("seconds")
    axes.set_ylabel("objective above the minimum")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows")
    rows = 20_000 if parser.parse_args().small else 1_000_000
    random = da.random.default_rng(1)
    X = random.normal(size=(rows, NUM_FEATURES), chunks=(rows // 20, -1)) * np.linspace(0.2, 3, NUM_FEATURES)
    chances = X @ np.random.default_rng(0).normal(scale=0.2, size=NUM_FEATURES)
    y = (chances + random.logistic(size=rows, chunks=rows // 20) > 0).astype("f8")
    with local_client(2):
        result = dt.train(worker, roles={"worker": 2}, data=(X, y))
    curves: dict[str, Curve] = result.results["worker"][0]
    best = min(value for curve in curves.values() for _, value in curve)
    for solver, curve in curves.items():
        near = next(seconds for seconds, value in curve if value <= best * (1 + 1e-6))
        last = min(value for _, value in curve)
        print(f"{solver:18} {len(curve):4} passes, {near:6.2f} s to 1e-6 of the minimum; in the end {last - best:.0e}")
        assert last - best < 1e-9
    draw(curves, best, "solvers.png")
    print(f"{len(curves)} solvers came to the same objective, {best:.9f}; drawn: solvers.png")


if __name__ == "__main__":
    main()
