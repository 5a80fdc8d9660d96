"""Waiting for a 32-bit word in shared memory to change, without polling where the kernel can tell: Linux' futex.

``futex(2)``: a waiter sleeps as long as the word has the value that it saw; a waker wakes whoever sleeps on it. Python
has no call of its own for it. Elsewhere than on the machines listed here the word is looked at every tenth of a
millisecond.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable

_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}  # of the system call, from the kernel's tables
_WAIT, _WAKE = 0, 1
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

    def futex(address: int, operation: int, value: int, timeout: _Timespec | None) -> int:
        limit = None if timeout is None else ctypes.byref(timeout)
        return int(
            call(
                ctypes.c_long(number),
                ctypes.c_void_p(address),
                ctypes.c_int(operation),
                ctypes.c_uint32(value),
                limit,
                ctypes.c_void_p(None),
                ctypes.c_int(0),
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


def wake(address: int) -> None:
    """Wake all that sleep on the word at that address.

    Also what makes everything that was written before visible before the word: a system call is a full barrier on the
    machines listed here, and the interpreter's lock is given up and taken around it.
    """
    if _futex is not None:
        _futex(address, _WAKE, _ALL, None)


_EXPECTED = {11, 4, 110}  # EAGAIN: it has changed already; EINTR; ETIMEDOUT
