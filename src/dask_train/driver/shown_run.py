"""A run as a notebook shows it: drawn again while it lasts, with a button that stops it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from dask_train.cards import in_notebook
from dask_train.cluster.on_loop import begin
from dask_train.driver.watching import LOOK_S, seen
from dask_train.report.notebook import NotebookButton

if TYPE_CHECKING:
    from dask_train.driver.loop import Driver

# How long the client's event loop may take for an answer; one that has ended gives none.
ANSWER_S = 30.0

# Makes what shows a run; as ``launch`` has it.
MakeDisplay = Callable[[bool | None], Any]


def html_of(driver: Driver, make: MakeDisplay) -> str:
    """Return the run now, as HTML."""
    display = make(False)
    display.update(seen(driver))
    return str(display.html())


def show_live(driver: Driver, make: MakeDisplay, stop: Callable[[str], None]) -> None:
    """Show a run below the notebook's cell until it is over.

    A thread draws it again, four times a second at most, and ends with the run. It doesn't hold the run's handle: a run
    without a reference is stopped.

    Parameters
    ----------
    stop
        A method of the handle that ends the run, given why.

    Raises
    ------
    NotImplementedError
        This is no notebook, and IPython shows the run as it shows anything.
    """
    if not in_notebook():
        raise NotImplementedError
    display = make(None)
    display.update(seen(driver))  # at once, so that it stands below this cell
    if driver.over:
        return
    held = weakref.WeakMethod(stop)

    def pressed() -> None:
        if (still := held()) is not None:
            still("it was stopped in the notebook")

    button = NotebookButton("Stop", pressed)

    def follow() -> None:
        try:
            with display:
                while not driver.over:
                    _wait_a_while(driver)
                    display.update(seen(driver))
                display.update(seen(driver))  # it may have ended right after the last look
        except (RuntimeError, TimeoutError, CancelledError):  # the client's loop has ended, and the run with it
            return
        finally:
            button.close()

    threading.Thread(target=follow, name=f"dask-train-shows-{driver.job.id}", daemon=True).start()


def _wait_a_while(driver: Driver) -> None:
    """Until the run is over, but not for long; works with asynchronous clients, too."""
    looked: Future[bool] = Future()
    begin(driver.peer.loop.asyncio_loop, looked, driver.until, lambda: driver.over, time.monotonic() + LOOK_S)
    looked.result(ANSWER_S)
