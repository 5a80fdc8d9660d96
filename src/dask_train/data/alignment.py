"""Where arrays begin in memory that is shared with frameworks."""

from __future__ import annotations

# What DLPack consumers ask for (https://dmlc.github.io/dlpack/latest/c_api.html): TensorFlow's from_dlpack aborts the
# process for memory that is aligned to less (Eigen's alignment; seen with TensorFlow 2.21).
ALIGNMENT_BYTES = 64


def rounded(size: int, step: int = ALIGNMENT_BYTES) -> int:
    """Return the next multiple of ``step`` from ``size`` on."""
    return -(-size // step) * step


def is_aligned(address: int) -> bool:
    """Return whether an array that begins there can be shared."""
    return address % ALIGNMENT_BYTES == 0
