"""``python -m dask_train.datasets``: fetch the data sets into the user's cache folder, and print where they lie."""

import sys

import click

from dask_train.datasets.mnist import fetch_mnist
from dask_train.errors import DataError

if __name__ == "__main__":
    try:
        click.echo(f"MNIST: {fetch_mnist()}")
    except DataError as error:
        sys.exit(str(error))
