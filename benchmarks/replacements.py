"""How long a run pauses when a worker is killed: replaced in place, or all started again; and what is left of the loss.

    .venv/bin/python benchmarks/replacements.py [--kills 20] [--cases torch keras] [--alone | --small]

Three workers of one thread train a CNN of 0.4 million weights on global batches of 96 rows, for as many steps as take
``--seconds``. A worker, each in its turn, is killed with SIGKILL. A pause is the longest gap between two ends of steps,
of any worker, around the kill. The next kill comes a second after the pause, so that the successor has trained, too.

The peer is the default recovery in the same run of the program: all start again, from a checkpoint of each epoch.

After the last kill the run goes on to its end. Its weights are compared with those of the same run without a kill:
what differs is counted, also if it is the last bit alone.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import torch
from distributed import Client, LocalCluster
from recording import save, summary

import dask_train as dt

WORKERS, BATCH_ROWS, STEPS = 3, 96, 50
AROUND_S, SETTLED_S, PATIENCE_S = 0.2, 1.0, 60.0


def note(path: str) -> None:
    """Append that a step has ended, and when."""
    with Path(path).open("a") as file:
        file.write(f"{time.time()}\n")


class NotedSGD(torch.optim.SGD):
    """Notes the end of each step."""

    path = ""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step of SGD."""
        super().step(closure)
        note(self.path)


def sgd(parameters: Any, path: str) -> NotedSGD:
    """Return the optimizer of one worker."""
    made = NotedSGD(parameters, lr=0.05, momentum=0.9)
    made.path = path
    return made


class Noting(keras.callbacks.Callback):
    """Notes the end of each step of the first worker."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        note(self.path)


def fit_torch(path: str, **settings: Any) -> tuple[Any, Callable[[], list[np.ndarray]]]:
    """Begin a fit of a torch module; and what gives its weights."""
    torch.manual_seed(0)
    nn = torch.nn
    convolutions = nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)
    module = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(800, 448), nn.ReLU(), nn.Linear(448, 10))
    x, y = rows()
    loss, optimizer = nn.CrossEntropyLoss(), partial(sgd, path=path)
    run = dt.fit(module, np.moveaxis(x, 3, 1).copy(), y, loss=loss, optimizer=optimizer, **settings)
    return run, lambda: [value.numpy() for value in module.state_dict().values()]


def fit_keras(path: str, **settings: Any) -> tuple[Any, Callable[[], list[np.ndarray]]]:
    """Begin a fit of a Keras model; and what gives its weights."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([keras.Input((28, 28, 1))])
    for layer in (layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(2)):
        model.add(layer)
    for layer in (layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2), layers.Flatten()):
        model.add(layer)
    model.add(layers.Dense(448, activation="relu"))
    model.add(layers.Dense(10, activation="softmax"))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy")
    return dt.fit(model, *rows(), callbacks=[Noting(path)], **settings), model.get_weights


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of an epoch."""
    random = np.random.default_rng(0)
    count = BATCH_ROWS * STEPS
    return random.random((count, 28, 28, 1), np.float32), random.integers(0, 10, count)


FITS = {"torch": fit_torch, "keras": fit_keras}


def ends(path: Path) -> list[float]:
    """When steps have ended, so far."""
    return sorted(map(float, path.read_text().split())) if path.exists() else []


def wait_until(what: Callable[[], Any], run: Any) -> Any:
    """Return what there is in time; None if the run has ended before."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        if run.status()["outcome"]:
            return None
        if time.monotonic() > deadline:
            raise RuntimeError(f"The run did not go on within {PATIENCE_S:g} s.")
        time.sleep(0.01)
    return found


def gap(path: Path, killed: float, usual: float) -> float | None:
    """Return the longest gap between two ends of steps around a kill; None if it may still last."""
    some = [at for at in ends(path) if at > killed - AROUND_S]
    longest = max((later - earlier for earlier, later in itertools.pairwise(some)), default=0.0)
    is_over = bool(some) and some[-1] > killed + max(SETTLED_S, 20 * usual) and longest > 3 * usual
    return longest if is_over else None


