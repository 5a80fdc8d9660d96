"""Train TensorFlow, Keras, PyTorch and other models on the Dask cluster that already holds the data.

Imports point down only, and import-linter holds it::

    cli, demo                            ways in
    searching                            search; study: what Optuna is told, slots, what comes of it
    predicting, evaluating,
    predicted_files                       predict, evaluate, predict_to; predicted_model, prediction_inputs: checks
    fitting                              fit, with what it checks, is given and returns (fit_checks, fitted_data, ...)
    training, shared_datasets,
    tensorflow_network                    public verbs
    launching                            how a run is checked and started
    cluster                              the only room that imports distributed
    prediction                           models as values, and what runs in a model process
    testing                              shipped suites for adapters
    fit_roles                            what the roles of fit do, written against a session
    collections, role_process, session   Dask collections as rows; what a role process is and sees
    result                               stands on data
    frameworks, run, data, checkpoint,
    report, datasets                     know nothing of Dask, nor of each other
    agreement                            sums over ranks, lines between processes of a host
    errors, config, roles                know nothing of the rest

``import dask_train`` loads no framework, and neither Dask nor a public name's module before it is used: a role process
imports this package in milliseconds. Once distributed is imported, Keras models travel between Dask processes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dask_train.after_import import call_after_import
from dask_train.version import __version__

if TYPE_CHECKING:
    from dask_train.checkpoint.policy import Checkpoint
    from dask_train.cluster.board import Board, board
    from dask_train.cluster.published import PublishedDataset
    from dask_train.cluster.run import Run
    from dask_train.data.ledger import Ledger
    from dask_train.errors import (
        CheckpointError,
        ClosedError,
        DaskTrainError,
        DataError,
        LaunchError,
        PlacementError,
        PredictionError,
        RoleFailedError,
        RoleLostError,
        StalledError,
        VersionMismatchError,
    )
    from dask_train.evaluating import evaluate
    from dask_train.fit_result import FitResult
    from dask_train.fitting import fit
    from dask_train.predicted_files import PredictedFiles, predict_to
    from dask_train.predicting import predict
    from dask_train.rank_dataset import DataSet
    from dask_train.result import Attempt, Result
    from dask_train.roles import AddressBook
    from dask_train.run.recovery import RecoveryPolicy
    from dask_train.run.stopping import Patience
    from dask_train.searching import search
    from dask_train.session import Session
    from dask_train.shared_datasets import get_dataset, list_datasets, persist, publish_dataset, unpublish_dataset
    from dask_train.study.result import SearchResult
    from dask_train.tensorflow_network import TensorFlowNetwork, start_tensorflow
    from dask_train.training import train

# Where each public name is defined.
_HOMES = {
    "fit": "fitting",
    "FitResult": "fit_result",
    "predict": "predicting",
    "evaluate": "evaluating",
    "predict_to": "predicted_files",
    "PredictedFiles": "predicted_files",
    "Checkpoint": "checkpoint.policy",
    "search": "searching",
    "SearchResult": "study.result",
    "train": "training",
    "Run": "cluster.run",
    "Result": "result",
    "Attempt": "result",
    "Ledger": "data.ledger",
    "Session": "session",
    "DataSet": "rank_dataset",
    "Patience": "run.stopping",
    "RecoveryPolicy": "run.recovery",
    "publish_dataset": "shared_datasets",
    "get_dataset": "shared_datasets",
    "list_datasets": "shared_datasets",
    "unpublish_dataset": "shared_datasets",
    "persist": "shared_datasets",
    "PublishedDataset": "cluster.published",
    "start_tensorflow": "tensorflow_network",
    "TensorFlowNetwork": "tensorflow_network",
    "AddressBook": "roles",
    "board": "cluster.board",
    "Board": "cluster.board",
    "DaskTrainError": "errors",
    "PlacementError": "errors",
    "LaunchError": "errors",
    "RoleFailedError": "errors",
    "RoleLostError": "errors",
    "StalledError": "errors",
    "ClosedError": "errors",
    "PredictionError": "errors",
    "DataError": "errors",
    "CheckpointError": "errors",
    "VersionMismatchError": "errors",
}

__all__ = [
    # Keras
    "fit",
    "FitResult",
    "Checkpoint",
    "search",
    "SearchResult",
    # prediction
    "predict",
    "evaluate",
    "predict_to",
    "PredictedFiles",
    # any loop, any roles
    "train",
    "Run",
    "Result",
    "Attempt",
    "Ledger",
    "Session",
    "DataSet",
    "Patience",
    "RecoveryPolicy",
    # data sets in shared memory
    "publish_dataset",
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
    "ClosedError",
    "PredictionError",
    "DataError",
    "CheckpointError",
    "VersionMismatchError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _let_keras_models_travel() -> None:
    from dask_train.cluster import keras_values

    keras_values.register()


call_after_import("distributed", _let_keras_models_travel)
