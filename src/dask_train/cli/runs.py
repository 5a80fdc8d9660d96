"""``dask train list``, ``status``, ``logs`` and ``stop``: the runs of a cluster, from any shell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dask_train.cli.connection import EXIT_STATUS, connect, connection_options
from dask_train.cli.json_output import json_option, print_json
from dask_train.errors import DaskTrainError

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

# How often the output of a live run is asked for.
FOLLOW_S = 0.5


@contextmanager
def _asking(options: dict[str, Any]) -> Iterator[Client]:
    """Open a client; what can't be asked ends the command with a text."""
    try:
        with connect(**options) as client:
            yield client
    except (DaskTrainError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@click.command("list", epilog=EXIT_STATUS)
@json_option
@connection_options
def list_runs(as_json: bool, **options: Any) -> None:
    """List the runs of a cluster: those that continue, and the last ones that are over."""
    from rich.console import Console

    from dask_train.cli.json_output import run_value
    from dask_train.cli.recorded_runs import print_list
    from dask_train.driver.records import all_runs

    with _asking(options) as client:
        records = all_runs(client)
    if as_json:
        print_json([run_value(record) for record in records])
        return
    if not records:
        click.echo("The scheduler has no runs.")
        return
    print_list(records, Console(highlight=False))


@click.command(epilog=EXIT_STATUS)
@click.argument("run")
@json_option
@connection_options
def status(run: str, as_json: bool, **options: Any) -> None:
    """Show a run: its phase, its roles, its losses and its last scores; and the cluster's template processes.

    RUN is its name, or the beginning of it.
    """
    from rich.console import Console

    from dask_train.cli.json_output import status_value
    from dask_train.cli.recorded_runs import print_status, print_templates
    from dask_train.doctor.examination import examine_templates
    from dask_train.driver.records import find_run

    with _asking(options) as client:
        record = find_run(client, run)
        templates = examine_templates(client)
    if as_json:
        print_json(status_value(record, templates))
        return
    console = Console(highlight=False)
    print_status(record, console)
    print_templates(templates, console)


@click.command(epilog=EXIT_STATUS)
@click.argument("run")
@click.option("--role", help="Only the roles of this name.")
@click.option("--rank", type=click.IntRange(min=0), help="Only those of this rank.")
@click.option("--follow", is_flag=True, help="Continue with what they print until the run is over, or Ctrl-C.")
@json_option
@connection_options
def logs(run: str, role: str | None, rank: int | None, follow: bool, as_json: bool, **options: Any) -> None:
    """Print what the roles of a run have printed, each line with its role in front; with --json an object per line.

    RUN is its name, or the beginning of it. Of a live run, a megabyte of each role is kept; of one that is
    over, 64 kB.
    """
    from dask_train.cli.recorded_runs import check_role
    from dask_train.driver.records import find_run
    from dask_train.driver.role_output import OutputReader
    from dask_train.masking import masked
    from dask_train.report.formats import harmless

    with _asking(options) as client:
        record = find_run(client, run)
        check_role(record, role, rank)
        reader = OutputReader(client, record["id"], role, rank)
        try:
            while True:
                for line in reader.read(rest=not follow):
                    if as_json:
                        print_json({"role": line.role, "rank": line.rank, "text": masked(line.text)})
                    else:
                        click.echo(harmless(str(line)))
                if reader.over or not follow:
                    return
                time.sleep(FOLLOW_S)
        except KeyboardInterrupt:
            return  # the usual end of following


@click.command(epilog=EXIT_STATUS)
@click.argument("run")
@click.option("--reason", default="it was stopped with dask train stop", show_default=True, help="What is noted.")
@connection_options
def stop(run: str, reason: str, **options: Any) -> None:
    """Stop a run in order, and wait until it is over.

    RUN is its name, or the beginning of it.
    """
    from dask_train.driver.records import stop_run
    from dask_train.report.formats import harmless

    with _asking(options) as client:
        record, was_over = stop_run(client, run, reason)
    before = "was over already" if was_over else "is over"
    click.echo(harmless(f"Run {record['id']} {before}: {record['summary'].get('outcome', '').rstrip('.')}."))
