"""``dask train``: the command line, as a plug-in of Dask's own ``dask`` command."""

import click

from dask_train.cli.demo import demo

__all__ = ["train"]


@click.group()
def train() -> None:
    """Train models on the Dask cluster that holds the data."""


train.add_command(demo)
