"""Scores, parameters and results where people look: MLflow, TensorBoard, Weights & Biases, or any function.

Pass them as ``log=`` of :func:`dask_train.fit`, :func:`dask_train.train` or :func:`dask_train.search`. The client
writes them, once for all roles, in a thread of its own for each place, and no step waits for that.
"""

from dask_train.logging.base import Ending, Logger, Sink, Start
from dask_train.logging.mlflow import MLflow
from dask_train.logging.tensorboard import TensorBoard
from dask_train.logging.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "WandB", "Logger", "Sink", "Start", "Ending"]
