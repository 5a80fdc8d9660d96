"""A pseudo-random permutation that is computed where it is asked, not stored."""

from __future__ import annotations

import numpy as np

_ROUNDS = 4  # of a Feistel network; 4 make a pseudo-random permutation of round functions that are (Luby, Rackoff 1988)


def permuted(index: np.ndarray, length: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Return where each index goes in a permutation of ``range(length)`` that ``key`` fixes.

    Parameters
    ----------
    index, length, key
        int64 ``(n,)``, int64 ``(n,)`` and uint64 ``(n,)``: element by element, so that rows of many partitions are
        permuted at once, each within its own.

    Returns
    -------
    numpy.ndarray
        int64 ``(n,)``, ``0 <= result < length``.

    Notes
    -----
    A balanced Feistel network over the next even number of bits; what falls outside ``length`` walks on along its
    cycle until it is inside (Black and Rogaway, 2002: "Ciphers with arbitrary finite domains"), which takes fewer than
    4 rounds on average. No memory but the arrays: a stored permutation of every partition would take 8 bytes per row.
    """
    num_bits = np.frexp(length - 1)[1]  # exact on every machine, as a logarithm need not be
    half = np.maximum(1, (num_bits + 1) // 2).astype(np.uint64)
    mask = (np.uint64(1) << half) - np.uint64(1)
    positions = index.astype(np.uint64)
    size = length.astype(np.uint64)
    walking = np.arange(len(index))
    current = positions.copy()
    while len(walking):
        current = _feistel(current, half[walking], mask[walking], key[walking])
        inside = current < size[walking]
        positions[walking[inside]] = current[inside]
        walking, current = walking[~inside], current[~inside]
    return positions.astype(np.int64)


def _feistel(value: np.ndarray, half: np.ndarray, mask: np.ndarray, key: np.ndarray) -> np.ndarray:
    left, right = value >> half, value & mask
    for turn in range(_ROUNDS):
        left, right = right, left ^ (mixed(right ^ (key + np.uint64(turn * 0x9E3779B97F4A7C15 % 2**64))) & mask)
    return (left << half) | right


def mixed(value: np.ndarray) -> np.ndarray:
    """Return a hash of each uint64: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))
