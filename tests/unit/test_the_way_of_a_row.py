"""The pages of the design that lead through the library name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "the-way-of-a-row.md"


@pytest.mark.parametrize(
    ("page", "at_least"),
    [
        (PAGE, 30),
        (PAGE.with_name("a-kind-of-model.md"), 12),
        (PAGE.with_name("a-kind-of-column.md"), 8),
        (PAGE.with_name("0015-rooms.md"), 40),
    ],
)
def test_files_that_the_page_names_exist(page, at_least):
    named = re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:py|md|toml))`", page.read_text())
    named = [name for name in named if "<" not in name]
    assert len(set(named)) > at_least
    missing = [name for name in named if not any((base / name).exists() for base in (ROOT / "src/dask_train", ROOT))]
    assert not missing


def test_each_hop_has_a_file():
    hops = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(hops) > 25
    for hop in hops:
        assert re.search(r"`[\w/]+\.py`", hop.split("|")[2]), hop


def test_each_room_is_listed():
    listed = (PAGE.with_name("0015-rooms.md")).read_text().partition("## All rooms")[2]
    rooms = {
        name
        for line in listed.splitlines()
        for name in re.findall(r"`(\w+)`", line.split("|")[1] if "|" in line else "")
    }
    assert rooms == {folder.parent.name for folder in (ROOT / "src/dask_train").glob("*/__init__.py")}
