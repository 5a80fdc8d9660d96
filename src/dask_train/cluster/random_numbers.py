"""Random numbers of the program's own: Dask's threads draw none from Python's global generator.

``dask.sizeof`` samples the messages that a client or a scheduler of this process sends, in its event loop, and
connections that fail wait for a random time. Both draw from the ``random`` module. So a program that seeds that module,
and builds a model, gets another one whenever a message is sent between the two: Keras takes the seeds of layers from
there, too (``keras.random.SeedGenerator``).
"""

from __future__ import annotations

import random
import sys

# Those that draw in the event loop of a client, a scheduler or a Dask worker, as of Dask 2026.8.0.
_DRAWING = (
    "dask.sizeof",
    "distributed.comm.core",
    "distributed.protocol.compression",
    "distributed.scheduler",
    "distributed.utils_comm",
)


def leave_to_program() -> None:
    """Let Dask draw from a generator of its own in this process from now on; again, it does nothing."""
    for name in _DRAWING:
        module = sys.modules.get(name)
        for key, value in list(vars(module).items()) if module is not None else ():
            if value is random:
                setattr(module, key, _own)
            elif getattr(value, "__self__", None) is _global:
                setattr(module, key, getattr(_own, value.__name__))


_own = random.Random()  # noqa: S311 - for waiting times and samples
_global = random.random.__self__  # type: ignore[attr-defined]
