"""What a session sends, receives and asks: scores, values, notices, and whether to stop."""

from __future__ import annotations

import pickle
import time
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.masking import encodable, masked
from dask_train.printing import SafeFile
from dask_train.role.context import Context, Link

RESERVED_NAMES = ("role", "rank", "attempt", "time")
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1  # https://github.com/msgpack/msgpack/blob/master/spec.md
MAX_TEXT = 1000  # a report goes through the scheduler; what is longer is no score


class Messaging:
    """The part of a :class:`~dask_train.role.session.Session` that talks with the run and its client."""

    role: str
    rank: int
    attempt: int
    _link: Link
    _context: Context

    def notice(self, text: str) -> None:
        """Add a notice to the run's result; print it at once in the client and in this role's output.

        Parameters
        ----------
        text
            A sentence.
        """
        SafeFile().write(f"{masked(text)}\n")
        self._link.notice(text)

    def report(self, **scores: Any) -> None:
        """Report scores, which the client follows and stopping rules read. Returns at once; never a barrier.

        It is progress, as are a batch from :meth:`batches`, a message and a checkpoint. A run without any for
        ``train.progress.timeout`` (120 s) in all of its training roles is inspected, and ended as stalled.

        Parameters
        ----------
        **scores
            Numbers, strings, booleans or None; zero-dimensional arrays and tensors are taken as their number.

        Raises
        ------
        ValueError
            A name is reserved (role, rank, attempt, time); a whole number has more than 64 bits; or text has a lone
            surrogate, as names of files may that are no UTF-8.
        TypeError
            A value is not one of those.
        """
        reserved = [name for name in scores if name in RESERVED_NAMES]
        if reserved:
            raise ValueError(
                f"report() adds {', '.join(RESERVED_NAMES)} itself; name your {reserved[0]!r} differently."
            )
        plain: dict[str, Any] = {name: _plain(name, value) for name, value in scores.items()}
        for name, value in plain.items():
            _check_travels(name, value)
        self._note_score(plain)
        plain.update(role=self.role, rank=self.rank, attempt=self.attempt, time=time.time())
        self._link.report(plain)

    def _note_score(self, scores: dict[str, Any]) -> None:
        """Tell a part of the session that keeps checkpoints."""

    def send(self, value: Any) -> None:
        """Send a value to the client, where :meth:`Run.receive` gives it; returns at once.

        It goes through the scheduler: scores and small results may, large ones better lie in a file.

        Parameters
        ----------
        value
            Anything that can be pickled; copied before this returns.

        Raises
        ------
        TypeError
            It can't be pickled.
        """
        try:
            pickled = bytes(cloudpickle.dumps(value))
        except Exception as error:
            raise TypeError(f"send() was given a {type(value).__name__}, which can't be pickled: {error}.") from error
        self._link.send(pickled)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the next value that :meth:`Run.send` has sent to this role, in order, each once.

        Parameters
        ----------
        timeout_s
            How long to wait, in seconds; 0 gives what is there, None waits for as long as the run lasts.

        Returns
        -------
        object
            As :meth:`Run.send` was given it.

        Raises
        ------
        StalledError
            No value has come in time.
        ClosedError
            No value will come: the run stops.
        """
        return pickle.loads(self._link.receive(timeout_s))  # noqa: S301 - from the run's client, as its function is

    def should_stop(self) -> bool:
        """Return whether the run is to end: a rule is met, a client asked, or the training roles have returned.

        Costs no message. The process is killed ``train.stop.timeout`` (5 s) after the decision; one that does not train
        has ``train.progress.timeout`` (120 s) after the training roles have returned.

        To ask is no progress: a role that waits for another asks as well. A loop over data of its own reports now and
        then, see :meth:`report`.

        Returns
        -------
        bool
            Stays true once it is.
        """
        if not self._context.num_batches:
            self._link.note("asking whether to stop")
        return bool(self._link.stop_reason)

    def wait_until_stopped(self) -> None:
        """Sleep until :meth:`should_stop` is true; what a role does whose servers answer others."""
        self._link.note("serving until it is stopped")
        self._link.wait_until_stopped()

    def stop(self, reason: str = "") -> None:
        """Ask all roles of the run to end in order; the run's result has the reason.

        Parameters
        ----------
        reason
            Reason, for the result's ``stop_reason``.
        """
        self._link.ask_to_stop(reason or f"{self.role} {self.rank} asked the run to stop")


def _check_travels(name: str, value: Any) -> None:
    """Check that a score can be put into a message, which has whole numbers of 64 bits and UTF-8.

    Raises
    ------
    ValueError
        It can't.
    """
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        raise ValueError(
            f"report({name}=...) was given {value}; whole numbers have up to 64 bits. Pass float(value) or str(value)."
        )
    for text in (name, value):
        if isinstance(text, str) and encodable(text) != text:
            raise ValueError(
                f"report({encodable(name)}=...) was given text with a lone surrogate, {encodable(text)!r}, which can't "
                "be encoded. The name of a file that is no UTF-8 has some; pass os.fsencode(name).decode('latin-1')."
            )


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if value is None:
        return value
    for kind in (bool, int, float):  # an IntEnum is an int, too, but of a class that others may not be able to load
        if isinstance(value, kind):
            return kind(value)
    scalar = value
    if not hasattr(value, "item") and hasattr(value, "numpy") and getattr(value, "shape", None) == ():
        scalar = value.numpy()  # a TensorFlow tensor
    if callable(getattr(scalar, "item", None)) and getattr(scalar, "shape", ()) == ():
        scalar = scalar.item()
        if scalar is None or isinstance(scalar, str | bool | int | float):
            return _plain(name, scalar)
    raise TypeError(
        f"report({name}=...) was given a {type(value).__name__}; scores are numbers, strings, booleans or None. "
        "Reduce an array first, with float(x.mean()) for instance."
    )
