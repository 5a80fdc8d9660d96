"""``dask train``: the command line, as a plug-in of Dask's own ``dask`` command."""

import sys
from typing import Any

import click

from dask_train.cli.demo import demo
from dask_train.cli.doctor import doctor
from dask_train.cli.interrupt_noise import without_interrupt_noise
from dask_train.cli.models import evaluate, predict
from dask_train.cli.run import run
from dask_train.cli.runs import list_runs, logs, status, stop
from dask_train.spelling import spelled

__all__ = ["train"]


class _Commands(click.Group):
    """Ends a command with status 130 after Ctrl-C, where click would with 1."""

    def invoke(self, context: click.Context) -> Any:
        try:
            with without_interrupt_noise():
                return super().invoke(context)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(130)


@click.group(
    cls=_Commands,
    epilog="Exit status: 0 for success; 1 where the command failed; 2 where the command line can't be understood; 130 "
    "after Ctrl-C.",
)
@click.pass_context
def train(context: click.Context) -> None:
    """Train models on the Dask cluster that holds the data."""
    called = train.commands[str(context.invoked_subcommand)]
    context.with_resource(spelled({each.name: _typed(each) for each in called.params if each.name}))


def _typed(parameter: click.Parameter) -> str:
    """Return what stands for a parameter on a command line, and so in messages."""
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name


for command in (demo, run, predict, evaluate, doctor, list_runs, status, logs, stop):
    train.add_command(command)
