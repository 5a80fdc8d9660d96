"""Runs in Weights & Biases: one each, trials grouped by their search."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dask_train.extras import check_installed
from dask_train.logging.base import Ending, Logger, Score, Sink, Start
from dask_train.logging.points import Points


class WandB(Logger):
    """A run of Weights & Biases for each run, and for each trial of a search, which are grouped by its name.

    Parameters
    ----------
    project
        Name of the project. Default: that of the environment, or W&B's own.
    **settings
        More of what ``wandb.init`` takes, such as ``entity``, ``mode="offline"`` or ``dir``.

    Raises
    ------
    ImportError
        wandb is not installed.

    Notes
    -----
    Needs wandb, in the client's environment alone. Curves have the axes that their scores have, such as ``epoch``
    and ``step``, which are logged with them.
    """

    def __init__(self, project: str | None = None, **settings: Any) -> None:
        check_installed("dt.logging.WandB", "wandb", "pip install wandb")
        self.project, self.settings = project, settings
        self.place = f"Weights & Biases, project {project!r}" if project else "Weights & Biases"

    def open(self, start: Start, parent: Sink | None) -> Sink:
        """See :meth:`Logger.open`."""
        return _WandBRun(self, start, parent.name if isinstance(parent, _WandBRun) else None)


class _WandBRun(Sink):
    def __init__(self, logger: WandB, start: Start, group: str | None) -> None:
        self.name = start.run
        self._logger, self._start, self._group = logger, start, group
        self._points = Points()
        self._pending = deque[dict[str, float]]()
        self._run: Any = None
        self._id = ""

    def write(self, scores: Sequence[Score]) -> None:
        for score in scores:
            if points := self._points.of([score]):
                values = {point.name: point.value for point in points}
                self._pending.append({**values, points[0].along: points[0].step})
        run = self._opened()
        while self._pending:
            run.log(self._pending[0])
            self._pending.popleft()

    def end(self, ending: Ending) -> None:
        run = self._opened()
        run.summary.update({**ending.values, "ended": ending.reason or ending.status})
        run.finish(exit_code=0 if ending.status == "finished" else 1)
        self._run = None

    def keep(self, files: Sequence[Path]) -> None:
        was_open = self._run is not None
        run = self._opened()
        from wandb import Artifact

        artifact = Artifact(f"run-{self._id}", type="dask-train")
        for file in files:
            artifact.add_file(str(file))  # copied: these files are gone soon
        run.log_artifact(artifact)
        if not was_open:
            run.finish()
            self._run = None

    def _opened(self) -> Any:
        """Return the run, made at first; one that has ended is resumed."""
        if self._run is None:
            import wandb

            settings = {"project": self._logger.project, "name": self.name, "group": self._group}
            again = {"id": self._id, "resume": "allow"} if self._id else {}
            self._run = wandb.init(
                **{
                    "reinit": "create_new",
                    "config": dict(self._start.params),
                    **settings,
                    **self._logger.settings,
                    **again,
                }
            )
            self._id = str(self._run.id)
        return self._run
