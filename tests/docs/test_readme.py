"""What the README says can be typed can be typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "Ledger(read=150000, trained=150000, repeated=0, dropped=0)\n"


def test_its_commands_and_links_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{command}:", makefile, flags=re.MULTILINE) for command in commands)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert "docs/design/README.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
