"""``dask train run``: a script, or a function as roles on a cluster, watched until it ends."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dask_train.cli.connection import connect, connection_options, default_cluster
from dask_train.cli.interrupt_noise import without_interrupt_noise
from dask_train.cli.local_functions import folder_of, is_script, load_function
from dask_train.cli.local_modules import local_modules_travel
from dask_train.cli.settings import numbers, pairs
from dask_train.errors import DaskTrainError
from dask_train.spelling import spelled

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


# Options that a script has no use for: it passes such things itself.
_OF_FUNCTIONS = frozenset({"roles", "others", "framework", "recovery", "stop", "resources", "name"})


class _RunCommand(click.Command):
    """Leaves what follows a script to the script, options too, as ``python`` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See :meth:`click.Command.parse_args`."""
        ctx.allow_interspersed_args = False
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        target = values.get("target")
        ctx.allow_interspersed_args = not (isinstance(target, str) and is_script(target))
        return super().parse_args(ctx, args)


@click.command(cls=_RunCommand)
@click.argument("target", type=click.Path())
@click.argument("arguments", nargs=-1, metavar="[ARGS]...")
@click.option(
    "--roles", callback=numbers(int, least=1), metavar="ps=1,worker=4", help="How many there are of each role."
)
@click.option(
    "--role",
    "others",
    callback=pairs,
    multiple=True,
    metavar="ROLE=MODULE:FUNCTION",
    help="What another role does; may be repeated.",
)
@click.option(
    "--framework",
    metavar="NAME",
    help="tensorflow, torch, torchrun, jax, jax-distributed, xgboost, lightgbm. Default: batches are NumPy arrays.",
)
@click.option("--recovery", type=click.Choice(["role", "gang", "none"]), help="What is started again after a loss.")
@click.option("--stop", multiple=True, metavar="RULE", help="Such as 'loss < 0.1'; may be repeated.")
@click.option(
    "--resources", callback=numbers(float), metavar="GPU=1", help="What each role but parameter servers needs."
)
@click.option("--name", help="Begins the run's name.")
@connection_options
def run(target: str, arguments: Sequence[str], others: dict[str, str], **options: Any) -> None:
    """Run a script that trains, or a function as roles on a cluster.

    \b
    TARGET is one of
      script.py           a program that calls dt.fit or dt.train; ARGS are its own
      script.py:function  a function of a file
      module:function     a function of a module, here or installed

    A script runs as with python, and the cluster is its default client; without --scheduler it makes its own. A
    function takes a session, and is what role worker does; what the roles print is shown. Modules in the folder of the
    file, or in the current one, are sent along.

    \b
    Exit status
      0    the run ended well, or what the script exits with
      1    the run failed, or the script raised
      2    the command line can't be understood
      130  Ctrl-C stopped it
    """
    security = {key: options.pop(key) for key in ("tls_ca_file", "tls_cert", "tls_key")}
    address = options.pop("scheduler")
    try:
        with (
            without_interrupt_noise(),
            local_modules_travel(*dict.fromkeys(map(folder_of, (target, *others.values())))),
        ):
            if is_script(target):
                _refuse_options_of_functions(click.get_current_context())
                with spelled(None), default_cluster(address, **security):  # its errors are of Python
                    run_script(target, arguments)
            else:
                functions = _functions(target, arguments, others)
                with connect(address, **security) as client:
                    _run_functions(client, functions, options)
    except KeyboardInterrupt:
        click.echo("Interrupted; nothing of the run is left.", err=True)
        sys.exit(130)


def _refuse_options_of_functions(context: click.Context) -> None:
    """Refuse what a script says itself."""
    options = [
        option.opts[0]
        for option in context.command.params
        if option.name in _OF_FUNCTIONS and context.get_parameter_source(option.name) == ParameterSource.COMMANDLINE
    ]
    if options:
        raise click.UsageError(
            f"{options[0]} is for functions, and a script passes it to dt.train or dt.fit itself. Write it after the "
            "script's name if it is an argument of the script, or name a function: script.py:function."
        )


def _functions(target: str, arguments: Sequence[str], others: dict[str, str]) -> dict[str, Any]:
    """Import the function of each role."""
    if arguments:
        raise click.UsageError(f"{arguments[0]!r} follows a function, which takes a session and no arguments.")
    return {"worker": load_function(target), **{role: load_function(named) for role, named in others.items()}}


def _run_functions(client: Client, functions: dict[str, Any], options: dict[str, Any]) -> None:
    """Run functions as roles, and let errors of the run be those of the command."""
    from dask_train.cli.watched_run import run_watched

    name = options.pop("name")
    try:
        run_watched(client, functions, {**_wanted(**options), "name": name})
    except (ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from error
    except DaskTrainError as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from error


def _wanted(
    roles: dict[str, int],
    framework: str | None,
    recovery: str | None,
    stop: Sequence[str],
    resources: dict[str, float],
) -> dict[str, Any]:
    """Return the options as arguments of ``train``."""
    wanted: dict[str, Any] = {"roles": roles or None, "framework": framework, "resources": resources or None}
    if recovery is not None:
        wanted["recovery"] = None if recovery == "none" else recovery
    return {**wanted, "stop": list(stop) or None}


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run a file as the main program, whose functions and classes travel to the cluster by value.

    Parameters
    ----------
    path
        Of the file.
    arguments
        What it finds in ``sys.argv`` after its own name.

    Raises
    ------
    click.UsageError
        There is no such file.
    SystemExit
        Of the script; with status 1 where it raised, once its traceback is printed.
    KeyboardInterrupt
        Ctrl-C.
    """
    if not Path(path).is_file():
        raise click.UsageError(f"There is no file {path}.")
    whole = str(Path(path).resolve())
    before, sys.argv = sys.argv, [path, *arguments]
    try:
        runpy.run_path(whole, run_name="__main__")
    except Exception as error:
        error.__traceback__ = _from(whole, error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)  # it may be one that the script has set
        sys.exit(1)
    finally:
        sys.argv = before


def _from(file: str, trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that carry the script; of a syntax error there are no others."""
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace
