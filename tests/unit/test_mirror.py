"""Each room with logic has a folder of unit tests in the same place below ``tests/unit``, and each folder there a room.

How many files of tests a room has, and what each is about, is up to the room.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, UNIT = ROOT / "src" / "dask_train", ROOT / "tests" / "unit"


def has_logic(file: Path) -> bool:
    """Return whether a function in a file branches; one that only names or passes on has nothing to get wrong."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    branches = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.BoolOp, ast.comprehension)
    parts = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, functions)]
    return any(isinstance(node, branches) for function in parts for node in ast.walk(function))


def rooms_with_logic() -> set[Path]:
    """Return folders below ``src/dask_train`` that hold a module with logic, relative to it."""
    found: set[Path] = set()
    for file in SOURCE.rglob("*.py"):
        room = file.parent.relative_to(SOURCE)
        if room not in found and has_logic(file):
            found.add(room)
    return found


def folders_of_tests() -> set[Path]:
    """Return folders below ``tests/unit`` that hold a file of tests, relative to it."""
    return {file.parent.relative_to(UNIT) for file in UNIT.rglob("test_*.py")}


def test_each_room_with_logic_has_a_folder_of_tests() -> None:
    without = sorted(map(str, rooms_with_logic() - folders_of_tests()))
    assert without == [], "these rooms need a folder of tests in the same place below tests/unit"


def test_each_folder_of_tests_belongs_to_a_room() -> None:
    rooms = {file.parent.relative_to(SOURCE) for file in SOURCE.rglob("*.py")}
    assert folders_of_tests() - rooms == set(), "there are no such rooms in src/dask_train"
