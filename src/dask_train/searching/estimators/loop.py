"""What a role process does that fits estimators: one unit of work after the other, on rows in shared memory."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dask_train.data.columns import Columns
from dask_train.errors import ClosedError
from dask_train.searching.estimators.rows import RowTable
from dask_train.searching.worker import TrialFailed, TrialOrder

if TYPE_CHECKING:
    from dask_train.role.session import Session

# A fit tells nothing while it goes on; that its process is alive is told so often, well within any deadline.
ALIVE_S = 2.0


class UnitWork(Protocol):
    """What an order holds for this loop."""

    def __call__(self, order: TrialOrder, session: Session, tables: dict[str, RowTable]) -> Any:
        """Do it; what is returned is sent to the client."""


@dataclass(frozen=True, kw_only=True)
class EstimatorLoop:
    """Called with a session, it does what it is sent, until the run ends.

    Attributes
    ----------
    columns
        Which column of the data is what.
    validation
        The same of the data set of that name; None without one.
    """

    columns: Columns
    validation: tuple[str, Columns] | None = None

    __name__ = "search"

    def __call__(self, session: Session) -> None:
        """Serve orders until the run ends."""
        assert session._data is not None
        tables = {"data": RowTable(session._data.rows_by_number(), self.columns)}
        if self.validation is not None:
            name, columns = self.validation
            tables["validation"] = RowTable(session.dataset(name).rows_by_number(), columns)
        while True:
            try:
                order = session.receive()
            except ClosedError:
                return
            if not isinstance(order, TrialOrder):
                continue  # the end of a trial that has ended by itself meanwhile
            began = time.monotonic()
            try:
                order.settings.apply()  # others than before where the user's function sets some for each trial
                with _alive(session, f"working on trial {order.number}"):
                    work: Any = order.task
                    told = work(order, session, tables)
            except Exception as error:
                told = TrialFailed(
                    number=order.number,
                    error=f"{type(error).__name__}: {error}"[:2000],
                    traceback=traceback.format_exc()[-10_000:],
                    seconds=time.monotonic() - began,
                )
            session.send(told)
            del told, order


@contextmanager
def _alive(session: Session, doing: str) -> Iterator[None]:
    """Tell all the while that the role is at work."""
    ended = threading.Event()

    def tell() -> None:
        session._link.moved(doing)
        while not ended.wait(ALIVE_S):
            session._link.moved(doing)

    thread = threading.Thread(target=tell, name="dask-train-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
