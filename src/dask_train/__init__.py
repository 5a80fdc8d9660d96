"""Train TensorFlow, Keras, PyTorch and other models on the Dask cluster that already holds the data.

Imports point down only, and import-linter holds it::

    cli, demo                            ways in
    tensorflow_network                   one public verb each
    cluster                              the only room that imports distributed
    frameworks, report, datasets         know nothing of Dask, nor of each other
    errors, config, roles                know nothing of the rest

``import dask_train`` loads no framework. It registers how Keras models travel between Dask processes.
"""

from dask_train.cluster import keras_values
from dask_train.cluster.board import Board, board
from dask_train.errors import (
    ClosedError,
    DaskTrainError,
    DataError,
    LaunchError,
    PlacementError,
    RoleFailedError,
    RoleLostError,
    StalledError,
    VersionMismatchError,
)
from dask_train.roles import AddressBook
from dask_train.tensorflow_network import TensorFlowNetwork, start_tensorflow

__version__ = "0.1.0"

__all__ = [
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
    "DataError",
    "VersionMismatchError",
]

keras_values.register()
