"""Train TensorFlow, Keras, PyTorch and other models on the Dask cluster that already holds the data.

Imports point down only, and import-linter holds it::

    cli, demo                             ways in
    searching                             search
    sklearn                               Keras models as estimators of scikit-learn
    predicting                            predict, predict_to, evaluate; server: what runs in a model process
    fitting                               fit; roles, backends: what its roles do, and what differs between backends
    linear_model                          scikit-learn's linear models over partitions
    training, tensorflow_network          train, which all runs start with; start_tensorflow with its feeds and board
    driver                                the client's side of a run
    shared_data                           data sets in shared memory: published, persisted, opened, streamed
    worker, doctor                        what runs inside Dask workers; what a cluster tells about itself
    cluster                               the seam to Dask
    scheduler, testing, role, file_rows   what runs inside the scheduler; shipped suites; a role's process; files
    collections, process, frameworks,
    identity                              Dask collections as rows; child processes; adapters; what tells models apart
    keras                                 what steps of Keras models may call
    keras_models, report, datasets, run,
    data, checkpoint, collectives,
    logging                               know nothing of Dask, nor of each other
    transport                             messages and arrays between processes
    settings                              settings of libraries, taken in the script and applied where it computes
    errors, config, roles, cards,
    extras, version, input_errors,
    printing, masking                     know nothing of the rest

``import dask_train`` loads no framework, and neither Dask nor a public name's module before it is used: a role process
imports this package in milliseconds. Once distributed is imported, Keras models travel between Dask processes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dask_train.extras import warn_elsewhere
from dask_train.printing import set_up_logger
from dask_train.settings.after_import import call_after_import

if TYPE_CHECKING:
    from dask_train import keras as keras
    from dask_train import linear_model as linear_model
    from dask_train import logging as logging
    from dask_train import sklearn as sklearn
    from dask_train import trainers as trainers
    from dask_train.checkpoint.policy import Checkpoint
    from dask_train.collections.schema.frame_schema import FrameSchema
    from dask_train.data.ledger import Ledger
    from dask_train.driver.handle import Run
    from dask_train.driver.result import Attempt, Result
    from dask_train.driver.scores import Scores
    from dask_train.errors import (
        CheckpointError,
        ClosedError,
        DaskTrainError,
        DataError,
        DivergedError,
        LaunchError,
        PlacementError,
        PredictionError,
        RoleFailedError,
        RoleLostError,
        StalledError,
        VersionMismatchError,
    )
    from dask_train.file_rows.api import FileRows, files
    from dask_train.file_rows.hdf5 import hdf5
    from dask_train.file_rows.npy import memmap, npy
    from dask_train.file_rows.records import RecordRows
    from dask_train.file_rows.tars import tars
    from dask_train.file_rows.tfrecords import tfrecords, to_tfrecords
    from dask_train.fitting.api import fit
    from dask_train.fitting.registered import register_trainer
    from dask_train.fitting.result import FitResult
    from dask_train.frameworks.base import Framework
    from dask_train.predicting.api import predict
    from dask_train.predicting.evaluation import evaluate
    from dask_train.predicting.to_files import PredictedFiles, predict_to
    from dask_train.role.dataset import DataSet
    from dask_train.role.session import Session
    from dask_train.roles import AddressBook
    from dask_train.run.recovery import Failure, RecoveryPolicy
    from dask_train.run.stop_rule import RunProgress, StopRule
    from dask_train.run.stopping import Patience
    from dask_train.searching.api import search
    from dask_train.searching.estimators.result import GridResult
    from dask_train.searching.result import SearchResult
    from dask_train.shared_data.api import get_dataset, list_datasets, persist, publish_dataset, unpublish_dataset
    from dask_train.shared_data.published import PublishedDataset
    from dask_train.shared_data.vineyard.api import from_vineyard
    from dask_train.tensorflow_network.api import TensorFlowNetwork, start_tensorflow
    from dask_train.tensorflow_network.board import Board, board
    from dask_train.training.api import train
    from dask_train.version import __version__

# Where each public name is defined.
_HOMES = {
    "fit": "fitting.api",
    "FitResult": "fitting.result",
    "register_trainer": "fitting.registered",
    "predict": "predicting.api",
    "evaluate": "predicting.evaluation",
    "predict_to": "predicting.to_files",
    "PredictedFiles": "predicting.to_files",
    "FrameSchema": "collections.schema.frame_schema",
    "Checkpoint": "checkpoint.policy",
    "search": "searching.api",
    "SearchResult": "searching.result",
    "GridResult": "searching.estimators.result",
    "train": "training.api",
    "Run": "driver.handle",
    "Scores": "driver.scores",
    "Result": "driver.result",
    "Attempt": "driver.result",
    "Ledger": "data.ledger",
    "Session": "role.session",
    "DataSet": "role.dataset",
    "StopRule": "run.stop_rule",
    "RunProgress": "run.stop_rule",
    "Patience": "run.stopping",
    "RecoveryPolicy": "run.recovery",
    "Failure": "run.recovery",
    "Framework": "frameworks.base",
    "files": "file_rows.api",
    "FileRows": "file_rows.api",
    "tars": "file_rows.tars",
    "hdf5": "file_rows.hdf5",
    "npy": "file_rows.npy",
    "memmap": "file_rows.npy",
    "tfrecords": "file_rows.tfrecords",
    "to_tfrecords": "file_rows.tfrecords",
    "RecordRows": "file_rows.records",
    "publish_dataset": "shared_data.api",
    "from_vineyard": "shared_data.vineyard.api",
    "get_dataset": "shared_data.api",
    "list_datasets": "shared_data.api",
    "unpublish_dataset": "shared_data.api",
    "persist": "shared_data.api",
    "PublishedDataset": "shared_data.published",
    "start_tensorflow": "tensorflow_network.api",
    "TensorFlowNetwork": "tensorflow_network.api",
    "AddressBook": "roles",
    "board": "tensorflow_network.board",
    "Board": "tensorflow_network.board",
    "DaskTrainError": "errors",
    "PlacementError": "errors",
    "LaunchError": "errors",
    "RoleFailedError": "errors",
    "RoleLostError": "errors",
    "StalledError": "errors",
    "DivergedError": "errors",
    "ClosedError": "errors",
    "PredictionError": "errors",
    "DataError": "errors",
    "CheckpointError": "errors",
    "VersionMismatchError": "errors",
    "__version__": "version",
}

# Modules with public names of their own.
_MODULES = frozenset({"keras", "linear_model", "logging", "sklearn", "trainers"})

__all__ = [
    # Keras
    "fit",
    "FitResult",
    "register_trainer",
    "FrameSchema",
    "Checkpoint",
    "search",
    "SearchResult",
    "GridResult",
    # prediction
    "predict",
    "evaluate",
    "predict_to",
    "PredictedFiles",
    # any loop, any roles
    "train",
    "Run",
    "Scores",
    "Result",
    "Attempt",
    "Ledger",
    "Session",
    "DataSet",
    "StopRule",
    "RunProgress",
    "Patience",
    "RecoveryPolicy",
    "Failure",
    "Framework",
    # files as rows
    "files",
    "FileRows",
    "tars",
    "hdf5",
    "npy",
    "memmap",
    "tfrecords",
    "to_tfrecords",
    "RecordRows",
    # data sets in shared memory
    "publish_dataset",
    "from_vineyard",
    "get_dataset",
    "list_datasets",
    "unpublish_dataset",
    "persist",
    "PublishedDataset",
    # a TensorFlow network of your own
    "start_tensorflow",
    "TensorFlowNetwork",
    "AddressBook",
    # scores
    "board",
    "Board",
    # errors
    "DaskTrainError",
    "PlacementError",
    "LaunchError",
    "RoleFailedError",
    "RoleLostError",
    "StalledError",
    "DivergedError",
    "ClosedError",
    "PredictionError",
    "DataError",
    "CheckpointError",
    "VersionMismatchError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})


def _let_keras_models_travel() -> None:
    from dask_train.cluster import keras_values

    keras_values.register()


def _let_torch_modules_travel() -> None:
    from dask_train.cluster import modules_by_name

    modules_by_name.register("torch")


set_up_logger()  # now: programs may change it from here on
warn_elsewhere(sys.platform)
call_after_import("distributed", _let_keras_models_travel)
call_after_import("torch", _let_torch_modules_travel)
