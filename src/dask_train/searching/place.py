"""Where a search is done: a cluster with the data in shared memory, and the processes that train trials.

A checksum of the rows tells whether a search resumes with the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

from dask_train.cluster.clients import client_or_local
from dask_train.cluster.peer import Peer
from dask_train.collections.blocks import delayed_blocks
from dask_train.collections.schema.category import missing_values
from dask_train.data.row_sums import row_sums
from dask_train.driver.handle import Run
from dask_train.driver.preflight import check_checkpoints
from dask_train.driver.settings import RunInputs, RunSettings
from dask_train.fitting.spec import VALIDATION
from dask_train.inputs.data import InputData, check_some_rows
from dask_train.searching.checks import categories_of, described
from dask_train.searching.pool import PoolSettings, Slots
from dask_train.searching.room import capacity_of, entered, room_of, run_of_trials, runs_on_host
from dask_train.searching.study import Study
from dask_train.shared_data.budget import RoleMemory
from dask_train.shared_data.held import HeldDataSets
from dask_train.shared_data.segments import SharedSegments

if TYPE_CHECKING:
    from dask_train.checkpoint.place import CheckpointPlace
    from dask_train.cluster.clients import Client


DATA, VALIDATION_DATA = "data", "validation_data"


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """The cluster, and the data of a search there.

    Attributes
    ----------
    data
        Data sets by name, whose columns know the rows.
    """

    client: Client
    peer: Peer
    data: Mapping[str, InputData]
    datasets: HeldDataSets
    run: RunSettings
    pool: PoolSettings

    @property
    def description(self) -> dict[str, str]:
        """Return rows, columns, values and categories of the data as texts, which a kept search is compared by."""
        segments = self.datasets.segments
        rows = {what: described(each) for what, each in segments.items()}
        values = {f"checksum of {what}": checksum_of(each, self.client) for what, each in segments.items()}
        return rows | values | categories_of(self.data[DATA].schema)

    def labels(self) -> np.ndarray:
        """Return the different labels of what is trained on, ascending; only these come to this process."""
        number = self.data[DATA].columns.labels
        assert isinstance(number, int)
        blocks = self.datasets.segments[DATA].array(number).to_delayed().ravel()
        by_block = self.client.compute([dask.delayed(np.unique, pure=False)(block) for block in blocks], sync=True)
        labels: np.ndarray = np.unique(np.concatenate(by_block))
        return labels

    def missing(self) -> str:
        """Return an error's text about missing categories of features, which lie there as -1; ``""`` if none is."""
        for what, data in self.data.items():
            for number, codes in data.codes.items():
                blocks = self.datasets.segments[what].array(number).to_delayed().ravel()
                count = dask.delayed(partial(_num_missing, [place for place, _ in codes]), pure=False)
                counts = np.sum(self.client.compute(list(map(count, blocks)), sync=True), axis=0)
                for (_, name), num_missing in zip(codes, counts, strict=True):
                    if num_missing:
                        return missing_values(what, name, int(num_missing))
        return ""

    def slots(
        self, start: Callable[[RunInputs, RunSettings], Run[Any] | None], study: Study, *, num_trials: int
    ) -> Slots:
        """Return processes that train the trials of a study.

        Parameters
        ----------
        start
            Starts the run of a slot; None if there is no trial for it.
        study
            Gives the trials.
        num_trials
            Number of trials, at most.
        """
        pool, segments, needs = self.pool, self.datasets.segments, _needs(self.run)
        most = min(num_trials, pool.concurrency or num_trials)
        datasets = {VALIDATION: segments[VALIDATION_DATA]} if VALIDATION_DATA in segments else {}
        inputs = RunInputs(data={"worker": segments[DATA]}, datasets=datasets)
        on_host = runs_on_host(room_of(self.peer, self.run.on, needs), pool.workers, most)
        return Slots(
            self.peer,
            pool,
            study,
            start=partial(start, inputs, run_of_trials(self.run, self.client, on_host)),
            capacity=partial(capacity_of, self.peer, self.run.on, needs),
        )


def _num_missing(places: Sequence[int], block: np.ndarray) -> np.ndarray:
    columns = block.reshape(len(block), -1)
    return np.array([np.count_nonzero(columns[:, place] < 0) for place in places])


def _needs(run: RunSettings) -> Mapping[str, Any]:
    return run.needs(["worker"]).get("worker", {})


def checked(data: Mapping[str, InputData], run: RunSettings) -> dict[str, InputData]:
    """Return the data sets as runs take them, and see what can be seen of them and of the run without a cluster.

    Raises
    ------
    ValueError, TypeError
        There are no rows, or the run is invalid.
    """
    _needs(run)
    sources = {what: each.source(what) for what, each in data.items()}
    for what, source in sources.items():
        check_some_rows("The data" if what == DATA else what, source)
    return {what: replace(each, opened=sources[what]) for what, each in data.items()}


@contextmanager
def opened(
    data: Mapping[str, InputData], run: RunSettings, pool: PoolSettings, keeps: CheckpointPlace | None = None
) -> Iterator[DataPlace]:
    """Open the cluster, with the data in shared memory, which is released in the end.

    Parameters
    ----------
    data
        As :func:`checked` returns it.
    keeps
        Where trials keep checkpoints; None if they keep none.
    """
    client = client_or_local(run.client, 0)
    peer = entered(client, run.on, _needs(run), pool.workers)
    peer.run(check_checkpoints, peer, keeps, run.on)
    datasets = HeldDataSets(peer, {what: each.source(what) for what, each in data.items()})
    try:
        datasets.compute(RoleMemory.of(pool.framework, pool.workers * (pool.concurrency or 1)))
        known = {
            what: replace(each, columns=each.columns.with_rows(datasets.segments[what].schema.in_batch))
            for what, each in data.items()
        }
        yield DataPlace(client=client, peer=peer, data=known, datasets=datasets, run=run, pool=pool)
    finally:
        datasets.release()


def checksum_of(segments: SharedSegments, client: Client) -> str:
    """Return a text that changes where a value or its place does; the same however rows are cut into partitions.

    It is computed where the rows lie.
    """
    blocks = zip(*delayed_blocks([segments.array(number) for number in range(len(segments.columns))]), strict=True)
    firsts = np.cumsum([0, *segments.lengths[:-1]]).tolist()
    of_part = dask.delayed(checksum_of_part, pure=False)
    parts = [of_part(list(columns), first) for columns, first in zip(blocks, firsts, strict=True)]
    return f"{sum(client.compute(parts, sync=True)) % 2**64:016x}"


def checksum_of_part(columns: Sequence[np.ndarray], first: int) -> int:
    """Return the checksum of the rows of a part, of which that of the data set is the sum, modulo 2**64.

    Parameters
    ----------
    columns
        Arrays with a row for each row.
    first
        The number of the first row.
    """
    return int(row_sums(columns, first)[-1])
