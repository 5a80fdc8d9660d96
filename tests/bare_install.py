"""A program for an environment with dask-train and nothing that it doesn't bring: it trains, and names missing extras.

`make dist` and `make minimum` run it, with the python of their own environments.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import dask.array as da
import numpy as np
from dask.distributed import Client

import dask_train as dt

EXTRAS = ("jax", "keras", "lightgbm", "matplotlib", "mlflow", "optuna", "sklearn", "tensorflow", "torch", "xgboost")


def mean_of(session: dt.Session) -> float:
    total = 0.0
    for x in session.batches(epochs=1, batch_size=16):
        total += float(x.sum())
        session.report(loss=total)
    return float(session.all_reduce(np.array([total]))[0]) / 100


def said(use: Callable[[], Any]) -> str:
    """The message of the error that this is."""
    try:
        use()
    except (ImportError, dt.LaunchError) as error:
        return str(error)
    return f"{use} works without its extra"


def uses(folder: str) -> dict[str, tuple[Callable[[], Any], str]]:
    """What needs an extra, and what its error names, by what is used."""
    x = da.ones((8, 2), chunks=(4, 2))
    return {
        "search": (lambda: dt.search(lambda trial: None, x, x, metric="loss"), "pip install '.[search]'"),
        "grid": (lambda: dt.search(object(), x, x, params={"a": [1]}), "pip install '.[linear]'"),
        "predict": (lambda: dt.predict(f"{folder}/net.keras", x), "pip install '.[tensorflow]'"),
        "MLflow": (dt.logging.MLflow, "mlflow-skinny"),
        "WandB": (dt.logging.WandB, "wandb"),
        "linear_model": (lambda: importlib.import_module("dask_train.linear_model").Ridge, "pip install '.[linear]'"),
        "sklearn": (lambda: importlib.import_module("dask_train.sklearn").Incremental, "pip install '.[linear]'"),
        **{
            framework: (
                lambda framework=framework: dt.train(mean_of, roles={"worker": 1}, data=x, framework=framework),
                named,
            )
            for framework, named in (
                ("torch", "pip install '.[torch]'"),
                ("tensorflow", "pip install '.[tensorflow]'"),
                ("xgboost", "pip install '.[xgboost]'"),
                ("jax-distributed", "pip install jax"),
            )
        },
    }


def main() -> int:
    there = [name for name in EXTRAS if find_spec(name) is not None]
    if there:
        print(f"This is no bare environment: {', '.join(there)} are there.")
        return 1
    for name in dt.__all__:
        getattr(dt, name)
    with TemporaryDirectory() as folder, Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        x = da.ones((100, 3), chunks=(10, 3))
        result = dt.train(mean_of, roles={"worker": 2}, data=x)
        assert result.results == {"worker": [3.0, 3.0]}, result.results
        assert (result.ledger.trained, result.ledger.dropped) == (100, 0), result.ledger
        assert "<polyline" in result._repr_html_()
        dt.publish_dataset(x, name="ones")
        assert dt.get_dataset("ones").num_rows == 100
        assert float(dt.predict(lambda rows: rows.sum(axis=1), x).sum().compute()) == 300.0
        dt.unpublish_dataset("ones")
        written = dt.predict_to(f"{folder}/sums", lambda rows: rows.sum(axis=1), x)
        assert (written.num_rows, written.num_parts) == (100, 10), written
        wrong = {what: told for what, (use, named) in uses(folder).items() if named not in (told := said(use))}
    for what, told in wrong.items():
        print(f"{what}: {told}")
    print("Errors don't name what is missing." if wrong else f"dask-train {dt.__version__} works with what it brings.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
