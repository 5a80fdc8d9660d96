"""The main job as a person runs it: a live line, a summary, ``report.html``."""

from __future__ import annotations

import logging
import math
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
from distributed import Client

from dask_train.cluster.local import local_client
from dask_train.demo.live import DemoProgress, LiveLine
from dask_train.demo.pipeline import DemoOutcome, DemoSettings, PreparedData, pictures, prepare, train_until_good_enough
from dask_train.demo.roles import DemoBoards
from dask_train.extras import check_installed, install_command
from dask_train.report import RoleTimeline, RunRecord, Score, Span, write_report
from dask_train.tensorflow_network.api import TensorFlowNetwork, start_tensorflow


class MainJob:
    """One run of the main job: what it has done so far, and how it is shown.

    Parameters
    ----------
    settings
        The size of the job.
    line
        Where progress is shown.
    """

    def __init__(self, settings: DemoSettings, line: LiveLine) -> None:
        self._settings = settings
        self._line = line
        self._begun = time.time()
        self._phases: list[Span] = []
        self._prepared = 0
        self._total = settings.copies * 55_000

    def run(self, client: Client, *, keep_cluster: bool) -> tuple[DemoOutcome, RunRecord]:
        """Prepare, raise the network, train, and close it where the cluster lives on."""
        with self.phase("preparing", "prepared", f"{self._total:,} rows of {self._settings.copies} x MNIST"):
            prepared = prepare(client, self._settings, self._preparing)
        with self.phase("drawing", "drawn", "one image, mean and variance of all"):
            shown = pictures(prepared)
        with self.phase("raising", "raised", f"ps={self._settings.ps}, worker={self._settings.workers}, scorer=1"):
            net = start_tensorflow(client, ps=self._settings.ps, worker=self._settings.workers, scorer=1, queue_size=2)
        with net if keep_cluster else nullcontext():  # a cluster that ends now takes its network with it
            try:
                with self.phase("training", "trained", "synchronously" if self._settings.sync else "asynchronously"):
                    outcome = train_until_good_enough(net, prepared, self._settings, self._training)
            finally:
                prepared.release()  # so that nothing needs to be moved when the network closes
        return outcome, self._record(net, outcome, shown)

    @contextmanager
    def phase(self, doing: str, done: str, detail: str) -> Iterator[None]:
        """Show and note a phase of the job."""
        start = time.time()
        self._show(doing)
        over = threading.Event()
        clock = threading.Thread(target=self._keep_time, args=(over,), daemon=True)
        clock.start()
        try:
            yield
        finally:
            over.set()
            clock.join()
        end = time.time()
        self._phases.append(Span(name=doing, start_s=start - self._begun, end_s=end - self._begun))
        self._line.phase_done(done, end - start, detail)

    def _keep_time(self, over: threading.Event) -> None:
        """Show the seconds go by, also if nothing else is reported."""
        while not over.wait(0.5):
            self._line.update(replace(self._shown, elapsed_s=time.time() - self._begun))

    def _preparing(self, prepared: PreparedData) -> None:
        self._prepared = prepared.rows_ready()
        self._show("preparing")

    def _training(self, boards: DemoBoards) -> None:
        last = {entry["worker"]: entry for entry in boards.progress}
        rows = sum(entry["rows"] for entry in last.values())
        recent = [entry for entry in boards.progress if entry["time"] > time.time() - 5]
        first = {entry["worker"]: entry for entry in reversed(recent)}
        rate = sum(
            (last[w]["rows"] - entry["rows"]) / (last[w]["time"] - entry["time"])
            for w, entry in first.items()
            if last[w]["time"] > entry["time"]
        )
        self._show("training", rows=rows, rate=rate, score=boards.scores[-1]["loss"] if boards.scores else None)

    def _show(self, phase: str, rows: int = 0, rate: float = 0.0, score: float | None = None) -> None:
        self._shown = DemoProgress(
            phase=phase,
            rows_prepared=self._prepared,
            rows_total=self._total,
            rows_trained=rows,
            rows_per_s=rate,
            score=score,
            target=self._settings.target,
            elapsed_s=time.time() - self._begun,
        )
        self._line.update(self._shown)

    def _record(self, net: TensorFlowNetwork, outcome: DemoOutcome, shown: dict[str, np.ndarray]) -> RunRecord:
        def span(name: str, start: float, end: float) -> Span:
            return Span(name=name, start_s=start - self._begun, end_s=end - self._begun)

        roles = tuple(
            RoleTimeline(
                role=job, rank=rank, address=address, spans=tuple(span(*s) for s in outcome.roles[job][rank]["spans"])
            )
            for job, rank, address in net.dask_spec.tasks()
        )
        scores = tuple(
            Score(
                time_s=score["time"] - self._begun,
                loss=score["loss"],
                accuracy=score["accuracy"],
                step=int(score["step"]),
                rows_trained=int(score["step"]) * self._settings.batch_size if not self._settings.sync else None,
            )
            for score in outcome.scores
            if math.isfinite(score["loss"])  # a training that diverged ends without reaching its target
        )
        return RunRecord(
            title="MNIST on Dask and TensorFlow",
            target_loss=self._settings.target,
            scores=scores,
            phases=tuple(self._phases),
            roles=roles,
            pictures=shown,
            summary=self._summary(outcome),
            machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        )

    def _summary(self, outcome: DemoOutcome) -> tuple[tuple[str, str], ...]:
        return (
            ("rows prepared", f"{self._total:,}"),
            ("rows trained", f"{outcome.rows_trained:,}"),
            ("rows trained a second", f"{outcome.rows_trained / outcome.seconds:,.0f}"),
            ("passes over the data", f"{outcome.rows_trained / self._total:.2f}"),
            ("training", "synchronous" if self._settings.sync else "asynchronous"),
            ("steps", f"{outcome.test['step']:,.0f}"),
            ("validation cross-entropy", f"{outcome.scores[-1]['loss']:.4f}" if outcome.scores else "none"),
            ("target", f"{self._settings.target:g} {'reached' if outcome.good_enough else 'not reached'}"),
            ("test cross-entropy", f"{outcome.test['test_loss']:.4f}"),
            *((f"seconds: {span.name}", f"{span.duration_s:.1f}") for span in self._phases),
            ("test accuracy", f"{100 * outcome.test['test_accuracy']:.1f}%"),
        )


