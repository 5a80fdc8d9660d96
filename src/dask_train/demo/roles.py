"""The roles of the main job: what runs in the Dask workers of each job of the network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty
from typing import Any

import numpy as np
from distributed import get_worker

from dask_train.datasets import load_mnist
from dask_train.demo.graph import CLASSES, PIXELS, Graph, build, open_session
from dask_train.demo.lasting_session import LastingSession
from dask_train.tensorflow_network.board import Board, board

NUM_VALIDATION_ROWS = 5_000  # the first rows of the training file, as in TensorFlow's old tutorial; never trained on
SCORE_EVERY_S = 1.0
REPORT_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True)
class DemoTask:
    """What a role needs to know; small, and the same for all of them.

    Attributes
    ----------
    cluster
        TensorFlow's address book.
    boards
        Begins the names of this run's boards: the scorer's scores, the workers' progress, the client's word to stop.
    target
        The mean validation cross-entropy that is good enough.
    sync
        Whether a step waits for the gradients of all workers.
    start_timeout_s
        How long a worker waits for the chief to initialise the variables, in seconds.
    """

    cluster: dict[str, list[str]]
    boards: str
    target: float
    batch_size: int
    learning_rate: float
    sync: bool
    start_timeout_s: float

    def open_boards(self) -> DemoBoards:
        """Return the run's three boards, as seen from here."""
        scores, progress, stop = (board(f"{self.boards}-{name}") for name in ("scores", "progress", "stop"))
        return DemoBoards(scores, progress, stop, self.target)


@dataclass(frozen=True)
class DemoBoards:
    """The run's boards: ``scores`` from the scorer, ``progress`` from the workers, ``stop`` from the client."""

    scores: Board
    progress: Board
    stop: Board
    target: float

    def good_enough(self) -> bool:
        """Return whether the last score reaches the target."""
        return bool(self.scores) and self.scores[-1]["loss"] <= self.target

    def over(self) -> bool:
        """Return whether the training is to end; looks at local copies only."""
        return self.good_enough() or bool(self.stop)


class Stopwatch:
    """Spans of what a role did: ``(name, start, end)`` in seconds since the epoch."""

    def __init__(self, name: str) -> None:
        self.spans: list[tuple[str, float, float]] = []
        self._name, self._since = name, time.time()

    def now(self, name: str) -> None:
        """From now on the role does something else; spans under 50 ms are left to the one after."""
        if name == self._name:
            return
        end = time.time()
        if end - self._since > 0.05:
            self.spans.append((self._name, self._since, end))
            self._since = end
        self._name = name

    def done(self) -> list[tuple[str, float, float]]:
        """Return all spans, the last one ended now."""
        self.now("")
        return self.spans


def one_hot(labels: np.ndarray) -> np.ndarray:
    """Labels (rows,) as (rows, 10) float32 with a 1 in the column of the class."""
    return np.eye(CLASSES, dtype="float32")[labels]


def flat(images: np.ndarray) -> np.ndarray:
    """Images (rows, 28, 28) uint8 as (rows, 784) float32 in [0, 1]; one copy."""
    rows = images.reshape(len(images), PIXELS).astype("float32")
    rows /= 255
    return rows


def serve(task: DemoTask) -> dict[str, Any]:
    """Role ``ps``: the server answers by itself; the role lasts until the client's word to stop."""
    watch = Stopwatch("serving")
    boards = task.open_boards()
    while not boards.stop:
        time.sleep(0.1)
    return {"spans": watch.done()}


def train(task: DemoTask) -> dict[str, Any]:
    """Role ``worker``: train on what comes through the queue until the score is good enough or the client says stop."""
    import tensorflow as tf

    server, queue = get_worker().tensorflow_server, get_worker().tensorflow_queue
    index = server.server_def.task_index
    chief = index == 0
    watch, boards = Stopwatch("starting"), task.open_boards()
    graph = build(task.cluster, "worker", index, learning_rate=task.learning_rate, sync=task.sync)
    account = WorkerProgress(index, boards.progress)

    def opened(again: bool, chief: bool = chief) -> Any:
        """Open a session; the chief initialises the variables once."""
        first = chief and not again
        return open_session(graph, server.target, "worker", index, chief=first, timeout_s=task.start_timeout_s)

    with LastingSession(opened) as session, means_applied(graph, partial(opened, chief=False), chief=chief):
        try:
            for images, labels in mini_batches(queue, task.batch_size, boards, watch):
                session.run(graph.train, {graph.images: images, graph.labels: labels})
                account.add(len(images))
            if graph.sync is not None:
                session.run(graph.sync.end)
        except tf.errors.OutOfRangeError:
            pass  # synchronous training was ended by another worker while this one waited for its next step
    return {**account.entry(), "spans": watch.done()}