def pauses(run: Any, path: Path, num_kills: int) -> Iterator[float]:
    """Kill one worker after the other; the seconds that each kill has cost."""
    wait_until(lambda: len(ends(path)) > WORKERS * 10, run)
    for number in range(num_kills):
        before = ends(path)[-1]
        roles = {role["rank"]: role for role in run.status()["roles"]}
        killed = time.time()
        with suppress(ProcessLookupError):
            os.kill(roles[number % WORKERS]["pid"], signal.SIGKILL)
        usual = statistics.median(np.diff([at for at in ends(path) if at <= before][-200:]))
        found = wait_until(partial(gap, path, killed, usual), run)
        if found is None:
            return
        yield found
        until = time.monotonic() + SETTLED_S
        wait_until(lambda until=until: time.monotonic() > until, run)


def measured(case: str, recovery: Any, num_kills: int, epochs: int) -> dict[str, Any]:
    """One run, with kills or without."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ends"
        checkpoint = {} if recovery.scope == "in_place" else {"checkpoint": f"{folder}/kept"}
        run, weights = FITS[case](
            str(path),
            epochs=epochs,
            batch_size=BATCH_ROWS,
            workers=WORKERS,
            recovery=recovery,
            wait=False,
            verbose=0,
            **checkpoint,
        )
        begun = time.time()
        found = list(pauses(run, path, num_kills))
        result = run.result()
        taken = ends(path)
        own = len(set(taken)) / (WORKERS if case == "torch" else 1)
        return {
            "pauses": found,
            "weights": weights(),
            "seconds": time.time() - begun,
            "step_s": (taken[-1] - taken[0] - sum(found)) / own,
            "attempts": result.attempts,
            "ledger": repr(result.ledger),
        }


def compared(case: str, kills: int, seconds: float, *, alone: bool) -> dict[str, Any]:
    """Return the figures of a case, and print them; without those of the peer if ``alone``."""
    in_place = dt.RecoveryPolicy(scope="in_place", max_restarts=10_000)
    gang = dt.RecoveryPolicy(scope="gang", max_restarts=10_000)
    first = measured(case, in_place, 0, 4)
    epochs = 1 + int(seconds / (first["step_s"] * STEPS))
    undisturbed = measured(case, in_place, 0, epochs)
    killed = measured(case, in_place, kills, epochs)
    again = {"pauses": []} if alone else measured(case, gang, min(5, kills), epochs)
    differ = sum(
        int(np.count_nonzero(one != other))
        for one, other in zip(undisturbed["weights"], killed["weights"], strict=True)
    )
    for name, pauses_s in (("in place", killed["pauses"]), ("all again", again["pauses"])):
        if pauses_s:
            extremes = f"({min(pauses_s):.2f} to {max(pauses_s):.2f})"
            print(f"{case}, {name}: {len(pauses_s)} kills, {statistics.median(pauses_s):.2f} s {extremes}", flush=True)
    print(
        f"{case}: {epochs * STEPS} steps of {1e3 * undisturbed['step_s']:.1f} ms, {len(killed['attempts'])} attempts; "
        f"of the weights {differ} differ, {killed['ledger']}",
        flush=True,
    )
    return {
        "steps": epochs * STEPS,
        "step_ms": 1e3 * undisturbed["step_s"],
        "in_place_s": summary(killed["pauses"]),
        "gang_s": None if alone else summary(again["pauses"]),
        "weights_that_differ": differ,
        "same_ledger": undisturbed["ledger"] == killed["ledger"],
        "attempts": len(killed["attempts"]),
    }


def main() -> None:
    """Take the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.0, help="of the run; default: 3 for each kill")
    parser.add_argument("--cases", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--alone", action="store_true", help="without the peer, and no file: does it hold?")
    parser.add_argument("--small", action="store_true", help="three kills, and no file: does it all work?")
    args = parser.parse_args()
    kills = 3 if args.small else args.kills
    figures: dict[str, Any] = {}
    for case in args.cases:
        with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster):
            figures[case] = compared(case, kills, args.seconds or 3.0 * kills, alone=args.alone)
    if not (args.small or args.alone):
        save("replacements", {"kills": kills, "cases": figures})


if __name__ == "__main__":
    main()
