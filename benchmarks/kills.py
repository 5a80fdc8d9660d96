"""Kill a Dask worker early in every verb, after delays drawn from a seed; what does not end in time shows its stacks.

Usage: ``python benchmarks/kills.py [seconds] [seed] [verb ...]``. Ends with status 1 where a verb hung or gave a wrong
result; errors of ours are counted.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import torch
import xgboost
from distributed import Client, LocalCluster

import dask_train as dt
from dask_train.linear_model import LogisticRegression

# A verb that takes longer is a hang: runs that make no progress end after PROGRESS_S, with StalledError.
HANGS_S, PROGRESS_S = 60, 20
LATEST_KILL_S = 1.5
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
    x, y = rows()
    settings = {"loss": torch.nn.MSELoss(), "optimizer": torch.optim.Adam, "verbose": 0, "recovery": RECOVERY}
    ledger = dt.fit(torch.nn.Linear(4, 1), x, y[:, None], epochs=2, workers=2, batch_size=40, **settings).ledger
    return bool(ledger.trained == 2 * ROWS)


VERBS: dict[str, Callable[[], bool]] = {
    "train": lambda: trained(data=rows()[0]),
    "stream": lambda: trained(data=rows()[0], streaming=4),
    "publish": published,
    "persist": lambda: dt.persist(rows()[0], progress=False).shape == (ROWS, 4),
    "predict": predicted,
    "xgboost": lambda: (
        dt.fit(xgboost.XGBRegressor(n_estimators=5), *rows(), workers=2, recovery=RECOVERY, verbose=0).ledger.trained
        > 0
    ),
    "torch": of_torch,
    "linear": lambda: LogisticRegression(workers=2).fit(rows()[0], rows()[1] > 0).coef_.shape == (1, 4),
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
    while time.monotonic() < end:
        settings = dask.config.set({"train.progress.timeout": f"{PROGRESS_S} s"})
        cluster = LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None, silence_logs=50)
        with settings, cluster, Client(cluster) as client:
            while time.monotonic() < end and len(pids := alive(client)) == 2:
                verb, delay_s, start = next(names), draw.uniform(0, LATEST_KILL_S), time.monotonic()
                outcome = tried(verb, delay_s, draw.choice(pids))
                outcomes[outcome.partition(":")[0]] += 1
                took = f"{time.monotonic() - start:.1f} s"
                print(f"{verb}, killed after {delay_s:.3f} s: {outcome} ({took})", flush=True)
    print(dict(outcomes))
    return int(bool({"HUNG", "WRONG"} & outcomes.keys()))


if __name__ == "__main__":
    faulthandler.enable()
    arguments = sys.argv[1:]
    sys.exit(main(float((arguments or ["300"])[0]), int((arguments[1:] or ["0"])[0]), *arguments[2:]))
