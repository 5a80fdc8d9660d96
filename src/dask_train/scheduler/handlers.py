"""How a plug-in answers the questions of clients and Dask workers."""

from __future__ import annotations

from typing import Any


def register_handlers(scheduler: Any, owner: Any) -> None:
    """Let each method ``train_*`` of ``owner`` be the scheduler's handler of that name."""
    for name in dir(owner):
        if name.startswith("train_"):
            scheduler.handlers[name] = getattr(owner, name)
