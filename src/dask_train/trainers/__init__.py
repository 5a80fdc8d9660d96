"""What all kinds of models share, and the public names for another kind; the kinds themselves are in ``fitting``.

A name's module is imported when the name is used: code that needs one of the modules below loads no other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_train.trainers.common.loop import TrainingLoop
    from dask_train.trainers.common.rank_state import RankState
    from dask_train.trainers.common.sync_point import Position
    from dask_train.trainers.settings import LoopSettings
    from dask_train.trainers.trainer import Trainer, TrainSpec

# Where each public name is defined.
_HOMES = {
    "LoopSettings": "settings",
    "Position": "common.sync_point",
    "RankState": "common.rank_state",
    "TrainSpec": "trainer",
    "Trainer": "trainer",
    "TrainingLoop": "common.loop",
}

__all__ = ["LoopSettings", "Position", "RankState", "TrainSpec", "Trainer", "TrainingLoop"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
