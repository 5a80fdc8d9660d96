"""The program of the page about modules of torch runs, and its module has learnt."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "torch_modules.md"


@pytest.mark.slow
def test_the_program_trains_evaluates_and_predicts(printed: Callable[[str], str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    said = printed(program)
    accuracy, loss, right = map(float, said.split())
    assert accuracy > 0.9
    assert loss < 0.3
    assert right > 0.9
