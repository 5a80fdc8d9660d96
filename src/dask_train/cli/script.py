"""A script that ``dask train run`` runs as ``python`` would."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import click


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
