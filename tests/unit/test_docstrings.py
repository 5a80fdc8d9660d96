"""Docstrings: public ones are whole, as numpydoc checks them; first lines stand alone."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import pytest

import dask_train as dt
from dask_train.cli import train as train_group

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Sphinx's own imports
    from numpydoc.docscrape import NumpyDocString
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


# Modules with public names of their own whose callables a user passes arguments to.
MODULES = ("linear_model", "logging", "sklearn")
# Made by verbs, not by users: their constructors' arguments are no concern of theirs.
MADE_BY_VERBS = {
    *(
        "Run",
        "Scores",
        "Session",
        "DataSet",
        "FileRows",
        "RecordRows",
        "PublishedDataset",
        "TensorFlowNetwork",
        "Board",
    ),
    *(
        "FitResult",
        "Ledger",
        "SearchResult",
        "GridResult",
        "AddressBook",
        "logging.Sink",
        "logging.Logger",
        "logging.Score",
    ),
}


def public(names: Iterable[str] = dt.__all__) -> Iterator[str]:
    for name in names:
        value = attribute(name)
        if name == "__version__":
            continue
        yield name
        for member, _ in inspect.getmembers(value) if inspect.isclass(value) else ():
            its = next((vars(of)[member] for of in value.__mro__ if member in vars(of)), None)
            owner = next((of for of in value.__mro__ if member in vars(of)), object)
            is_documented = inspect.isfunction(its) or isinstance(its, property | classmethod | staticmethod)
            if not member.startswith("_") and is_documented and owner.__module__.startswith("dask_train"):
                yield f"{name}.{member}"


def attribute(name: str) -> Any:
    value: Any = dt
    for part in name.split("."):
        value = getattr(value, part)
    return value


def told_arguments(name: str) -> dict[str, tuple[inspect.Parameter, str]]:
    """The arguments of something public, by name, each with what its docstring says of it; empty where it does not."""
    value = attribute(name)
    doc = NumpyDocString(inspect.getdoc(value) or "")
    said = {
        one.strip().lstrip("*"): " ".join(entry.desc)
        for section in ("Parameters", "Attributes")
        for entry in doc[section]
        for one in entry.name.split(",")
    }
    parameters = inspect.signature(value).parameters.values()
    return {one.name: (one, said.get(one.name, "")) for one in parameters if one.name not in ("self", "cls")}


EVERYWHERE = [*public(), *public([f"{module}.{name}" for module in MODULES for name in getattr(dt, module).__all__])]


def gaps_by_name(gaps_of: Callable[[str], Any], names: Iterable[str]) -> dict[str, Any]:
    """The gaps in what is said of something public, by its name: there are too many for a test each."""
    return {name: gaps for name in names if (gaps := gaps_of(name))}


def test_help_of_a_verb_has_an_example():
    verbs = [name for name in dt.__all__ if inspect.isfunction(getattr(dt, name))]
    assert verbs
    assert [name for name in verbs if not NumpyDocString(inspect.getdoc(getattr(dt, name)))["Examples"]] == []


def test_help_says_what_each_argument_means_and_what_it_is_where_nobody_passes_it():
    assert gaps_by_name(gaps_in_arguments, [name for name in EVERYWHERE if name not in MADE_BY_VERBS]) == {}


def gaps_in_arguments(name: str) -> list[str]:
    value = attribute(name)
    if not (inspect.isfunction(value) or inspect.isclass(value)) or (
        isinstance(value, type) and issubclass(value, Exception)
    ):
        return []
    refers = re.compile(r"\bAs (in|of|from|:(func|meth|class):)|\bNot used")
    gaps = []
    for argument, (parameter, text) in told_arguments(name).items():
        if not text and not (inspect.getdoc(value) or "").startswith("See :meth:"):
            gaps.append(f"{argument} is not told")
        elif parameter.default is None and not (DEFAULT.search(text) or refers.search(text)):
            gaps.append(f"{argument} does not say what it is by default: {text}")
        elif is_number(parameter.default) and not (re.search(r"\d|[Dd]efault", text) or refers.search(text)):
            gaps.append(f"{argument} does not say its default, {parameter.default}: {text}")
        elif argument.endswith("_s") and text and not re.search(r"[Ss]econds", text):
            gaps.append(f"{argument} has no unit: {text}")
    return gaps


# What says what happens where an argument is None.
DEFAULT = re.compile(r"None|[Dd]efault|[Rr]equired|left out|[Ww]ithout|unless|otherwise")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_the_first_line_of_help_says_what_it_is_or_does():
    firsts = {name: (inspect.getdoc(attribute(name)) or "").partition("\n")[0] for name in EVERYWHERE}
    wrong = re.compile(r"(What|Whether|Where|How|Which|Whose)\b")
    assert {name: first for name, first in firsts.items() if wrong.match(first)} == {}


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


@pytest.mark.parametrize(("name", "command"), list(commands(train_group, "dask train")))
def test_help_of_the_command_line_tells_each_option(name, command):
    assert command.help, f"{name} --help says nothing"
    untold = [one.name for one in command.params if isinstance(one, click.Option) and not one.help]
    assert untold == [], f"{name} --help does not say what these are"


def test_public_docstrings_are_whole():
    assert gaps_by_name(gaps_that_numpydoc_finds, public()) == {}


def gaps_that_numpydoc_finds(name: str) -> list[tuple[str, str]]:
    found = [(code, what) for code, what in validate(f"dask_train.{name}")["errors"] if code in CODES]
    value = getattr(dt, name, None)
    if inspect.isclass(value) and "Parameters\n---" not in (value.__doc__ or ""):
        found = [(code, what) for code, what in found if code != "PR01"]  # it is made here, and told by its attributes
    return found


def test_public_docstrings_tell_what_is_raised():
    untold = [name for name in public() if raises_untold(attribute(name))]
    assert untold == [], "these raise, and do not say what"


def raises_untold(value: Any) -> bool:
    if not inspect.isfunction(value):
        return False
    tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(value))))
    errors = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    raises = [error for error in errors if ast.unparse(error.func) != "NotImplementedError"]  # for who writes a class
    return bool(raises) and not re.search(r"^\s*Raises$", value.__doc__ or "", re.MULTILINE)


def with_docstrings(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield what may have a docstring, of which expressions hold none."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        inside = getattr(node, part, ())
        for each in inside if isinstance(inside, list) else ():
            yield from with_docstrings(each)


def test_first_lines_stand_alone():
    dependent = []
    for path in sorted(SRC.rglob("*.py")):
        for node in with_docstrings(ast.parse(path.read_text())):
            first = (ast.get_docstring(node) or "Empty, alone.").partition("\n")[0]
            if DEPENDENT.match(first) or len(first.split()) < 2:
                dependent.append(f"{path.relative_to(SRC)}, line {getattr(node, 'lineno', 1)}: {first}")
    assert dependent == []
