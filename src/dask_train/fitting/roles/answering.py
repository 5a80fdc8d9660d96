"""A role that answers others: a thread for each line that is dialled to it, and a method for each order."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from dask_train.transport.channels import Channel, Refusal
from dask_train.transport.reception import Reception

# How long what has been asked may still take when this is closed.
_END_S = 5.0


class Answering:
    """Answers ``(order, told)`` with what ``_on_<order>(caller, **told)`` returns, until it is closed."""

    def __init__(self) -> None:
        self._hung_up = threading.Condition()
        self._served: dict[threading.Thread, Channel] = {}
        self._receptions: list[Reception[Channel]] = []
        self._receiving: list[threading.Thread] = []

    def answer(self, receptions: Sequence[Reception[Channel]]) -> None:
        """Begin to answer connections; they are closed with this."""
        self._receptions = list(receptions)
        self._receiving = [
            threading.Thread(target=self._receive, args=(reception,), name="dask-train-lines", daemon=True)
            for reception in self._receptions
        ]
        for thread in self._receiving:
            thread.start()

    def caller_of(self, line: Channel) -> Any:
        """Return what methods get as the caller; the connection, unless there is more to know."""
        return line

    def wait_until_alone(self, timeout_s: float) -> None:
        """Wait until all callers have disconnected, or for ``timeout_s``."""
        with self._hung_up:
            self._hung_up.wait_for(lambda: not self._served, timeout_s)

    def close(self) -> None:
        """Answer no more: all lines are hung up, and their threads end."""
        for reception in self._receptions:
            reception.close()
        for thread in self._receiving:
            thread.join()
        with self._hung_up:
            served = dict(self._served)
        for line in served.values():
            line.hang_up()
        for thread in served:
            thread.join(_END_S)

    def _receive(self, reception: Reception[Channel]) -> None:
        while True:
            try:
                line = reception.next()
            except OSError:  # closed
                return
            thread = threading.Thread(target=self._serve, args=(line,), name="dask-train-line", daemon=True)
            with self._hung_up:
                self._served[thread] = line
            thread.start()

    def _serve(self, line: Channel) -> None:
        try:
            caller = self.caller_of(line)
            while True:
                order, arguments = line.receive(None)
                line.send(self._answered(caller, order, arguments))
        except (EOFError, OSError):  # the caller has ended
            return
        finally:
            line.close()
            with self._hung_up:
                del self._served[threading.current_thread()]
                self._hung_up.notify_all()

    def _answered(self, caller: Any, order: str, arguments: dict[str, Any]) -> Any:
        try:
            return getattr(self, f"_on_{order}")(caller, **arguments)
        except Exception as error:  # the caller raises it: else it would consider this role gone
            return Refusal(f"{type(error).__name__}: {error}")
