"""The page for those who add a framework: its program runs, and its adapter holds to the shipped suite."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_framework.md"
PROGRAM, SUITE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "test_star.py").write_text(SUITE)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=480, check=False
    )


def test_the_program_runs(folder: Path) -> None:
    ended = run(folder, "program.py")
    assert (ended.returncode, ended.stdout) == (0, "{'worker': [[45.0, 145.0], [45.0, 145.0]]}\n"), ended.stderr


def test_the_adapter_holds_to_the_contract(folder: Path) -> None:
    ended = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_star.py")
    assert ended.returncode == 0, ended.stdout
