"""The types of the public verbs: what a checker sees, and that overloads and types of keywords are what verbs take."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
import typing
from pathlib import Path
from textwrap import dedent

import pytest

import dask_train as dt
from dask_train.fitting.settings import KerasKeywords, LightGBMKeywords, ModuleKeywords, XGBoostKeywords
from dask_train.fitting.start import fit_function
from dask_train.fitting.torch_module.api import MODULES
from dask_train.fitting.trees.lightgbm_api import LIGHTGBM
from dask_train.fitting.trees.xgboost_api import XGBOOST
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


def keywords_of(verb):
    return {
        name: parameter.annotation
        for name, parameter in inspect.signature(verb).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize(
    ("verb", "keywords"),
    [
        (inspect.unwrap(dt.fit), KerasKeywords),
        (fit_function(MODULES), ModuleKeywords),
        (fit_function(XGBOOST), XGBoostKeywords),
        (fit_function(LIGHTGBM), LightGBMKeywords),
        (dt.train, TrainSettings),
    ],
)
def test_overloads_take_what_the_verb_takes(verb, keywords):
    assert set(keywords.__annotations__) == set(keywords_of(verb)) - {"wait"}
    if verb in (inspect.unwrap(dt.fit), dt.train):
        told = {name: of.__forward_arg__ for name, of in keywords.__annotations__.items()}
        assert told == {name: of for name, of in keywords_of(verb).items() if name != "wait"}


def test_an_overload_of_each_kind_of_model_is_all_that_fit_shows():
    kinds = (KerasKeywords, ModuleKeywords, XGBoostKeywords, LightGBMKeywords)
    assert set(keywords_of(dt.fit)) == {"wait", *(name for kind in kinds for name in kind.__annotations__)}
    others = {"loss", "metrics", "workers", "storage_options"}  # of other kinds, and for what is opened first
    assert set(keywords_of(dt.evaluate)) == set(keywords_of(inspect.unwrap(dt.evaluate))) | others


VERBS = sorted(name for name in dt.__all__ if inspect.isfunction(getattr(dt, name)))


@pytest.mark.parametrize("name", VERBS)
def test_help_and_docstring_tell_of_each_parameter_that_the_signature_has(name):
    verb = getattr(dt, name)
    listed = set(inspect.signature(verb).parameters)
    summary = inspect.getdoc(verb).partition("\n")[0]
    signature, _, rest = pydoc.render_doc(verb, renderer=pydoc.plaintext).partition(summary)
    assert {one for one in listed if not re.search(rf"\b{one}: ", signature)} == set()
    section = re.search(r"Parameters\n *-+\n(.*?)\n *(?:Returns|Raises|Yields)\n", rest, re.DOTALL)
    told = re.findall(r"^(\S.*?)(?: : .*)?$", dedent(section[1] if section else ""), re.MULTILINE)
    assert {one.lstrip("*") for line in told for one in line.split(", ")} == listed


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
    public = {getattr(home, each) for home in (dt, dt.trainers) for each in home.__all__}
    assert ours <= public, f"{name} takes or gives what is not exported"


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
