"""How numbers travel between hosts: as they are, or rounded to bfloat16; whatever is done with them there."""

from __future__ import annotations

import socket
from typing import Protocol

import numpy as np

from dask_train.transport.array_layout import bytes_of
from dask_train.transport.channels import Readable, fill

# What has come is added in pieces, which stay in the core's cache, while the rest is on its way.
PIECE_BYTES = 1 << 18

_HALF, _ONE_BIT = np.uint32(0x7FFF), np.uint32(1)
_UPPER = np.uint32(16)
_NAN = np.uint16(0x7FC0)


class Wire(Protocol):
    """A way for arrays, ``(n,)`` and C-contiguous; one thread may send while another receives."""

    def send(self, connection: socket.socket, array: np.ndarray) -> None:
        """Send an array, which then holds what the other end gets."""

    def receive(self, connection: Readable, array: np.ndarray) -> None:
        """Read into an array."""

    def add(self, connection: Readable, array: np.ndarray, combine: np.ufunc) -> None:
        """Combine an array with what comes, such as by ``np.add``, in place."""


class Exact:
    """Numbers as they are, of any dtype."""

    def __init__(self) -> None:
        self._come = np.empty(PIECE_BYTES, np.uint8)

    def send(self, connection: socket.socket, array: np.ndarray) -> None:
        """Send an array."""
        connection.sendall(bytes_of(array))

    def receive(self, connection: Readable, array: np.ndarray) -> None:
        """Read into an array."""
        fill(connection, bytes_of(array))

    def add(self, connection: Readable, array: np.ndarray, combine: np.ufunc) -> None:
        """Combine an array with what comes, in place."""
        step = max(1, PIECE_BYTES // array.itemsize)
        for first in range(0, len(array), step):
            piece = array[first : first + step]
            come = self._come[: piece.nbytes].view(array.dtype)
            fill(connection, bytes_of(come))
            combine(piece, come, out=piece)


class Rounded:
    """Numbers of float32, of which the upper 16 bits travel, rounded to the nearest: bfloat16.

    A bfloat16 has the range of float32, and 8 of its 24 bits of mantissa [1]_, so neighbours differ by 1/128 at most,
    and a number changes by at most 1/256 when it is rounded. Ties go to the even neighbour; NaN and
    infinities stay what they are. What was rounded once is not changed by a second time.

    References
    ----------
    .. [1] Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", arXiv:1905.12322, 2019.
    """

    def __init__(self) -> None:
        step = PIECE_BYTES // 4
        self._sent, self._bits = np.empty(step, np.uint16), np.empty(step, np.uint32)  # of the thread that sends
        self._come, self._numbers = np.empty(step, np.uint16), np.empty(step, np.uint32)  # of the one that receives
        self._step = step

    def send(self, connection: socket.socket, array: np.ndarray) -> None:
        """Send an array, rounded, which is rounded itself then: both ends have the same bits."""
        for first in range(0, len(array), self._step):
            piece = array[first : first + self._step]
            sent = self._sent[: len(piece)]
            round_to_bfloat16(piece, sent, self._bits[: len(piece)])
            _widen(sent, piece.view(np.uint32))
            connection.sendall(bytes_of(sent))

    def receive(self, connection: Readable, array: np.ndarray) -> None:
        """Read into an array of float32."""
        for first in range(0, len(array), self._step):
            piece = array[first : first + self._step]
            self._read(connection, piece.view(np.uint32))

    def add(self, connection: Readable, array: np.ndarray, combine: np.ufunc) -> None:
        """Combine an array with what comes, in float32 and in place."""
        for first in range(0, len(array), self._step):
            piece = array[first : first + self._step]
            numbers = self._numbers[: len(piece)]
            self._read(connection, numbers)
            combine(piece, numbers.view(np.float32), out=piece)

    def _read(self, connection: Readable, bits: np.ndarray) -> None:
        come = self._come[: len(bits)]
        fill(connection, bytes_of(come))
        _widen(come, bits)


def round_to_bfloat16(array: np.ndarray, out: np.ndarray, bits: np.ndarray) -> None:
    """Write the bits of the nearest bfloat16 of each number of float32.

    Parameters
    ----------
    array, out, bits
        Of one length: float32; uint16, what is written; and uint32, which is overwritten.
    """
    float_bits = array.view(np.uint32)
    # Half a unit more goes to the next number; exactly half only from an odd one.
    np.right_shift(float_bits, _UPPER, out=bits)
    np.bitwise_and(bits, _ONE_BIT, out=bits)
    np.add(bits, _HALF, out=bits)
    np.add(bits, float_bits, out=bits)
    np.right_shift(bits, _UPPER, out=bits)
    out[...] = bits
    is_nan = np.isnan(array)
    if is_nan.any():  # whose bits may overflow, or be in the lower half alone
        out[is_nan] = _NAN


def _widen(bits: np.ndarray, out: np.ndarray) -> None:
    np.left_shift(bits, _UPPER, out=out, dtype=np.uint32)
