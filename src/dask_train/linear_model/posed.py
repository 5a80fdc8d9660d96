"""A fit that has been checked: its rows, its problem, and the run on the cluster that solves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scipy.sparse import issparse

from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.collections.blocks import array_of_views
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.driver.result import Result
from dask_train.driver.settings import RunInputs, RunSettings
from dask_train.linear_model.rank_role import FOUND, Linear, LinearRole
from dask_train.linear_model.ranks import Ranks
from dask_train.report.progress import RunDisplay
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.task import LoopTask
from dask_train.training.in_process import is_zero, run_in_process
from dask_train.training.launch import launch


@dataclass(frozen=True, kw_only=True)
class Posed:
    """A fit of an estimator, about to begin.

    Attributes
    ----------
    columns
        Features, targets and perhaps weights.
    problem
        Called with the ranks that solve it.
    take
        Lets the estimator take over what they have found.
    learnt
        Attributes that the estimator has of these rows, as soon as it takes over: the schema, and names of features.
    schema
        What the columns of a frame are, also of one that was published, and of its targets; None if there was none.
    """

    columns: tuple[Any, ...]
    problem: Callable[[Ranks], Any]
    take: Callable[[Any], None]
    learnt: Mapping[str, Any] = field(default_factory=dict)
    schema: FrameSchema | None = None

    def inputs(self, workers: int | None) -> RunInputs:
        """Return the rows as a run takes them; sparse ones in memory are cut for so many workers."""
        data: Any = self.columns
        if issparse(data[0]):
            rows = -(-data[0].shape[0] // (workers or 1))
            data = tuple(array_of_views(each, rows) for each in data)
        return RunInputs(data=data)

    def role(self, task: LoopTask | None = None, *, in_place: bool = False) -> LinearRole:
        """Return what the workers do.

        Parameters
        ----------
        task
            The loop of a run that the user holds. Default: none does.
        in_place
            Whether a lost worker is to be replaced while the others wait.
        """
        return LinearRole(
            problem=self.problem,
            task=task or LoopTask(),
            is_held=task is not None,
            in_place=in_place,
        )

    @frees_its_thread
    def start(
        self,
        run: RunSettings,
        workers: int | None,
        *,
        finish: Callable[[Result], Any],
        display: Callable[..., RunDisplay],
    ) -> Any:
        """Start a run without a handle that solves the problem, and return what it comes to.

        Parameters
        ----------
        run
            Settings.
        workers
            Number of role processes, 0 for this process; None for one per Dask worker.
        finish
            Makes the result of the run's.
        display
            Shows how the run goes.

        Returns
        -------
        What ``finish`` makes.

        Raises
        ------
        ValueError
            A rank has refused the data.
        DaskTrainError
            As :func:`dask_train.train` raises it.
        """
        begin: Any = run_in_process if is_zero(workers) else launch
        return begin(
            self.role(),
            None if workers is None else {"worker": workers},
            self.inputs(workers),
            run,
            framework=Linear(),
            finish=finish,
            display=display,
        )

    def taken(self, result: Result) -> Outcome | None:
        """Let the estimator take over what a run has found; return what the first worker has returned, if it has."""
        outcome: Outcome | None = result.results["worker"][0]
        if outcome is not None:
            self.take(outcome.header[FOUND])
        return outcome
