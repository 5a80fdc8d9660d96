"""The main job, step by step: prepare, look at the data, train until the score is good enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, Future, futures_of

from dask_train.config import Deadlines
from dask_train.datasets import load_mnist
from dask_train.demo.graph import CLASSES, PIXELS
from dask_train.demo.roles import (
    NUM_VALIDATION_ROWS,
    DemoBoards,
    DemoTask,
    evaluate,
    flat,
    one_hot,
    score,
    serve,
    train,
)
from dask_train.errors import DaskTrainError, RoleFailedError, StalledError
from dask_train.tensorflow_network.api import TensorFlowNetwork

TICK_S = 0.25


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """The size of the main job.

    Attributes
    ----------
    copies
        How often MNIST's 55,000 training rows are repeated.
    rows_per_batch
        Rows of one batch on its way into a queue; a worker cuts it into mini-batches of ``batch_size``.
    target
        The mean validation cross-entropy that ends the training.
    max_seconds
        When training ends without it.
    """

    copies: int = 20
    ps: int = 1
    workers: int = 4
    rows_per_batch: int = 10_000
    batch_size: int = 100
    learning_rate: float = 0.001
    target: float = 0.08
    max_seconds: float = 120.0
    sync: bool = False


@dataclass
class PreparedData:
    """The data set in the cluster's memory.

    Attributes
    ----------
    images, labels
        Persisted dask arrays (rows, 784) and (rows, 10), both float32.
    batches
        Futures of ``[images, labels]``, the blocks of both arrays; they share their memory.
    """

    images: Any
    labels: Any
    batches: list[Future] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return int(self.images.shape[0])

    def rows_ready(self) -> int:
        """Return rows that are in memory by now."""
        ready = [future.key for future in futures_of(self.images) if future.status == "finished"]
        return int(sum(self.images.chunks[0][key[1]] for key in ready))

    def release(self) -> None:
        """Let Dask free the data set."""
        self.batches.clear()
        self.images = self.labels = None


def training_rows(part: str) -> np.ndarray:
    """MNIST's rows but the validation rows: ``images`` (55000, 784) or ``labels`` (55000, 10), float32."""
    mnist = load_mnist()
    if part == "images":
        return flat(mnist.train_images[NUM_VALIDATION_ROWS:])
    return one_hot(mnist.train_labels[NUM_VALIDATION_ROWS:])


def mnist_many_times(copies: int, rows_per_batch: int) -> tuple[Any, Any]:
    """MNIST's training rows ``copies`` times, as lazy dask arrays of images and labels, rechunked."""
    rows = 60_000 - NUM_VALIDATION_ROWS

    def repeated(part: str, columns: int) -> Any:
        loads = [dask.delayed(training_rows, pure=False)(part) for _ in range(copies)]
        parts = [da.from_delayed(load, shape=(rows, columns), dtype="float32") for load in loads]
        return da.concatenate(parts, axis=0).rechunk((rows_per_batch, columns))

    return repeated("images", PIXELS), repeated("labels", CLASSES)


def prepare(client: Client, settings: DemoSettings, tick: Callable[[PreparedData], None]) -> PreparedData:
    """Compute the data set into the cluster's memory; ``tick`` is called while it grows.

    Raises
    ------
    DataError
        MNIST can't be had.
    """
    images, labels = mnist_many_times(settings.copies, settings.rows_per_batch)
    images, labels = client.persist([images, labels])
    blocks = zip(images.to_delayed().flatten(), labels.to_delayed().flatten(), strict=True)
    prepared = PreparedData(images, labels, client.compute([dask.delayed(list)(list(pair)) for pair in blocks]))
    while any(not future.done() for future in prepared.batches):
        tick(prepared)
        time.sleep(TICK_S)
    for future in prepared.batches:
        future.result(timeout=0) if future.status == "error" else None
    tick(prepared)
    return prepared


def pictures(prepared: PreparedData) -> dict[str, np.ndarray]:
    """Return one image, the mean and the variance of all, each (28, 28) float32: dask.array at work on the data set."""
    images = prepared.images
    one, mean, variance = dask.compute(images[1], images.mean(axis=0), images.var(axis=0))
    return {name: rows.reshape(28, 28) for name, rows in {"one image": one, "mean": mean, "variance": variance}.items()}


