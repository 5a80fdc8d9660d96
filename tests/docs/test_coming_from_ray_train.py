"""The page for users of Ray Train: both blocks run, and what the page names is there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import dask_train as dt

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coming_from_ray_train.md"
NAMES = ROOT / "docs" / "reference" / "names_elsewhere.md"
RAY = ROOT / ".venv-ray" / "bin" / "python"
TEXT = PAGE.read_text()
THEIRS, OURS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_our_loop_runs(printed: Callable[..., str]) -> None:
    said = printed(OURS)
    assert re.match(r"\d+ scores, and loss is 0\.000\d+ < 0\.001 \(worker \d\)\n", said), said


@pytest.mark.slow
@pytest.mark.skipif(not RAY.exists(), reason="Ray Train has an environment of its own: make .venv-ray")
def test_their_loop_runs(printed: Callable[..., str]) -> None:
    assert re.search(r"\bloss 0\.\d{4}\n", printed(THEIRS, RAY))


def test_what_the_pages_name_is_there() -> None:
    text = TEXT + NAMES.read_text()
    named = set(re.findall(r"\bdt\.(\w+)", text))
    assert named <= set(dt.__all__)
    arguments = set(re.findall(r"`(?:dt\.train\([^`]*?)?(roles|resources|on|name|recovery|data|stop)=", text))
    assert arguments == {"roles", "resources", "on", "name", "recovery", "data", "stop"}
    assert arguments <= set(inspect.signature(dt.train).parameters)
    members = set(re.findall(r"\bsession\.(\w+)", text))
    in_a_session = (dt.Session.__doc__ or "") + " ".join(dir(dt.Session))
    assert [name for name in members if name not in in_a_session] == []
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in link]
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
