"""The page that draws the ways through the library names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "the-way-of-a-row.md"
NAMED = re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:py|md|toml))`", PAGE.read_text())


def test_files_that_the_page_names_exist():
    assert len(set(NAMED)) > 30
    missing = [name for name in NAMED if not any((base / name).exists() for base in (ROOT / "src/dask_train", ROOT))]
    assert not missing


def test_each_hop_has_a_file():
    hops = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(hops) > 25
    for hop in hops:
        assert re.search(r"`[\w/]+\.py`", hop.split("|")[2]), hop
