"""The lasso by consensus ADMM, a loop of one's own over partitions, equal to scikit-learn's.

Each rank fits its own rows beside its distance to what all agree on; then they agree on the mean of what they have, and
what is small becomes 0 (Boyd and others, "Distributed optimization and statistical learning via the alternating
direction method of multipliers", 2011, section 8.2). What to look at:

* ``session.partitions()`` are read once: of each rank's rows one matrix of ``columns ** 2`` numbers is left, whose
  Cholesky factor serves all iterations.
* An iteration is one ``session.all_reduce`` of as many numbers as there are columns: no task of Dask's scheduler, and
  no message to the client but the report.
* All ranks decide by the same sums, so all of them stop in the same iteration.

``dask_train.linear_model.Lasso(solver="admm")`` is this loop with intercepts, weights, and a penalty that adapts.

Run it::

    python examples/admm.py             # 2,000,000 x 50, some seconds on two cores
    python examples/admm.py --small     # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
from typing import Any

import dask.array as da
import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.linear_model import Lasso

import dask_train as dt
from dask_train.cluster.local import local_client

NUM_FEATURES, ALPHA, TOLERANCE, MAX_ITERATIONS = 50, 0.1, 1e-9, 500


def worker(session: Any) -> dict[str, Any]:
    """Find the coefficients; every rank returns the same ones."""
    num_rows, (columns,) = session.num_rows, session.schema.columns[0].row_shape
    gram, moment = np.zeros((columns, columns)), np.zeros(columns)
    for x, y in session.partitions():  # a rank without any takes part with zeros
        gram += x.T @ x / num_rows
        moment += x.T @ y / num_rows
    rho = float(session.all_reduce(np.trace(gram))) / columns / session.world_size
    factor = cho_factor(gram + rho * np.eye(columns))
    mine, agreed, dual = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    iterations, moved = 0, np.inf
    while moved > TOLERANCE and iterations < MAX_ITERATIONS:
        iterations += 1
        mine = cho_solve(factor, moment + rho * (agreed - dual))
        mean = session.all_reduce(mine + dual, op="mean")
        before = agreed
        agreed = np.sign(mean) * np.maximum(np.abs(mean) - ALPHA / (rho * session.world_size), 0)
        dual += mine - agreed
        apart = float(session.all_reduce(np.abs(mine - agreed).max(), op="max"))
        if session.world_rank == 0:
            session.report(apart=apart)
        moved = max(apart, float(np.abs(agreed - before).max()))
    return {"coef": agreed, "iterations": iterations}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows")
    rows = 20_000 if parser.parse_args().small else 2_000_000
    random = da.random.default_rng(1)
    X = random.normal(size=(rows, NUM_FEATURES), chunks=(rows // 7, -1))
    true = np.where(np.arange(NUM_FEATURES) % 5, 0.0, np.arange(NUM_FEATURES) / 10)
    y = X @ true + random.normal(size=rows, chunks=rows // 7)
    with local_client(2):
        result = dt.train(worker, roles={"worker": 2}, data=(X, y))
        x, target = X.compute(), y.compute()
    found = result.results["worker"][0]
    left = int((found["coef"] != 0).sum())
    print(f"{rows:,} rows, {found['iterations']} iterations; {left} of {NUM_FEATURES} coefficients are not 0")
    plain = Lasso(ALPHA, fit_intercept=False, tol=1e-10).fit(x, target)
    difference = np.abs(plain.coef_ - found["coef"]).max()
    print(f"furthest coefficient from scikit-learn's: {difference:.1e}")
    assert difference < 1e-6


if __name__ == "__main__":
    main()
