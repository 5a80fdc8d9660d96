"""Whether checkpoints can be kept at a place, seen from a Dask worker."""

from __future__ import annotations

import asyncio

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError


async def why_none_are_kept(place: CheckpointPlace) -> str:
    """Return why no checkpoint can be kept there, as a sentence.

    Empty if one can. The event loop continues meanwhile.
    """
    return await asyncio.to_thread(_why_not, place)


def _why_not(place: CheckpointPlace) -> str:
    try:
        CheckpointFolder(place).check()
    except CheckpointError as error:
        return error.what
    return ""
