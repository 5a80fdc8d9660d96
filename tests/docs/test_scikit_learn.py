"""The program of the page about scikit-learn runs, and says what it should."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "scikit_learn.md"


@pytest.mark.slow
def test_the_program_runs(printed: Callable[[str], str]) -> None:
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    said = printed(program)
    assert "<Ledger: read 40,000, trained 40,000, repeated 0, dropped 0>" in said
    assert "lazily: (2000, 2)" in said
    assert "<GridResult: 2 candidates on 3 folds, 9 fits of steps; best value 0." in said
    assert "incremental: <Ledger: read 4,000, trained 4,000, repeated 0, dropped 0>" in said
