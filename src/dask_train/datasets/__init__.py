"""Data sets for examples, tests and the demo, from packages that ship them."""

from dask_train.datasets.mnist import Mnist, fetch_mnist, load_mnist

__all__ = ["load_mnist", "fetch_mnist", "Mnist"]
