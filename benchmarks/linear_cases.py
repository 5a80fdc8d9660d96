"""One way to fit a logistic regression, timed; ``linear.py`` runs each in a process tree of its own.

    .venv/bin/python benchmarks/linear_cases.py ours newton-cholesky --rows 1000000 --features 50 --target 0.5

It fits with one tolerance after the other, each from the beginning, until the mean loss is at most 1e-6 of itself above
the target, and prints a line of JSON after each: seconds of that fit, the tolerance, the loss, and whether it is the
one. ``--begin`` leaves larger tolerances out; without a target it is the smallest one at once. The model has neither
intercept nor penalty, as some of dask-glm's solvers have none. Processes are up, and a few rows were fitted, before the
clock; the rows are where the way has them: in NumPy arrays, or in the memory of Dask workers. ``--lazy`` computes them
in the fit, and ``--messages`` counts what the scheduler gets.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.array as da
import numpy as np

NUM_WORKERS, PART_ROWS, RELATIVE = 2, 50_000, 1e-6
# Enough for ten seconds of iterations or more: idle processes send a message every half second or so.
NUM_STEPS = 200
# Of dask-glm's own meaning: of the gradient's sum, of a change of the coefficients or the loss, of residuals.
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
# A tolerance, to coefficients.
Fit = Callable[[float], np.ndarray]


def rows_of(rows: int, features: int) -> tuple[Any, Any]:
    """Features and targets as Dask arrays, lazily; the same ones in each process."""
    random = da.random.default_rng(1)
    chunk = min(PART_ROWS, -(-rows // NUM_WORKERS))
    x = random.normal(size=(rows, features), chunks=(chunk, -1)) * np.linspace(0.5, 2, features)
    signal = x @ np.random.default_rng(0).normal(scale=1 / np.sqrt(features), size=features)
    return x, (signal + random.logistic(size=rows, chunks=chunk) > 0).astype("f8")


def loss(x: Any, y: Any, coef: np.ndarray) -> float:
    """The mean loss; of Dask arrays where they are."""
    raw = x @ coef.ravel()
    return float((np.logaddexp(0, raw) - y * raw).mean())


@contextmanager
def cluster() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=NUM_WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as started,
        Client(started) as client,
    ):
        yield client


def way(peer: str, solver: str, x: Any, y: Any) -> Fit:
    """A function that fits to a tolerance."""
    if peer == "dask-glm":
        from dask_glm import algorithms

        settings = {
            "lbfgs": lambda tol: {"tol": tol * x.shape[0], "max_iter": 500, "lamduh": 0.0},
            "newton": lambda tol: {"tol": tol, "max_iter": 100},
            "gradient_descent": lambda tol: {"tol": tol * 1e-2, "max_iter": 2000},
            "proximal_grad": lambda tol: {"tol": tol * 1e-4, "max_iter": 2000, "lamduh": 0.0},
            "admm": lambda tol: {"abstol": tol * 1e-2, "reltol": tol, "max_iter": 500 if tol < 1 else 1, "lamduh": 0.0},
        }[solver]
        return lambda tol: np.asarray(getattr(algorithms, solver)(x, y, **settings(tol)))
    if peer == "glum":
        from glum import GeneralizedLinearRegressor

        return lambda tol: (
            GeneralizedLinearRegressor(
                family="binomial", alpha=0, fit_intercept=False, solver=solver, gradient_tol=tol, max_iter=1000
            )
            .fit(x, y)
            .coef_
        )
    if peer == "scikit-learn":
        from sklearn.linear_model import LogisticRegression as Theirs

        return lambda tol: Theirs(C=np.inf, fit_intercept=False, solver=solver, tol=tol, max_iter=2000).fit(x, y).coef_
    from dask_train.linear_model import LogisticRegression

    return lambda tol: (
        LogisticRegression(C=np.inf, fit_intercept=False, solver=solver, tol=tol, max_iter=2000, workers=NUM_WORKERS)
        .fit(x, y)
        .coef_
    )


def to_target(peer: str, solver: str, x: Any, y: Any, target: float | None, begin: float) -> None:
    """Print seconds of fits, up to the first one that is good enough."""
    few = (x[:2000], y[:2000])
    if not isinstance(x, np.ndarray):
        few = tuple(each.rechunk({0: 1000}).persist() for each in few)
    with np.errstate(all="ignore"):
        way(peer, solver, *few)(1.0)
        for tol in TOLERANCES if target is not None else TOLERANCES[-1:]:
            if tol > begin:
                continue
            fit = way(peer, solver, x, y)
            start = time.perf_counter()
            coef = fit(tol)
            found = {"seconds": time.perf_counter() - start, "tol": tol, "loss": loss(x, y, coef)}
            reached = target is None or found["loss"] <= target * (1 + RELATIVE)
            print(json.dumps({**found, "reached": reached}), flush=True)
            if reached:
                return


def tangled(x: Any) -> Any:
    """Features that hang together, of which ``gradient_descent`` takes thousands of steps."""
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(x.shape[1], x.shape[1])))
    return x @ (turned * np.logspace(0, -3, x.shape[1])) @ turned.T


def messages(client: Any, x: Any, y: Any) -> dict[str, float]:
    """Messages that the scheduler gets in a second of iterations, and of nothing.

    The difference of two fits is all iterations: what begins and ends a run is in both.
    """
    from distributed.comm.tcp import TCP

    scheduler, read, counted = client.cluster.scheduler.address, TCP.read, 0

    async def counting(comm: TCP, *args: Any, **kwargs: Any) -> Any:
        nonlocal counted
        found = await read(comm, *args, **kwargs)
        counted += comm.local_address == scheduler
        return found

    def counts(do: Callable[[], object]) -> tuple[int, float]:
        before, start = counted, time.perf_counter()
        do()
        return counted - before, time.perf_counter() - start

    def descend(steps: int) -> object:
        from dask_train.linear_model import LogisticRegression

        model = LogisticRegression(solver="gradient_descent", tol=0, max_iter=steps, workers=NUM_WORKERS)
        return model.fit(x, y)

    TCP.read = counting  # type: ignore[method-assign]
    try:
        # After this processes have imported what they need, and no connection awaits a message that is not counted.
        descend(10)
        idle = counts(lambda: time.sleep(5))
        few, many = counts(lambda: descend(10)), counts(lambda: descend(NUM_STEPS))
    finally:
        TCP.read = read  # type: ignore[method-assign]
    busy = (many[0] - few[0]) / (many[1] - few[1])
    return {
        "iterating": busy,
        "idle": idle[0] / idle[1],
        "more": busy - idle[0] / idle[1],
        "seconds": many[1] - few[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("ours", "ours of dt.persist", "dask-glm", "scikit-learn", "glum"))
    parser.add_argument("solver")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--features", type=int, required=True)
    parser.add_argument("--target", type=float)
    parser.add_argument("--begin", type=float, default=TOLERANCES[0])
    parser.add_argument("--lazy", action="store_true")
    parser.add_argument("--messages", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    x, y = rows_of(given.rows, given.features)
    if given.peer in ("scikit-learn", "glum"):
        x, y = (np.concatenate([np.asarray(block) for block in each.blocks]) for each in (x, y))
        to_target(given.peer, given.solver, x, y, given.target, given.begin)
        return
    with cluster() as client:
        if given.lazy:
            print(json.dumps({"coef": way("ours", given.solver, x, y)(1e-4).ravel().tolist()}))
            return
        from distributed import wait

        x, y = client.persist([tangled(x) if given.messages else x, y])
        wait([x, y])
        if given.peer == "ours of dt.persist":
            import dask_train as dt

            x, y = dt.persist(x, y)
        if given.messages:
            print(json.dumps(messages(client, x, y)))
        else:
            to_target(given.peer, given.solver, x, y, given.target, given.begin)


if __name__ == "__main__":
    main()
