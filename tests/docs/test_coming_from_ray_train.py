"""The page for users of Ray Train: our block runs, and what the page names is there."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import dask_train as dt

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coming_from_ray_train.md"
TEXT = PAGE.read_text()
THEIRS, OURS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_our_loop_runs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OURS)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.match(r"\d+ scores, and loss is 0\.000\d+ < 0\.001 \(worker \d\)\n", ended.stdout), ended.stdout


def test_their_loop_is_python() -> None:
    """It can't run here, as Ray is not installed."""
    ast.parse(THEIRS)


def test_what_the_page_names_is_there() -> None:
    named = set(re.findall(r"\bdt\.(\w+)", TEXT))
    assert named <= set(dt.__all__)
    arguments = set(re.findall(r"`(?:dt\.train\([^`]*?)?(roles|resources|on|name|recovery|data|stop)=", TEXT))
    assert arguments == {"roles", "resources", "on", "name", "recovery", "data", "stop"}
    assert arguments <= set(inspect.signature(dt.train).parameters)
    members = set(re.findall(r"\bsession\.(\w+)", TEXT))
    in_a_session = (dt.Session.__doc__ or "") + " ".join(vars(dt.Session))
    assert [name for name in members if name not in in_a_session] == []
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in link]
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