def own_cluster(settings: DemoSettings) -> AbstractContextManager[Client]:
    """Return a client of a local cluster with a Dask worker for each task, in which nothing is spilled or paused."""
    num_tasks = settings.ps + settings.workers + 1
    quiet = {"silence_logs": logging.CRITICAL, "env": {"TF_CPP_MIN_LOG_LEVEL": "2"}}  # errors reach the client anyway
    return local_client(num_tasks, memory_limit=0, **quiet)


def run_main_job(
    settings: DemoSettings, *, scheduler: str | None, report: Path, line: LiveLine
) -> tuple[DemoOutcome, RunRecord]:
    """Run the main job on a local cluster of its own, or on the one at ``scheduler``, and write its report.

    Raises
    ------
    ImportError
        TensorFlow or matplotlib is not installed; nothing has been started.
    DaskTrainError
        The network can't be raised, or a role of it failed or was lost.
    """
    check_installed("The demo's report", "matplotlib", install_command("plots"))
    check_installed("The demo", "tensorflow", install_command("tensorflow"))
    job = MainJob(settings, line)
    with ExitStack() as stack:
        where = f"{settings.ps + settings.workers + 1} local processes" if scheduler is None else scheduler
        with job.phase("starting", "started", where):
            client = stack.enter_context(own_cluster(settings) if scheduler is None else Client(scheduler))
        outcome, record = job.run(client, keep_cluster=scheduler is not None)
    write_report(record, report)
    return outcome, record
