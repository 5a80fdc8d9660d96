"""What the README says can be typed can be typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_program_runs(printed: Callable[[str], str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    ledger, columns, *_ = (" ".join(line.split()) for line in shown.splitlines())
    lines = [" ".join(line.split()) for line in printed(program).splitlines()]
    assert lines[:2] == [ledger, columns]
    assert len(lines) == 2 + 1 + 5, "the index's name, and five rows"


def test_its_commands_and_links_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{command}:", makefile, flags=re.MULTILINE) for command in commands)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert "docs/design/README.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_it_is_short_and_its_code_narrow() -> None:
    assert len(README.split()) < 700
    blocks = re.findall(r"```\w+\n(.*?)```", README, flags=re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 80] == []
