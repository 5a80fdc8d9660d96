"""The clock of a run: seconds since the epoch that pass evenly, whatever the system's clock is set to."""

from __future__ import annotations

import time


class RunClock:
    """Counts time from its creation on, by the monotonic clock.

    All deadlines of a run are differences of these times. The system's clock is set while runs last (NTP, a virtual
    machine that wakes up), which must neither end a healthy run nor keep one that hangs. Nor is time counted in which
    the process itself did not run: what has come meanwhile is read first.
    """

    def __init__(self) -> None:
        self._ahead_s = time.time() - time.monotonic()

    def leave_out(self, seconds: float) -> None:
        """Do not count seconds that have passed while this process did not run."""
        self._ahead_s -= seconds

    def __call__(self) -> float:
        """Return the time now, in seconds since the epoch as the system's clock was when the run began."""
        return self._ahead_s + time.monotonic()