def mini_batches(
    queue: Any, size: int, boards: DemoBoards, watch: Stopwatch
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut what comes through the queue into mini-batches (views, no copies) until the training is over."""
    while not boards.over():
        try:
            images, labels = queue.get(timeout=0.2)
        except Empty:
            watch.now("waiting for data")
            continue
        watch.now("training")
        for start in range(0, len(images), size):
            if boards.over():
                return
            yield images[start : start + size], labels[start : start + size]


class WorkerProgress:
    """Report one worker's rows and steps on the progress board, twice a second at most."""

    def __init__(self, worker: int, progress: Board) -> None:
        self._worker, self._progress = worker, progress
        self._rows = self._steps = 0
        self._reported_at = 0.0

    def add(self, rows: int) -> None:
        """Count one more step, on that many rows."""
        self._rows += rows
        self._steps += 1
        if time.time() - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = time.time()
            self._progress.append(self.entry())

    def entry(self) -> dict[str, Any]:
        """Return the account now."""
        return {"worker": self._worker, "rows": self._rows, "steps": self._steps, "time": time.time()}


@contextmanager
def means_applied(graph: Graph, opened: Callable[[bool], Any], *, chief: bool) -> Iterator[None]:
    """Do the chief's part of synchronous training: gather gradients, apply their mean, hand out tokens.

    In sessions of its own. Tokens that were lost with one are handed out again: a worker without one would wait for
    ever.

    Raises
    ------
    tf.errors.OpError
        It can't be done; then the training is ended, and this is raised behind it.
    """
    if graph.sync is None or not chief:
        yield
        return
    import tensorflow as tf

    sync, failures, over = graph.sync, list[Exception](), threading.Event()

    def with_tokens(again: bool) -> Any:
        session = opened(again)
        try:
            session.run(sync.first_tokens)
        except tf.errors.OpError:
            session.close()
            raise
        return session

    def apply_means() -> None:
        try:
            while True:
                session.run(sync.apply_mean)
        except (tf.errors.CancelledError, tf.errors.OutOfRangeError):
            pass  # the queue of tokens was closed: some worker has ended the training
        except Exception as error:
            if not over.is_set():
                failures.append(error)
                with suppress(Exception), opened(True) as ending:  # the workers find a queue of tokens that is closed
                    ending.run(sync.end)

    session = LastingSession(with_tokens)
    thread = threading.Thread(target=apply_means, name="apply-means", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        session.close()  # ends the call in which gradients are waited for
        thread.join(5)
    if failures:
        raise failures[0]


def score(task: DemoTask) -> dict[str, Any]:
    """Role ``scorer``: once a second, the mean cross-entropy and accuracy on rows that are not trained on."""
    watch, boards = Stopwatch("starting"), task.open_boards()
    mnist = load_mnist()
    images = flat(mnist.train_images[:NUM_VALIDATION_ROWS])
    labels = one_hot(mnist.train_labels[:NUM_VALIDATION_ROWS])
    with scoring_session(task) as (graph, session):
        watch.now("scoring")
        while not boards.over():
            begun = time.time()
            loss, accuracy, step = session.run(
                [graph.loss, graph.accuracy, graph.step], {graph.images: images, graph.labels: labels}
            )
            boards.scores.append({"loss": float(loss), "accuracy": float(accuracy), "step": int(step), "time": begun})
            while time.time() - begun < SCORE_EVERY_S and not boards.over():
                time.sleep(0.05)
    return {"spans": watch.done()}


def evaluate(task: DemoTask) -> dict[str, float]:
    """Evaluate on the scorer, when the training is over: loss and accuracy on the 10,000 test pictures."""
    mnist = load_mnist()
    with scoring_session(task) as (graph, session):
        loss, accuracy, step = session.run(
            [graph.loss, graph.accuracy, graph.step],
            {graph.images: flat(mnist.test_images), graph.labels: one_hot(mnist.test_labels)},
        )
    return {"test_loss": float(loss), "test_accuracy": float(accuracy), "step": int(step)}


@contextmanager
def scoring_session(task: DemoTask) -> Iterator[tuple[Graph, LastingSession]]:
    """Open a graph and a session of the scorer on the variables that the workers train."""
    server = get_worker().tensorflow_server
    index = server.server_def.task_index
    graph = build(task.cluster, "scorer", index)

    def opened(_: bool) -> Any:
        return open_session(graph, server.target, "scorer", index, chief=False, timeout_s=task.start_timeout_s)

    with LastingSession(opened) as session:
        yield graph, session
