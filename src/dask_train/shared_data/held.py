"""Data sets that are put into shared memory once, for several runs one after the other, and released in the end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from distributed.client import ClosedClientError

from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.collections.source import Source
from dask_train.errors import DaskTrainError
from dask_train.shared_data.budget import RoleMemory, check_budget, tell_of_second_copies
from dask_train.shared_data.published import computed
from dask_train.shared_data.run_data import DataSetOnDask
from dask_train.shared_data.segments import SharedSegments


class HeldDataSets:
    """Data sets as segments; those that were there before are taken as they are, and stay.

    Parameters
    ----------
    peer
        The client.
    sources
        By what they are called in errors.

    Attributes
    ----------
    segments
        By the same names, once :meth:`compute` has returned.
    """

    def __init__(self, peer: Peer, sources: Mapping[str, Source | SharedSegments]) -> None:
        self._peer, self._sources = peer, sources
        self._made: list[DataSetOnDask] = []
        self.segments: dict[str, SharedSegments] = {}

    def compute(self, roles: RoleMemory) -> None:
        """Compute the data sets.

        Parameters
        ----------
        roles
            What the role processes will take.

        Raises
        ------
        DataError
            They don't fit into memory, can't be computed, or are lost.
        """
        new = {what: source for what, source in self._sources.items() if isinstance(source, Source)}
        self._peer.run(self._check, new, roles)
        data: dict[str, DataSetOnDask | SharedSegments] = {}
        for what, source in self._sources.items():  # all of them are computed at the same time
            data[what] = DataSetOnDask(self._peer, what, source) if isinstance(source, Source) else source
        self._made = [each for each in data.values() if isinstance(each, DataSetOnDask)]
        for what, each in data.items():
            self.segments[what] = self._peer.run(computed, self._peer, what, each)

    async def _check(self, new: Mapping[str, Source], roles: RoleMemory) -> None:
        await ensure_plugin(self._peer)
        sizes = {what: source.nbytes for what, source in new.items() if source.nbytes is not None}
        await check_budget(self._peer, sizes, roles)
        tell_of_second_copies({what: source.persisted_nbytes for what, source in new.items()})

    def release(self) -> None:
        """Let Dask forget what was computed here; a scheduler that is gone has forgotten it."""
        with suppress(DaskTrainError, OSError, RuntimeError, TimeoutError, ClosedClientError):
            self._peer.run(self._release)

    async def _release(self) -> None:
        for data in self._made:
            await data.cancel()
