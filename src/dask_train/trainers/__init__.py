"""What dask-train knows of each kind of model, and what all kinds share; the public names for another kind."""

from dask_train.trainers.common.loop import Position, TrainingLoop
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.settings import LoopSettings
from dask_train.trainers.trainer import Trainer, TrainSpec

__all__ = ["LoopSettings", "Position", "RankState", "TrainSpec", "Trainer", "TrainingLoop"]
