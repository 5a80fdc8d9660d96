"""The program of the page about linear models fits, scores and predicts lazily."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "linear_models.md"


@pytest.mark.slow
def test_the_program_runs(printed: Callable[[str], str]) -> None:
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    accuracy, lazy = printed(program).strip().splitlines()
    assert 0.8 < float(accuracy.removeprefix("accuracy: ")) < 1
    assert lazy.startswith("dask.array<linear, shape=(100000, 2), dtype=float64, chunksize=(10000, 2)")
