"""Data sets for examples, tests and the demo, and a pretrained network, from packages that ship them."""

from dask_train.datasets.efficientnet_lite0 import load_efficientnet_lite0
from dask_train.datasets.mnist import Mnist, fetch_mnist, load_mnist
from dask_train.datasets.photographs import Photographs, fetch_photographs, load_photographs, read_photograph

__all__ = [
    "load_mnist",
    "fetch_mnist",
    "Mnist",
    "load_photographs",
    "fetch_photographs",
    "read_photograph",
    "Photographs",
    "load_efficientnet_lite0",
]
