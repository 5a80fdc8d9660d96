"""Private parts of other libraries are used in the package ``compat`` alone."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dask_train

SOURCE = Path(dask_train.__file__).parent

# Modules that are private without an underscore.
PRIVATE_MODULES = ("keras.src", "tensorflow.python")
# Names with an underscore that Python's own documentation has.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
# Private names of this library that several of its files use, which are told from those of others by no underscore.
OURS = {
    "_alone",
    "_close",
    "_context",
    "_count_no_rows",
    "_data",
    "_example",
    "_failure",
    "_go_on_among",
    "_joins",
    "_link",
    "_meeting",
    "_peer",
    "_posed",
    "_posed_for",
    "_save",
    "_start",
    "_state_memory",
    "_stop",
    "_trained",
}


KINDS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
    *(ast.Name, ast.Attribute, ast.Call),
)


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__")


@cache
def nodes(text: str) -> list[ast.AST]:
    """Return what a file may define, import or name, in order."""
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, KINDS)]


@pytest.fixture(scope="module", autouse=True)
def _forget_nodes() -> Iterator[None]:
    """They take a hundred megabytes."""
    yield
    nodes.cache_clear()


def defined(text: str) -> set[str]:
    """Return names that a file defines: functions, classes, variables, and attributes of ``self`` and ``cls``."""
    names = set()
    for node in nodes(text):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def imported(node: ast.AST) -> Iterator[str]:
    """Yield private modules, and private names of modules, that a statement imports from other libraries."""
    match node:
        case ast.Import(names=aliases):
            found = [alias.name for alias in aliases]
        case ast.ImportFrom(module=str(module), names=aliases, level=0):
            found = [f"{module}.{alias.name}" for alias in aliases]
        case _:
            return
    for name in found:
        is_other = name.partition(".")[0] not in ("__future__", "dask_train")
        if is_other and (any(map(is_private, name.split("."))) or name.startswith(PRIVATE_MODULES)):
            yield name


def named(node: ast.AST, own: set[str], ours: set[str]) -> Iterator[str]:
    """Yield private attributes of other libraries' objects.

    An attribute is another library's where the file does not define its name; that of ``self``, where no file does,
    since a class may have it of one in another file.
    """
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if is_private(name) and name not in ours:
            yield ast.unparse(node)
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return
        case ast.Attribute(attr=name) if is_private(name) and name not in own:
            yield ast.unparse(node)
        case ast.Call(args=[_, ast.Constant(value=str(name)), *_]) if name.isidentifier() and is_private(name):
            if name not in own:  # of getattr, setattr, hasattr, patch.object
                yield ast.unparse(node)


def private_parts(text: str, ours: set[str]) -> list[str]:
    """Return private parts of other libraries that a file uses, each with its line."""
    own = defined(text) | OURS | DOCUMENTED
    ours = ours | own
    return [
        f"line {node.lineno}: {part}"  # type: ignore[attr-defined]
        for node in nodes(text)
        for part in (*imported(node), *named(node, own, ours))
    ]


def test_they_are_used_in_compat_alone() -> None:
    texts = {path.relative_to(SOURCE): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    ours = set().union(*map(defined, texts.values()))
    outside = {path: text for path, text in texts.items() if path.parts[0] != "compat"}
    used = [f"{path}, {part}" for path, text in outside.items() for part in private_parts(text, ours)]
    assert used == [], "give each of these a function in dask_train.compat, or use a public interface"


def test_names_of_ours_are_still_used() -> None:
    texts = (path.read_text() for path in SOURCE.rglob("*.py"))
    used = {node.attr for text in texts for node in nodes(text) if isinstance(node, ast.Attribute)}
    assert OURS - used == set()


@pytest.mark.parametrize(
    "line",
    [
        "from keras.src.losses import loss",
        "from keras import _private",
        "import torch._subclasses",
        "import tensorflow.python.framework",
        "from lightgbm.basic import Booster, _LIB",
        "frame._meta",
        "frame._meta.columns",
        "frame._meta = None",
        "getattr(frame, '_meta', None)",
        "patch.object(frame, '_meta')",
        "self._iterations",
    ],
)
def test_the_check_sees_them(line: str) -> None:
    assert len(private_parts(line, ours={"_columns"})) == 1


def test_the_check_leaves_other_names_alone() -> None:
    text = """
    from dask_train.errors import _drawn
    from keras import losses

    class Table:
        def __init__(self):
            self._rows, _ = [], None

        def joined(self, other):
            os._exit(1)
            return type(self)(self._rows + other._rows, self._columns, other.__dict__, getattr(other, "_rows"))
    """
    assert private_parts(textwrap.dedent(text), ours={"_columns"}) == []
