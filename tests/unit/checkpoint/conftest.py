"""Where checkpoints are kept in tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place in the local file system, and one of a store without folders."""
    if request.param == "local":
        yield str(tmp_path / "run")
        return
    yield "memory://run"
    fsspec.filesystem("memory").rm("/run", recursive=True)
