"""What a role process does that fits estimators: one unit of work after the other, on rows in shared memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dask_train.data.columns import Columns
from dask_train.searching.estimators.rows import RowTable
from dask_train.searching.worker import TrialDone, TrialRequest, TrialServer

if TYPE_CHECKING:
    from dask_train.role.session import Session

# How often, in seconds, a process reports that it is alive, as a fit reports nothing while it lasts.
ALIVE_S = 2.0


class UnitWork(Protocol):
    """What a request holds for this loop."""

    def __call__(self, request: TrialRequest, session: Session, tables: dict[str, RowTable]) -> Any:
        """Do it; what is returned is sent to the client."""


@dataclass(frozen=True, kw_only=True)
class EstimatorLoop(TrialServer):
    """Called with a session, it does units of work.

    Attributes
    ----------
    columns
        Which column of the data is what.
    validation
        The same of the data set of that name; None without one.
    """

    columns: Columns
    validation: tuple[str, Columns] | None = None

    def make_worker(self, session: Session) -> EstimatorWorker:
        """Return what does them, on the rows of all."""
        assert session._data is not None
        tables = {"data": RowTable(session._data.rows_by_number(), self.columns)}
        if self.validation is not None:
            name, columns = self.validation
            tables["validation"] = RowTable(session.dataset(name).rows_by_number(), columns)
        return EstimatorWorker(session, tables)


class EstimatorWorker:
    """Does units of work."""

    def __init__(self, session: Session, tables: dict[str, RowTable]) -> None:
        self._session, self._tables = session, tables

    def work(self, request: TrialRequest) -> TrialDone | None:
        """Do one, and tell all the while that the process is at work."""
        with _alive(self._session, f"working on trial {request.number}"):
            unit: UnitWork = request.work
            done: TrialDone | None = unit(request, self._session, self._tables)
            return done

    def forget(self) -> None:
        """Leave the process as it is: the tables serve all requests."""


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
