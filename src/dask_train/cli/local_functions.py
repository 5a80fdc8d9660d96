"""Functions that are named on a command line, as ``module:function`` or ``script.py:function``."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from typing import Any

import click


def is_script(named: str) -> bool:
    """Return whether this is the path of a Python file, without a function."""
    return named.endswith(".py")


def folder_of(named: str) -> str:
    """Return the folder whose modules a program imports: of a file its own, else the current one."""
    path = named.partition(":")[0]
    return str(Path(path).resolve().parent if is_script(path) else Path.cwd())


def load_function(named: str) -> Any:
    """Import the function that ``module:function`` or ``script.py:function`` names.

    Parameters
    ----------
    named
        As on the command line. The folder of a file has to be on the import path.

    Raises
    ------
    click.UsageError
        It is not written like that, or there is no such module or function.
    click.ClickException
        The module raises while it is imported; the text has the traceback.
    """
    module_name, colon, path = named.partition(":")
    if not (module_name and colon and path):
        raise click.UsageError(f"{named!r} names no function. Write it like module:function.")
    file = module_name if is_script(module_name) else None
    if file is not None:
        module_name = _module_of(file)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise click.UsageError(
                f"There is no module {error.name!r}, neither here ({Path.cwd()}) nor installed. "
                "Go to its folder, or name the file: path/to/file.py:function."
            ) from error
        raise click.ClickException(_raised(module_name, error)) from error
    except (Exception, SystemExit) as error:  # a script that reads its arguments ends like that
        raise click.ClickException(_raised(module_name, error)) from error
    if file is not None and Path(getattr(module, "__file__", None) or "").resolve() != Path(file).resolve():
        raise click.UsageError(f"{file} can't be imported: another module is called {module_name!r}. Rename the file.")
    target: Any = module
    for attribute in path.split("."):
        if not hasattr(target, attribute):
            own = getattr(target, "__dict__", {})  # a number has none
            have = ", ".join(name for name, value in own.items() if callable(value) and name[0] != "_")
            raise click.UsageError(f"{module_name} has no {path!r}; it has {have or 'no functions'}.")
        target = getattr(target, attribute)
    if not callable(target):
        raise click.UsageError(f"{named} is a {type(target).__name__}, not a function.")
    return target


def _module_of(file: str) -> str:
    """Return the name by which the function of a file is imported."""
    if not Path(file).is_file():
        raise click.UsageError(f"There is no file {file}.")
    name = Path(file).stem
    if not name.isidentifier():
        raise click.UsageError(f"{file} can't be imported: {name!r} is no name of a module. Rename the file.")
    return name


def _raised(module_name: str, error: BaseException) -> str:
    """Return the error of a user's module, from the module on."""
    lines = traceback.TracebackException.from_exception(error)
    while len(lines.stack) > 1 and (
        lines.stack[0].filename == __file__
        or lines.stack[0].filename == importlib.__file__
        or lines.stack[0].filename.startswith("<frozen importlib")
    ):
        del lines.stack[0]
    return f"{module_name} can't be imported.\n{''.join(lines.format()).rstrip()}"
