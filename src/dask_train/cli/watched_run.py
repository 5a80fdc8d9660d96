"""A run that was started from a command line: its output and its progress while it lasts, then how it ended."""

from __future__ import annotations

import reprlib
import sys
import time
from typing import IO, TYPE_CHECKING, Any, cast

import click

from dask_train.driver.role_output import OutputReader
from dask_train.errors import DaskTrainError
from dask_train.printing import SafeFile, say
from dask_train.report.formats import count_text, harmless, score_text, seconds_text
from dask_train.report.progress import RunDisplay
from dask_train.training.api import train

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client
    from dask_train.driver.result import Result

# How often new output is asked for.
OUTPUT_S = 0.5
# Of more results, only the first are printed, each shortened.
MOST_RESULTS = 16


def run_watched(client: Client, functions: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Run functions as ``train`` does, print what the roles print, and how it ended.

    Parameters
    ----------
    client
        Of the cluster.
    functions
        By role.
    wanted
        Other arguments of ``train``.

    Raises
    ------
    As ``train``.
    """
    began = time.monotonic()
    started = train(functions, client=client, wait=False, **wanted)
    click.echo(f"run {started.id}", err=True)
    with RunDisplay() as display:
        printer = _Printer(OutputReader(client, started.id), display)
        try:
            result = started.result(watch=printer.look)
        finally:
            printer.print_new()
            if printer.error:
                say(f"The last output could not be read: {printer.error}")
    tell_result(result, time.monotonic() - began)


class _Printer:
    """Prints what roles print as it comes, above the progress where there is one.

    The run does not depend on its output: what can't be read is asked for again, what can't be printed is left out.

    Attributes
    ----------
    error
        Why there was no answer the last time; empty if there was one.
    """

    def __init__(self, reader: OutputReader, display: RunDisplay) -> None:
        self._reader, self._display = reader, display
        self._next = time.monotonic() + OUTPUT_S
        self.error = ""
        self._above = display.shown and sys.stdout.isatty()

    def look(self, status: dict[str, Any]) -> None:
        """Update the progress, and print what is new, if it is time for that."""
        self._display.update(status)
        if time.monotonic() >= self._next:
            self.print_new()
            self._next = time.monotonic() + OUTPUT_S

    def print_new(self) -> None:
        """Print the lines that have come since; all there is, where the run is over."""
        try:
            lines, self.error = self._reader.read(), ""
        except DaskTrainError as error:
            self.error = str(error)
            return
        for line in lines:
            if self._above:
                self._display.print_above(str(line))
            else:
                _echo(str(line))


def _echo(text: str) -> None:
    """Print a line on standard output, which may lack a letter of it, or be a pipe that nobody reads any more."""
    click.echo(text, file=cast(IO[str], SafeFile(sys.stdout)))


def tell_result(result: Result, seconds: float) -> None:
    """Print why a run ended, its last score, and what its roles returned, in brief."""
    why = result.stop_reason or "its training roles have returned"
    _echo(harmless(f"{result.run_id} ended well after {seconds_text(seconds)}: {why}."))
    last = {
        name: value if isinstance(value, str) else score_text(value) if isinstance(value, float) else str(value)
        for name, value in (result.scores[-1] if result.scores else {}).items()
        if name not in ("role", "rank", "attempt", "time")
    }
    if last:
        of = f"{result.scores[-1]['role']} {result.scores[-1]['rank']}"
        listing = ", ".join(f"{name} {value}" for name, value in last.items())
        _echo(harmless(f"{count_text(len(result.scores))} scores, the last of {of}: {listing}"))
    returned = [(role, rank, value) for role, all_ in result.results.items() for rank, value in enumerate(all_)]
    returned = [(role, rank, value) for role, rank, value in returned if value is not None]
    for role, rank, value in returned[:MOST_RESULTS]:
        _echo(harmless(f"{role} {rank} returned {reprlib.repr(value)}"))
    if len(returned) > MOST_RESULTS:
        _echo(f"and {len(returned) - MOST_RESULTS} more results")