@dataclass(frozen=True, kw_only=True)
class DemoOutcome:
    """What the training came to.

    Attributes
    ----------
    good_enough
        Whether a score reached the target before the time was up.
    seconds
        From the first batch fed to the last worker's end.
    passes
        How often the data set was begun to be fed.
    scores
        What the scorer put on its board: dicts of ``loss``, ``accuracy``, ``step`` and ``time``.
    roles
        What each role returned, by job and index.
    test
        ``test_loss``, ``test_accuracy`` and the global ``step`` at the end.
    """

    good_enough: bool
    seconds: float
    passes: int
    scores: list[dict[str, float]]
    roles: dict[str, list[dict[str, Any]]]
    test: dict[str, float]

    @property
    def rows_trained(self) -> int:
        """Rows in all mini-batches of all workers; a row counts as often as it was trained on."""
        return sum(account["rows"] for account in self.roles["worker"])


def train_until_good_enough(
    net: TensorFlowNetwork, prepared: PreparedData, settings: DemoSettings, tick: Callable[[DemoBoards], None]
) -> DemoOutcome:
    """Feed the data set again and again until the scorer's score reaches the target, or the time is up.

    Raises
    ------
    RoleFailedError
        A role raised.
    RoleLostError
        A Dask worker of the network died.
    """
    task = DemoTask(
        cluster=net.tf_spec.as_dict(),
        boards=net.id,
        target=settings.target,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        sync=settings.sync,
        start_timeout_s=Deadlines.from_dask_config().launch_s,
    )
    boards = task.open_boards()
    roles = {job: net.submit(job, role, task) for job, role in (("ps", serve), ("worker", train), ("scorer", score))}
    begun = time.monotonic()
    try:
        passes = feed_until_over(net, prepared, boards, roles, begun + settings.max_seconds, tick)
        good_enough = boards.good_enough()
    finally:
        boards.stop.append("the client has ended the training")
    results = {job: results_of(job, futures) for job, futures in roles.items()}
    seconds = time.monotonic() - begun
    test = results_of("scorer", net.submit("scorer", evaluate, task))[0]
    outcome = DemoOutcome(
        good_enough=good_enough, seconds=seconds, passes=passes, scores=list(boards.scores), roles=results, test=test
    )
    for board in (boards.scores, boards.progress, boards.stop):
        board.delete()
    return outcome


def feed_until_over(
    net: TensorFlowNetwork,
    prepared: PreparedData,
    boards: DemoBoards,
    roles: dict[str, list[Future]],
    deadline: float,
    tick: Callable[[DemoBoards], None],
) -> int:
    """Feed pass after pass; how many were begun."""
    passes = 0
    feed = None
    while not boards.good_enough() and time.monotonic() < deadline:
        if feed is None or not feed.waiting:
            feed = net.feed(prepared.batches, to="worker")
            passes += 1
        with suppress(StalledError):  # the usual case: there is no room in the queues yet
            feed.wait(TICK_S)
        tick(boards)
        for job, futures in roles.items():
            for index, future in enumerate(futures):
                if future.status == "error":  # the others continue, and are not waited for
                    result_of(job, index, future)
    if feed is not None:
        feed.cancel()
    return passes


def results_of(job: str, futures: list[Future]) -> list[Any]:
    """Return what the roles of a job returned; raises as :func:`result_of`."""
    return [result_of(job, index, future) for index, future in enumerate(futures)]


def result_of(job: str, index: int, future: Future) -> Any:
    """Return what one role returned.

    Raises
    ------
    RoleFailedError
        It raised; the original error is the cause.
    StalledError
        It did not end.
    """
    deadline_s = Deadlines.from_dask_config().progress_s
    try:
        return future.result(timeout=deadline_s)
    except DaskTrainError:
        raise
    except TimeoutError as error:
        raise StalledError(f"{job} {index} did not end within {deadline_s:g} s.") from error
    except Exception as error:
        raise RoleFailedError(f"{job} {index} raised {type(error).__name__}: {error}") from error
