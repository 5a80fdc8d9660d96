"""The program of the page about boosted trees runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "boosted_trees.md"


@pytest.mark.slow
def test_the_program_fits_and_predicts(printed: Callable[[str], str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    said = printed(program)
    *_, rounds, scores = said.strip().splitlines()
    assert re.match(r"\d+ rounds, the best one \d+: 0\.\d+", rounds)
    lazily, at_once = map(float, scores.split())
    assert lazily == at_once > 0.9
