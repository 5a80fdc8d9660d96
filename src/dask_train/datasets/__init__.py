"""MNIST, for the demo, examples and tests, from a package that ships it."""

from dask_train.datasets.mnist import Mnist, fetch_mnist, load_mnist

__all__ = ["load_mnist", "fetch_mnist", "Mnist"]
