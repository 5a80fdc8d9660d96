"""Runs in MLflow: one each, and a nested one per trial."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dask_train.extras import check_installed
from dask_train.logging.base import Ending, Logger, ModelSink, Score, Sink, Start
from dask_train.logging.mlflow_models import has_flavour, write_model
from dask_train.logging.points import Points

# What MLflow takes in one request, of a name, and of a parameter's value (mlflow/utils/validation.py).
MOST_METRICS, MOST_PARAMS = 1000, 100
MOST_LETTERS_OF_A_NAME, MOST_LETTERS = 250, 500
# MLflow itself tries to connect for minutes, which its environment variables alone can change.
REACH_S = 3.0

# The artifact that is a model of MLflow: `runs:/<run id>/model`.
MODEL = "model"
# Tags: the run's name, and where its checkpoints are, by which a run that resumes finds the one that it continues.
_RUN, _CHECKPOINT = "dask_train.run", "dask_train.checkpoint"

_STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class MLflow(Logger):
    """A run of MLflow for each run, with parameters, metrics by step and epoch, the model, the ledger and the report.

    Parameters
    ----------
    tracking_uri
        Of the server or store; what ``mlflow.set_tracking_uri`` or ``MLFLOW_TRACKING_URI`` say by default.
    experiment
        Its name; made if there is none. Default: ``"Default"``.
    tags
        More tags of each run. Default: none.

    Raises
    ------
    ImportError
        mlflow is not installed.

    Notes
    -----
    Needs mlflow, or mlflow-skinny, in the client's environment alone.

    With ``resume=True``, scores go to the last run of the experiment with the same checkpoints, if there is one. MLflow
    keeps the parameters that it has; the tag ``dask_train.changed`` names other values.
    """

    def __init__(
        self, tracking_uri: str | None = None, experiment: str | None = None, *, tags: Mapping[str, str] | None = None
    ) -> None:
        check_installed("dt.logging.MLflow", "mlflow", "pip install mlflow-skinny")
        self.tracking_uri, self.experiment, self.tags = tracking_uri, experiment, dict(tags or {})
        self.place = f"MLflow at {tracking_uri}" if tracking_uri else "MLflow"

    def open(self, start: Start, parent: Sink | None) -> Sink:
        """See :meth:`Logger.open`."""
        from mlflow import MlflowClient, get_tracking_uri

        uri = self.tracking_uri or get_tracking_uri()
        return _MLflowRun(self, MlflowClient(tracking_uri=uri), uri, start, parent)


class _MLflowRun(ModelSink):
    def __init__(self, logger: MLflow, client: Any, uri: str, start: Start, parent: Sink | None) -> None:
        self._logger, self._client, self._uri, self._start = logger, client, uri, start
        self._parent = parent if isinstance(parent, _MLflowRun) else None
        self._points = Points()
        self._scores: list[Score] = []  # of which no points are made yet: where counts begin is known with the run
        self._pending: list[Any] = []
        self._id = ""
        self._before: dict[str, str] = {}
        self._params_sent = False

    def write(self, scores: Sequence[Score]) -> None:
        from mlflow.entities import Metric

        self._scores += scores
        run = self._run()
        points = self._points.of(self._scores)
        self._pending += [Metric(_name(p.name), p.value, int(p.time * 1000), p.step) for p in points]
        self._scores.clear()
        while self._pending:
            self._client.log_batch(run, metrics=self._pending[:MOST_METRICS])
            del self._pending[:MOST_METRICS]

    def end(self, ending: Ending) -> None:
        run = self._run()
        for name, value in ending.values.items():
            self._client.log_metric(run, _name(name), value, timestamp=int(ending.time * 1000))
        self._client.set_tag(run, "dask_train.ended", ending.reason[:5000] or ending.status)
        self._client.set_terminated(run, _STATUS[ending.status], int(ending.time * 1000))

    def keep(self, files: Sequence[Path]) -> None:
        run = self._run()
        for file in files:
            self._client.log_artifact(run, str(file))

    def keep_model(self, model: Any, example: Any) -> None:
        if not has_flavour(model):
            return
        run = self._run()
        with TemporaryDirectory(prefix="dask-train-mlflow-") as folder:
            try:
                write_model(model, Path(folder) / MODEL, example)
            except Exception as error:  # of MLflow's own, or of what it saves with; the model's file is there
                self._client.set_tag(
                    run, "dask_train.model", f"not in MLflow's format: {type(error).__name__}: {error}"[:5000]
                )
            else:
                self._client.log_artifacts(run, str(Path(folder) / MODEL), MODEL)

    def _run(self) -> str:
        """Return the id of the run, which is made, with its parameters, at first."""
        _check_reached(self._uri)
        if not self._id:
            experiment = self._experiment()
            self._id = self._resumed(experiment) or self._made(experiment)
        if not self._params_sent:
            for params in _portions(self._fresh_params()):
                self._client.log_batch(self._id, params=params)
            self._params_sent = True
        return self._id

    def _made(self, experiment: str) -> str:
        tags = {**self._logger.tags, _RUN: self._start.run}
        if self._start.checkpoint:
            tags[_CHECKPOINT] = self._start.checkpoint
        if self._parent is not None:
            tags["mlflow.parentRunId"] = self._parent._run()
        run = self._client.create_run(
            experiment, start_time=int(self._start.time * 1000), tags=tags, run_name=self._start.run
        )
        return str(run.info.run_id)

    def _resumed(self, experiment: str) -> str:
        """Return the run that is continued: the last one with these checkpoints; empty if there is none."""
        if not self._start.resumes:
            return ""
        quote = "'" if '"' in self._start.checkpoint else '"'
        tag_filter = f"tags.`{_CHECKPOINT}` = {quote}{self._start.checkpoint}{quote}"
        latest = ["attributes.start_time DESC"]
        for run in self._client.search_runs([experiment], filter_string=tag_filter, order_by=latest, max_results=1):
            self._before = dict(run.data.params)
            self._points = Points(1 + max((metric.step for metric in run.data.to_proto().metrics), default=-1))
            self._client.update_run(run.info.run_id, status="RUNNING")
            self._client.set_tag(run.info.run_id, _RUN, self._start.run)
            return str(run.info.run_id)
        return ""

    def _fresh_params(self) -> dict[str, str]:
        """Return the parameters; of a run that is continued those that it lacks, since MLflow changes none."""
        params = {_name(name): str(value)[:MOST_LETTERS] for name, value in self._start.params.items()}
        changed = [f"{name}: {value}" for name, value in params.items() if self._before.get(name, value) != value]
        if changed:
            self._client.set_tag(self._id, "dask_train.changed", ", ".join(changed)[:5000])
        return {name: value for name, value in params.items() if name not in self._before}

    def _experiment(self) -> str:
        name = self._logger.experiment or "Default"
        experiment = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if experiment is None else experiment.experiment_id)


def _portions(params: Mapping[str, str]) -> Iterator[list[Any]]:
    from mlflow.entities import Param

    all_of_them = [Param(name, value) for name, value in params.items()]
    for at in range(0, len(all_of_them), MOST_PARAMS):
        yield all_of_them[at : at + MOST_PARAMS]


def _name(name: str) -> str:
    """Return a name with the letters that MLflow takes."""
    allowed = "".join(letter if letter.isalnum() or letter in "_-./: " else "_" for letter in name)
    # It refuses what is another path when it is made short, such as `a//b`, and what lies outside, such as `/a`.
    path = "/".join(part if part.strip(".") else "_" for part in allowed.split("/"))
    if len(path) > MOST_LETTERS_OF_A_NAME:
        path = path[:MOST_LETTERS_OF_A_NAME].rstrip("/.")
    return f"_{path[1:]}" if path.startswith("..") else path


def _check_reached(uri: str) -> None:
    """Raise an OSError if no server listens at an address; one that is reached by a proxy is not looked for."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https") and parts.hostname:
        host = parts.netloc.rpartition("@")[2]
        if getproxies().keys() & {parts.scheme, "all"} and not proxy_bypass(host):
            return
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), REACH_S).close()
