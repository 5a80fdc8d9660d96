"""What the README says can be typed can be typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_program_runs(printed: Callable[[str], str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert printed(program) == "<Ledger: read 150,000, trained 150,000, repeated 0, dropped 0>\n"


def test_its_commands_and_links_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{command}:", makefile, flags=re.MULTILINE) for command in commands)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert "docs/design/README.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
