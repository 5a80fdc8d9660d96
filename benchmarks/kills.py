"""Kill a Dask worker early in every verb, after delays drawn from a seed; what does not end in time shows its stacks.

Usage: ``python benchmarks/kills.py [seconds] [seed] [verb ...]``. Two kills of three are early: while rows are put into
shared memory. A cluster whose nanny starts no Dask worker again is replaced, and counted apart. Ends with status 1
where a verb hung or gave a wrong result; errors of ours are counted.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import dask_train as dt
from dask_train.linear_model import LogisticRegression

# Frameworks are imported within functions: each process of a Dask worker imports this file before it is up.

# A verb that takes longer is a hang: runs that make no progress end after PROGRESS_S, with StalledError.
HANGS_S, PROGRESS_S = 60, 20
LATEST_KILL_S, EARLY_KILL_S = 1.5, 0.3
RESTARTS_S = 20
ROWS = 400
RECOVERY = dt.RecoveryPolicy(scope="gang", max_restarts=3)


class HungError(BaseException):
    """A verb has not ended; no error that a verb could catch."""


def rows() -> tuple[Any, Any]:
    """Rows whose sums are the targets, in partitions that take a moment."""

    def slow(block: np.ndarray) -> np.ndarray:
        time.sleep(0.01)
        return block

    x = np.random.default_rng(1).normal(size=(ROWS, 4)).astype("f4")
    lazy = da.from_array(x, chunks=(20, 4)).map_blocks(slow, dtype="f4")
    return lazy, lazy.sum(axis=1)


def worker(session: Any) -> int:
    """Count the rows that it sees."""
    return sum(len(batch) for batch in session.batches(batch_size=50))


def trained(**settings: Any) -> bool:
    """Whether all rows were seen."""
    found = dt.train(worker, roles={"worker": 2}, progress=False, recovery=RECOVERY, **settings)
    return sum(found.results["worker"]) == ROWS


def published() -> bool:
    """Whether a data set has all rows."""
    dt.publish_dataset(rows()[0], name="killed", override=True, progress=False)
    try:
        return trained(data=dt.get_dataset("killed"))
    finally:
        dt.unpublish_dataset("killed")


def predicted() -> bool:
    """Whether predictions are those of the model."""
    x, y = rows()
    off = random.random()  # noqa: S311 - another model each time
    return bool(np.allclose(dt.predict(lambda a: a.sum(1) + off, x).compute(), (y + off).compute(), atol=1e-4))


def of_torch() -> bool:
    """Whether a module sees all rows."""
    import torch

    x, y = rows()
    settings = {"loss": torch.nn.MSELoss(), "optimizer": torch.optim.Adam, "verbose": 0, "recovery": RECOVERY}
    ledger = dt.fit(torch.nn.Linear(4, 1), x, y[:, None], epochs=2, workers=2, batch_size=40, **settings).ledger
    return bool(ledger.trained == 2 * ROWS)


def network(*_: Any) -> Any:
    """Return a Keras model of the rows."""
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def of_keras() -> bool:
    """Whether a Keras model sees all rows."""
    settings = {"epochs": 2, "workers": 2, "batch_size": 40, "recovery": RECOVERY, "verbose": 0}
    return bool(dt.fit(network(), *rows(), **settings).ledger.trained == 2 * ROWS)


def evaluated() -> bool:
    """Whether the loss is that of the model on all rows."""
    model, (x, y) = network(), rows()
    found = dt.evaluate(model, x, y[:, None], batch_size=40, verbose=0)["loss"]
    return bool(np.isclose(found, model.evaluate(*dask.compute(x, y), verbose=0), rtol=1e-4))


def written() -> bool:
    """Whether files hold the predictions of the model."""
    x, y = rows()
    with tempfile.TemporaryDirectory() as folder:
        dt.predict_to(folder, lambda a: a.sum(1), x, progress=False)
        files = sorted(name for name in os.listdir(folder) if name.endswith(".npy"))
        found = np.concatenate([np.load(os.path.join(folder, name)) for name in files])
    return bool(np.allclose(found, y.compute(), atol=1e-4))


def searched() -> bool:
    """Whether each trial of a search over Keras models has a value; one that was lost is there again, as another."""
    settings = {"metric": "val_loss", "direction": "minimize", "trials": 2, "epochs": 1, "batch_size": 40}
    x, y = rows()
    found = dt.search(network, x, y[:, None], validation_split=0.2, progress=False, **settings)
    return [trial.state.name for trial in found.trials].count("COMPLETE") == 2


def searched_grid() -> bool:
    """Whether each point of a grid has a score."""
    from sklearn.linear_model import SGDClassifier

    x, y = rows()
    found = dt.search(SGDClassifier(), x, y > 0, params={"alpha": [1e-4, 1e-2]}, cv=2, progress=False)
    return bool(np.isfinite(found.cv_results_["mean_test_score"]).all())


def of_trees(library: str) -> bool:
    """Whether trees were made of all rows."""
    import lightgbm
    import xgboost

    model = xgboost.XGBRegressor(n_estimators=5) if library == "xgboost" else lightgbm.LGBMRegressor(n_estimators=5)
    settings = {"workers": 2, "recovery": RECOVERY, "verbose": 0}
    return bool(dt.fit(model, *rows(), **settings).ledger.trained > 0)


VERBS: dict[str, Callable[[], bool]] = {
    "train": lambda: trained(data=rows()[0]),
    "stream": lambda: trained(data=rows()[0], streaming=4),
    "publish": published,
    "persist": lambda: dt.persist(rows()[0], progress=False).shape == (ROWS, 4),
    "predict": predicted,
    "predict_to": written,
    "evaluate": evaluated,
    "xgboost": lambda: of_trees("xgboost"),
    "lightgbm": lambda: of_trees("lightgbm"),
    "torch": of_torch,
    "keras": of_keras,
    "linear": lambda: LogisticRegression(workers=2).fit(rows()[0], rows()[1] > 0).coef_.shape == (1, 4),
    "search": searched,
    "grid": searched_grid,
}


def tried(verb: str, delay_s: float, victim: int) -> str:
    """Call a verb while a process is killed, and tell what came of it."""
    killer = threading.Timer(delay_s, os.kill, (victim, signal.SIGKILL))
    signal.alarm(HANGS_S)
    killer.start()
    try:
        return "right" if VERBS[verb]() else "WRONG"
    except HungError:
        return "HUNG"
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.alarm(0)
        killer.join()


def hung(*_: Any) -> None:
    """Show where it waits, and end the verb."""
    faulthandler.dump_traceback()
    raise HungError


def alive(client: Client) -> list[int]:
    """Return the processes of both Dask workers once they are there; of fewer where a nanny starts none any more."""
    deadline = time.monotonic() + RESTARTS_S
    while len(pids := client.run(os.getpid, on_error="ignore")) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # a nanny gives up a worker that dies while it starts
    return sorted(pids.values())


def main(seconds: float = 300, seed: int = 0, *verbs: str) -> int:
    """Try all verbs in turn, for so long."""
    signal.signal(signal.SIGALRM, hung)
    draw, outcomes, end = random.Random(seed), Counter[str](), time.monotonic() + seconds  # noqa: S311 - no secret
    names = itertools.cycle(verbs or VERBS)
    network()  # the first import of a framework takes longer than the delays
    while time.monotonic() < end:
        settings = dask.config.set({"train.progress.timeout": f"{PROGRESS_S} s"})
        cluster = LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None, silence_logs=50)
        with settings, cluster, Client(cluster) as client:
            while time.monotonic() < end and len(pids := alive(client)) == 2:
                latest_s = draw.choice([EARLY_KILL_S, EARLY_KILL_S, LATEST_KILL_S])
                verb, delay_s, start = next(names), draw.uniform(0, latest_s), time.monotonic()
                outcome = tried(verb, delay_s, draw.choice(pids))
                outcomes[outcome.partition(":")[0]] += 1
                took = f"{time.monotonic() - start:.1f} s"
                print(f"{verb}, killed after {delay_s:.3f} s: {outcome} ({took})", flush=True)
            if time.monotonic() < end:
                outcomes["a nanny that starts no Dask worker again"] += 1
    print(dict(outcomes))
    return int(bool({"HUNG", "WRONG"} & outcomes.keys()))


if __name__ == "__main__":
    faulthandler.enable()
    arguments = sys.argv[1:]
    sys.exit(main(float((arguments or ["300"])[0]), int((arguments[1:] or ["0"])[0]), *arguments[2:]))
