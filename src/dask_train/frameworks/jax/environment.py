"""What processes with JAX import, and how many threads XLA computes with on the CPU."""

from __future__ import annotations

import os

JAX_IMPORTS = ("jax", "jax.numpy")


def take_threads(num_threads: int) -> None:
    """Let XLA, which reads it when JAX makes its device, have that many threads in this process."""
    os.environ["NPROC"] = str(num_threads)
