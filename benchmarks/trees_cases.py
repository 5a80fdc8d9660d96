"""One way to fit boosted trees, timed; ``trees.py`` runs each in a process tree of its own.

    .venv/bin/python benchmarks/trees_cases.py xgboost dt.fit 1100000 100

The rows are made a block at a time, and lie in memory once before the clock, where the way has them best: of
``dt.fit`` that is ``dt.persist``, of the libraries' own Dask estimators ``dask.persist``, of one process NumPy arrays.
With "dt.fit of X.persist()" ours begins with Dask's memory as well; "dt.fit with 2 workers" has one a Dask worker, and
not one a host. Workers are up and have imported the library: a fit
of a few rows comes before the clock.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

NUM_WORKERS, NUM_FEATURES, NUM_PARTS = 2, 28, 20
PERSISTED, ONE_EACH = "of X.persist()", "with 2 workers"


def block(number: int, num_rows: int) -> np.ndarray:
    """Some rows, with the label as the last column."""
    random = np.random.default_rng(number)
    rows = random.standard_normal((num_rows, NUM_FEATURES + 1), dtype=np.float32)
    signal = rows[:, 0] * rows[:, 1] + rows[:, 2] ** 2 - rows[:, 3] + np.sin(3 * rows[:, 4:14]).sum(axis=1)
    rows[:, -1] = signal + rows[:, -1] > 1
    return rows


def estimator(library: str, way: str, num_rounds: int) -> Any:
    """The same model in each way."""
    threads = 1 if way.endswith(".dask") else NUM_WORKERS
    if library == "xgboost":
        import xgboost
        import xgboost.dask

        settings = {"n_estimators": num_rounds, "max_depth": 8, "tree_method": "hist", "n_jobs": threads}
        return (
            xgboost.dask.DaskXGBClassifier(**settings) if way == "xgboost.dask" else xgboost.XGBClassifier(**settings)
        )
    import lightgbm

    settings = {"n_estimators": num_rounds, "max_depth": 8, "num_leaves": 255, "n_jobs": threads, "verbose": -1}
    return lightgbm.DaskLGBMClassifier(**settings) if way == "lightgbm.dask" else lightgbm.LGBMClassifier(**settings)


def fit(library: str, way: str, rows: tuple[Any, Any], num_rounds: int) -> Any:
    """The fitted estimator."""
    model = estimator(library, way, num_rounds)
    if way.startswith("dt.fit"):
        import dask_train as dt

        dt.fit(model, *rows, workers=NUM_WORKERS if way.endswith(ONE_EACH) else None, verbose=0)
    else:
        model.fit(*rows)
    return model


def timed(library: str, way: str, few: tuple[Any, Any], rows: tuple[Any, Any], num_rounds: int) -> dict[str, float]:
    """Seconds of a fit after one of a few rows, and how well it tells rows apart that it has not seen."""
    fit(library, way, few, 2)
    start = time.perf_counter()
    model = fit(library, way, rows, num_rounds)
    seconds = time.perf_counter() - start
    test = block(999, 20_000)
    if library == "xgboost":
        found = model.get_booster().inplace_predict(test[:, :-1])
    else:
        found = model.booster_.predict(test[:, :-1])
    return {"seconds": seconds, "accuracy": float(((found > 0.5) == test[:, -1]).mean())}


def in_one_process(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows as arrays, which nothing else is beside when they are there."""
    size = num_rows // NUM_PARTS
    X, y = np.empty((size * NUM_PARTS, NUM_FEATURES), np.float32), np.empty(size * NUM_PARTS, np.int32)
    for number in range(NUM_PARTS):
        rows, at = block(number, size), slice(number * size, (number + 1) * size)
        X[at], y[at] = rows[:, :-1], rows[:, -1]
    return X, y


def on_dask(num_rows: int) -> tuple[Any, Any]:
    """The same rows as Dask arrays, lazily."""
    import dask
    import dask.array as da

    size = num_rows // NUM_PARTS
    made = [dask.delayed(block)(number, size) for number in range(NUM_PARTS)]
    rows = da.concatenate([da.from_delayed(each, (size, NUM_FEATURES + 1), dtype="f4") for each in made])
    return rows[:, :-1].map_blocks(np.ascontiguousarray), rows[:, -1].astype("i4")


def kept(way: str, rows: tuple[Any, Any]) -> tuple[Any, Any]:
    """Dask arrays, in memory once."""
    import dask
    from distributed import wait

    if way in ("dt.fit", f"dt.fit {ONE_EACH}"):
        import dask_train as dt

        found: tuple[Any, Any] = dt.persist(*rows)
    else:
        found = dask.persist(*rows)
        wait(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("xgboost", "lightgbm"))
    parser.add_argument("way")
    parser.add_argument("rows", type=int)
    parser.add_argument("rounds", type=int)
    given = parser.parse_args()
    if given.way == "one process":
        X, y = in_one_process(given.rows)
        print(json.dumps(timed(given.library, given.way, (X[:1000], y[:1000]), (X, y), given.rounds)))
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=NUM_WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
    ):
        few, rows = (kept(given.way, on_dask(each)) for each in (1000, given.rows))
        print(json.dumps(timed(given.library, given.way, few, rows, given.rounds)))


if __name__ == "__main__":
    main()
