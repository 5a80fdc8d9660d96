"""How often a run keeps a checkpoint, and where."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """Where a run of ``fit`` keeps checkpoints, and how often.

    Parameters
    ----------
    url
        A folder that the hosts of the cluster share, or an fsspec URL such as ``s3://bucket/run``.
    every_steps
        After so many steps, counted from the first of all; None for no such rule.
    every_s
        After so many seconds; None for no such rule.

    Raises
    ------
    ValueError, TypeError
        The place is empty, or a number is not above 0.

    Notes
    -----
    One is also kept at the end of each epoch. A checkpoint is written in the background, while training goes on; one
    that is due while another is written waits for it. The last two are kept.
    """

    url: str | os.PathLike[str]
    every_steps: int | None = None
    every_s: float | None = 60.0

    def __post_init__(self) -> None:
        url: Any = self.url
        if not isinstance(url, str | os.PathLike) or not os.fspath(url):
            raise ValueError(f"checkpoint is {self.url!r}; pass a folder or a URL.")
        steps: Any = self.every_steps
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise ValueError(f"every_steps is {steps!r}; pass a whole number of at least 1, or None.")
        seconds: Any = self.every_s
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
            raise ValueError(f"every_s is {seconds!r}; pass seconds above 0, or None.")
