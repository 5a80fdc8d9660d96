"""Each module with logic has a file of unit tests in the same place below ``tests/unit``."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, UNIT = ROOT / "src" / "dask_train", ROOT / "tests" / "unit"


def has_logic(file: Path) -> bool:
    """Whether a function in it branches; what only names, holds or passes on has nothing to get wrong by itself."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    branches = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.BoolOp, ast.comprehension)
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, functions)]
    return any(isinstance(node, branches) for function in found for node in ast.walk(function))


def modules() -> dict[str, Path]:
    """Modules with logic, by name, with the place of their tests."""
    files = [file for file in SOURCE.rglob("*.py") if not file.name.startswith("__") and has_logic(file)]
    found = {file.relative_to(SOURCE).with_suffix("").as_posix(): file for file in files}
    return {name: UNIT / file.relative_to(SOURCE).with_name(f"test_{file.stem}.py") for name, file in found.items()}


def test_each_module_has_a_file_of_tests() -> None:
    without = sorted(name for name, tests in modules().items() if not tests.exists())
    assert without == [], "they need a file of tests in the same place below tests/unit"
