"""The program of the page about JAX runs, and its ranks end with the same weights, those of the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "jax.md"


@pytest.mark.slow
def test_the_program_trains_over_processes(printed: Callable[[str], str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    said = printed(program)
    weights = ast.literal_eval(said.strip().splitlines()[-1])
    first, second = weights["worker"] if isinstance(weights, dict) else weights
    assert first == second
    np.testing.assert_allclose(first, 1.0, atol=0.3)
