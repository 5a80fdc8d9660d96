"""Programs of pages and examples: how they are run, and how long they may take."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Against hangs, not against slow machines: on two idle cores a program takes less than a minute.
PROGRAM_S = 480.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what runs programs take as long as these may."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(PROGRAM_S + 60.0))


@pytest.fixture(scope="session")
def as_in_a_notebook() -> dict[str, str]:
    """The environment of programs whose Dask workers don't import them: it takes half of the time."""
    return {"PYTHONPATH": str(HERE / "as_in_a_notebook")}


@pytest.fixture(scope="session")
def program_s() -> float:
    """How long a program may take."""
    return PROGRAM_S


@pytest.fixture
def printed(tmp_path: Path) -> Callable[..., str]:
    """Runs a program in a folder of its own; what it prints, if it ends well."""

    def run(program: str, python: str | Path = sys.executable, environment: dict[str, str] | None = None) -> str:
        (tmp_path / "program.py").write_text(program)
        ended = subprocess.run(
            [python, "program.py"],
            cwd=tmp_path,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run
