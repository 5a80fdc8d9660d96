"""Docstrings: public ones are whole, as numpydoc checks them; first lines stand alone."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import dask_train as dt

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Sphinx's own imports
    from numpydoc.validate import validate

SRC = Path(dt.__file__).parent
# There is a docstring with a summary of one line that ends with a period; all parameters are told and none that there
# are not, each with a text; and what is returned or yielded. Left out: the types of parameters, which annotations tell;
# their order, since what belongs together is told together; sections that not every name needs; and the grammar of
# summaries, which is guessed by their letters.
CODES = {"GL08", "SS01", "SS03", "SS04", "SS06", "PR01", "PR02", "PR07", "PR08", "PR09", "RT01", "YD01", "GL07", "GL03"}
# A pronoun or an of-phrase at the beginning speaks of what only the code beside it tells.
DEPENDENT = re.compile(
    r"(One of (them|its)|It|Its|Itself|They|Them|Their|Those|These|That|Of|And|See the module|See the class)\b"
)


def public() -> Iterator[str]:
    for name in dt.__all__:
        value = getattr(dt, name)
        if name == "__version__":
            continue
        yield name
        for member, _ in inspect.getmembers(value) if inspect.isclass(value) else ():
            its = next((vars(of)[member] for of in value.__mro__ if member in vars(of)), None)
            owner = next((of for of in value.__mro__ if member in vars(of)), object)
            is_documented = inspect.isfunction(its) or isinstance(its, property | classmethod | staticmethod)
            if not member.startswith("_") and is_documented and owner.__module__.startswith("dask_train"):
                yield f"{name}.{member}"


@pytest.mark.parametrize("name", list(public()))
def test_public_docstrings_are_whole(name):
    found = [(code, what) for code, what in validate(f"dask_train.{name}")["errors"] if code in CODES]
    value = getattr(dt, name, None)
    if inspect.isclass(value) and "Parameters\n---" not in (value.__doc__ or ""):
        found = [(code, what) for code, what in found if code != "PR01"]  # it is made here, and told by its attributes
    assert found == []


@pytest.mark.parametrize("name", list(public()))
def test_public_docstrings_tell_what_is_raised(name):
    value = dt
    for part in name.split("."):
        value = getattr(value, part)
    if not inspect.isfunction(value):
        return
    tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(value))))
    errors = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    raises = [error for error in errors if ast.unparse(error.func) != "NotImplementedError"]  # for who writes a class
    assert not raises or re.search(r"^\s*Raises$", value.__doc__ or "", re.MULTILINE), (
        f"{name} raises, and does not say what"
    )


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda path: str(path.relative_to(SRC)))
def test_first_lines_stand_alone(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "Empty, alone.").partition("\n")[0]
            assert not DEPENDENT.match(first), f"line {getattr(node, 'lineno', 1)}: {first}"
            assert len(first.split()) > 1, f"line {getattr(node, 'lineno', 1)}: {first}"
