"""The types of the public verbs: what a checker sees, and that overloads and types of keywords are what verbs take."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import dask_train as dt
from dask_train.fitting.settings import FitSettings
from dask_train.fitting.torch_module.api import fit_module
from dask_train.fitting.torch_module.settings import ModuleSettings
from dask_train.training.api import TrainSettings

PROGRAM = Path(__file__).with_name("typed_program.py")
ROOT = Path(__file__).parents[2]
# Signatures that are for other parts of the library, which hand them what it has made.
INTERNAL = (
    "Session.checkpoints",
    "DataSet.rows_by_number",
    *(f"Framework.{method}" for method in ("alone", "prepare", "load", "rendezvous", "remarks", "dataset_of")),
)


def test_a_program_is_checked_as_its_author_means_it():
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(PROGRAM)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    ("verb", "settings"), [(dt.fit, FitSettings), (fit_module, ModuleSettings), (dt.train, TrainSettings)]
)
def test_overloads_take_what_the_verb_takes(verb, settings):
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(verb).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "wait"
    }
    told = {name: of.__forward_arg__ for name, of in settings.__annotations__.items()}
    assert {
        name: of.removeprefix("Required[").removesuffix("]") if "Required" in of else of for name, of in told.items()
    } == keywords


def signatures():
    for name in dt.__all__:
        value = getattr(dt, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and value.__module__.startswith("dask_train"):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith("_") and function.__module__.startswith("dask_train"):
                    yield f"{name}.{method}", function


@pytest.mark.parametrize(("name", "function"), list(signatures()))
def test_types_in_public_signatures_are_public(name, function):
    if name in INTERNAL:
        return
    known = {"Client": object, "pd": _Anything(), "tf": _Anything(), "torch": _Anything()}
    known |= {each: getattr(dt, each) for each in dt.__all__}
    here = vars(sys.modules[function.__module__])
    hints = typing.get_type_hints(inspect.unwrap(function), globalns={**known, **here})
    ours = {each for hint in hints.values() for each in classes(hint) if each.__module__.startswith("dask_train")}
    assert ours <= {getattr(dt, each) for each in dt.__all__}, f"{name} takes or gives what is not exported"


class _Anything:
    """Stands for a module that is imported for its types only."""

    def __getattr__(self, _):
        return self

    def __getitem__(self, _):
        return object

    def __call__(self):
        return None


def classes(hint):
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    origin = typing.get_origin(hint)
    if isinstance(origin, type):
        yield origin
    for argument in typing.get_args(hint):
        for each in argument if isinstance(argument, list) else [argument]:
            yield from classes(each)
