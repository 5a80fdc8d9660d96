"""Waiting for a 32-bit word in shared memory to change, without polling where the kernel can tell: Linux' futex.

``futex(2)``: a waiter sleeps as long as the word has the value that it saw; a waker wakes all who sleep on it. Python
has no call of its own for it. Elsewhere than on the machines listed here the word is looked at every tenth of a
millisecond.

A process that sees the word has to see what was written before it, too. Processors other than x86-64 may show other
cores a process' writes in another order than it made them, and Python has no barrier; so the kernel changes the word
(``FUTEX_WAKE_OP``), by an atomic operation that is ordered after all writes before it, and fully
(``futex_atomic_op_inuser`` in ``arch/arm64`` and ``arch/riscv``).
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable

_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}  # of the system call, from the kernel's tables
_WAIT, _WAKE_OP = 0, 5
_ADD = 1 << 28  # operation 1 of FUTEX_WAKE_OP; what is added goes into the bits from 12 on
_ALL = 2**31 - 1
_POLL_S = 1e-4


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _system_call() -> Callable[..., int] | None:
    number = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long

    def futex(address: int, operation: int, value: int, timeout: _Timespec | None, changed: int = 0) -> int:
        limit = ctypes.c_void_p(None) if timeout is None else ctypes.byref(timeout)
        return int(
            call(
                ctypes.c_long(number),
                ctypes.c_void_p(address),
                ctypes.c_int(operation),
                ctypes.c_uint32(value),
                limit,
                ctypes.c_void_p(address),
                ctypes.c_int(changed),
            )
        )

    return futex


_futex = _system_call()


def wait_while(address: int, value: int, timeout_s: float) -> None:
    """Sleep while the word at that address has that value; at most that long, and it may return earlier.

    Raises
    ------
    OSError
        The kernel has no such call, or the address is no one's.
    """
    if _futex is None:
        time.sleep(min(_POLL_S, timeout_s))
        return
    seconds = int(timeout_s)
    limit = _Timespec(seconds, int((timeout_s - seconds) * 1e9))
    if _futex(address, _WAIT, value, limit) != 0:
        error = ctypes.get_errno()
        if error not in _EXPECTED:
            raise OSError(error, f"futex: {os.strerror(error)}")


def add_one(address: int) -> None:
    """Add one to the word at that address, modulo ``2**32``, after all that was written before; wake its sleepers.

    Only one process changes a word.
    """
    if _futex is not None:
        _futex(address, _WAKE_OP, _ALL, None, _ADD | 1 << 12)
        return
    with _barrier:
        word = ctypes.c_uint32.from_address(address)
    word.value += 1


def see_all(address: int) -> None:
    """Let this process see all that was written before a change of a word that it has seen.

    Parameters
    ----------
    address
        Of a word that this process changes.
    """
    if platform.machine() == "x86_64":
        return  # reads are in order there
    if _futex is not None:
        _futex(address, _WAKE_OP, 0, None, _ADD)
    else:
        with _barrier:
            pass


_barrier = threading.Lock()  # as near to one as Python comes
_EXPECTED = {11, 4, 110}  # EAGAIN: it has changed already; EINTR; ETIMEDOUT
