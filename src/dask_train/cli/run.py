"""``dask train run``: a function of the user's as roles on a cluster, watched until it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from dask_train.cli.connection import connect, connection_options
from dask_train.cli.interrupt_noise import without_interrupt_noise
from dask_train.cli.local_functions import load_function
from dask_train.errors import DaskTrainError


def _pairs(context: click.Context, parameter: click.Parameter, given: str | Sequence[str] | None) -> dict[str, str]:
    """``a=1,b=2``, or several ``a=1``, as a dict."""
    texts = [given] if isinstance(given, str) else list(given or ())
    found: dict[str, str] = {}
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in found:
            raise click.BadParameter(f"{text!r} is not like NAME=VALUE, with each name once.", context, parameter)
        found[name] = value
    return found


def _numbers(kind: type[int] | type[float]) -> Callable[..., dict[str, Any]]:
    def read(context: click.Context, parameter: click.Parameter, given: Any) -> dict[str, Any]:
        pairs = _pairs(context, parameter, given)
        try:
            return {name: kind(value) for name, value in pairs.items()}
        except ValueError as error:
            raise click.BadParameter(f"{error}.", context, parameter) from error

    return read


@click.command()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--roles", callback=_numbers(int), metavar="ps=1,worker=4", help="How many there are of each role.")
@click.option(
    "--role",
    "others",
    callback=_pairs,
    multiple=True,
    metavar="ROLE=MODULE:FUNCTION",
    help="What another role does; may be repeated.",
)
@click.option("--framework", metavar="NAME", help="tensorflow, torch or jax; without it, batches are NumPy arrays.")
@click.option("--recovery", type=click.Choice(["role", "gang", "none"]), help="What is started again after a loss.")
@click.option("--stop", "stops", multiple=True, metavar="RULE", help="Such as 'loss < 0.1'; may be repeated.")
@click.option(
    "--resources", callback=_numbers(float), metavar="GPU=1", help="What each role but parameter servers needs."
)
@click.option("--name", help="Begins the run's name.")
@connection_options
def run(function: str, others: dict[str, str], name: str | None, **options: Any) -> None:
    """Run a function as roles on a cluster, and show what they print.

    The function takes a session; it is what role worker does. Modules in the current folder are imported, and sent
    along. The exit status is 1 where the run failed, and 130 where Ctrl-C stopped it.
    """
    try:
        from dask_train.cli.watched_run import run_watched

        sys.path.insert(0, os.getcwd())
        functions = {"worker": load_function(function)}
        for role, named in others.items():
            functions[role] = load_function(named)
        security = {key: options.pop(key) for key in ("tls_ca_file", "tls_cert", "tls_key")}
        with without_interrupt_noise(), connect(options.pop("scheduler"), **security) as client:
            run_watched(client, functions, {**_wanted(**options), "name": name})
    except KeyboardInterrupt:
        click.echo("Interrupted; nothing of the run is left.", err=True)
        sys.exit(130)
    except (ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from error
    except DaskTrainError as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from error


def _wanted(
    roles: dict[str, int],
    framework: str | None,
    recovery: str | None,
    stops: Sequence[str],
    resources: dict[str, float],
) -> dict[str, Any]:
    """The options as arguments of ``train``."""
    wanted: dict[str, Any] = {"roles": roles or None, "framework": framework, "resources": resources or None}
    if recovery is not None:
        wanted["recovery"] = None if recovery == "none" else recovery
    return {**wanted, "stop": list(stops) or None}
