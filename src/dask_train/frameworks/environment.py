"""The environment of a role process, as its framework reads it, for a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def environment_restored() -> Iterator[None]:
    """Whatever is set, changed or taken away inside is afterwards as it was.

    Only what differs is touched: servers' threads read the environment meanwhile, and never find it empty.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
