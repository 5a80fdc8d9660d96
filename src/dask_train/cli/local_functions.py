"""Functions that are named on a command line: imported from the current folder too, and sent to the cluster whole."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click


def load_function(named: str) -> Any:
    """What ``module:function`` names.

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
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise click.UsageError(
                f"There is no module {error.name!r}, neither here ({Path.cwd()}) nor installed. "
                "Go to its folder, and leave .py out."
            ) from error
        raise click.ClickException(_raised(module_name, error)) from error
    except (Exception, SystemExit) as error:  # a script that reads its arguments ends like that
        raise click.ClickException(_raised(module_name, error)) from error
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            own = getattr(found, "__dict__", {})  # a number has none
            have = ", ".join(name for name, value in own.items() if callable(value) and name[0] != "_")
            raise click.UsageError(f"{module_name} has no {path!r}; it has {have or 'no functions'}.")
        found = getattr(found, attribute)
    if not callable(found):
        raise click.UsageError(f"{named} is a {type(found).__name__}, not a function.")
    return found


def _raised(module_name: str, error: BaseException) -> str:
    """The error of a user's module, from the module on."""
    lines = traceback.TracebackException.from_exception(error)
    while len(lines.stack) > 1 and (
        lines.stack[0].filename == __file__
        or lines.stack[0].filename == importlib.__file__
        or lines.stack[0].filename.startswith("<frozen importlib")
    ):
        del lines.stack[0]
    return f"{module_name} can't be imported.\n{''.join(lines.format()).rstrip()}"


@contextmanager
def local_modules_travel(folder: str) -> Iterator[None]:
    """Let modules that were imported from ``folder`` go to the cluster by value: the Dask workers may lack them."""
    import cloudpickle  # type: ignore[import-untyped]

    top = {name for name, module in list(sys.modules.items()) if "." not in name and _lies_in(folder, module)}
    top -= {"__main__", "dask_train"}
    local = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in top]
    for module in local:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in local:
            cloudpickle.unregister_pickle_by_value(module)


def _lies_in(folder: str, module: ModuleType) -> bool:
    """Whether a module, or the folder of a package, lies in a folder itself: there the import found it."""
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return any(place and Path(place).resolve().parent == Path(folder).resolve() for place in places)
