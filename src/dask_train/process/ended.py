"""How a child process has ended, in words."""

from __future__ import annotations

import signal


def how_it_ended(pid: int, status: int, *, num_oom_kills: int) -> str:
    """Return a clause about a process, without its end of sentence.

    Parameters
    ----------
    pid
        The process.
    status
        As :attr:`subprocess.Popen.returncode` has it: a signal is a negative number.
    num_oom_kills
        How many processes the kernel has killed for the container's memory limit since it started.
    """
    if status >= 0:
        return f"process {pid} exited with status {status}"
    if status == -signal.SIGKILL and num_oom_kills:
        return f"process {pid} was killed by the kernel because the container's memory limit was reached"
    return f"process {pid} was killed by {signal.Signals(-status).name}"
