"""The whole program of each guide runs, and prints what its page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "boosted_trees.md",
    "bring-your-own-loop.md",
    "files.md",
    "hyperparameter_search.md",
    "contrastive.md",
    "jax.md",
    "keras.md",
    "linear_models.md",
    "scikit_learn.md",
    "start.md",
    "torch_modules.md",
)
# Their Dask workers import them, as those of a script do.
AS_SCRIPTS = ("keras.md", "linear_models.md", "start.md", "torch_modules.md")
# The verbs of these have other programs that run with each change.
NIGHTLY = (
    "boosted_trees.md",
    "contrastive.md",
    "files.md",
    "hyperparameter_search.md",
    "jax.md",
    "linear_models.md",
    "scikit_learn.md",
    "torch_modules.md",
)
NUMBER = re.compile(r"(?<!\w)-?\d[\d,]*(?:\.\d*)?(?:e[-+]\d+)?(?!\w)")


def shown(page: str) -> tuple[str, str]:
    """Return the first program of a page, and what the page says that it prints."""
    text = (DOCS / page).read_text()
    found = re.search(r"```python\n((?:(?!```).)*)```\n\nIt prints:\n\n```text\n(.*?)```", text, re.DOTALL)
    assert found is not None, f"{page} has no program with what it prints"
    return found[1], found[2]


def words_of(text: str) -> list[str]:
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.strip().splitlines()]


def numbers_of(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text) if number.strip(",")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.nightly] if page in NIGHTLY else []) for page in PAGES]
)
def test_a_program_prints_what_its_page_shows(
    page: str, printed: Callable[..., str], as_in_a_notebook: dict[str, str]
) -> None:
    program, expected = shown(page)
    given = printed(program, environment={} if page in AS_SCRIPTS else as_in_a_notebook)
    assert words_of(given) == words_of(expected)
    # Additions are in another order on each machine, and training amplifies that.
    assert numbers_of(given) == pytest.approx(numbers_of(expected), rel=0.3, abs=0.15)
