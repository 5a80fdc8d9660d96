"""A fit that has been checked: its rows, its problem, and the run on the cluster that solves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
from dask.array.utils import meta_from_array
from scipy.sparse import issparse

from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.collections.blocks import delayed_blocks
from dask_train.driver.result import Result
from dask_train.linear_model.packed import packed
from dask_train.linear_model.rank_role import FOUND, Linear, LinearInPlace, LinearRole
from dask_train.linear_model.ranks import Ranks
from dask_train.report.progress import RunDisplay
from dask_train.trainers.common.outcome import Outcome
from dask_train.trainers.common.task import LoopTask
from dask_train.training.in_process import is_zero, run_in_process
from dask_train.training.launch import launch
from dask_train.training.settings import RunInputs, RunSettings


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
    """

    columns: tuple[Any, ...]
    problem: Callable[[Ranks], Any]
    take: Callable[[Any], None]

    @frees_its_thread
    def start(
        self,
        run: RunSettings,
        workers: int | None,
        *,
        finish: Callable[[Result], Any],
        task: LoopTask | None = None,
        display: Callable[..., RunDisplay] = RunDisplay,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """Start the run that solves the problem, and return what it comes to.

        Parameters
        ----------
        run
            Settings.
        workers
            Number of role processes; None for one per Dask worker, 0 for this process.
        finish
            Makes the result of the run's.
        task
            Loop of a run that the user holds. Default: of one without a handle.
        display
            Shows how the run goes.
        params
            For the loggers.

        Returns
        -------
        What ``finish`` makes, or a Run where ``run.wait`` is false.

        Raises
        ------
        ValueError
            A rank has refused the data.
        DaskTrainError
            As :func:`dask_train.train` raises it.
        """
        data: Any = self.columns
        if issparse(data[0]):
            rows = -(-data[0].shape[0] // (workers or 1))
            data = [da.from_array(each, chunks=(rows, *each.shape[1:]), asarray=False) for each in data]
        is_packed = issparse(meta_from_array(data[0]))
        if is_packed:
            data = [dask.delayed(packed, pure=False)(*parts) for parts in zip(*delayed_blocks(data), strict=True)]
        held = task is not None
        in_place = run.recovery is not None and run.recovery.scope == "in_place"
        begin: Any = run_in_process if is_zero(workers) else launch
        return begin(
            LinearRole(
                problem=self.problem,
                task=task or LoopTask(),
                is_packed=is_packed,
                is_held=held,
                in_place=in_place,
            ),
            None if workers is None else {"worker": workers},
            RunInputs(data=data),
            run,
            framework=LinearInPlace() if in_place else Linear(),
            finish=finish,
            display=display,
            params=params,
        )

    def taken(self, result: Result) -> Outcome | None:
        """Let the estimator take over what a run has found; return what the first worker has returned, if it has."""
        outcome: Outcome | None = result.results["worker"][0]
        if outcome is not None:
            self.take(outcome.header[FOUND])
        return outcome
