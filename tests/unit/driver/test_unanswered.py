"""How a run ends whose scheduler does not answer any more: its own deadline has passed, and no other one follows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.driver import loop
from dask_train.driver.handle import Run
from dask_train.driver.loop import Driver
from dask_train.driver.printed import Printed
from dask_train.driver.run_context import RunContext
from dask_train.driver.settings import RunSettings
from dask_train.errors import DaskTrainError, RoleLostError
from dask_train.run.commands import Finish, Verdict

UNANSWERED = RoleLostError("The Dask scheduler did not answer.")
FINISH = Finish(verdict=Verdict.DRIVER, what=str(UNANSWERED))


class Ended:
    """What a driver has when its run is over, with a scheduler that is asked in vain."""

    is_unanswered = RunContext.is_unanswered
    over = True
    _finished = Driver._finished

    def __init__(self, error: BaseException | None) -> None:
        self.history = SimpleNamespace(
            driver_error=error, raised={}, diagnosis="", closed=False, finished=lambda *_: None, results={}
        )
        self.finish, self._tasks = FINISH, set()
        plan = SimpleNamespace(role_keys=lambda: ())
        self.job = SimpleNamespace(id="mine", run=RunSettings(), refuses=None, plan=plan)
        self.dispatch = SimpleNamespace(end=self._end)
        self.data = SimpleNamespace(cancel=self._never)
        self._shield = SimpleNamespace(down=self._down)
        self.waited: list[float] = []
        self.num_asked = 0

    def _last_summary(self) -> dict[str, Any]:
        return {}

    def tell(self) -> None:
        pass

    async def _end(self, _: Any, timeout_s: float) -> None:
        self.waited.append(timeout_s)
        raise TimeoutError

    async def _never(self) -> None:
        await asyncio.Event().wait()

    async def _down(self) -> None:
        pass

    async def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.num_asked += 1
        raise UNANSWERED


@pytest.mark.parametrize("error", [UNANSWERED, None])
def test_a_scheduler_that_has_not_answered_is_told_and_not_waited_for(error, monkeypatch):
    monkeypatch.setattr(loop, "CANCEL_S", 0.01 if error is None else 1000.0)
    driver: Any = Ended(error)
    asyncio.run(asyncio.wait_for(Driver._close(driver), 60))
    assert driver.waited == [loop.AGENTS_S if error is None else loop.UNANSWERED_S]
    assert driver.history.closed


@pytest.mark.parametrize("error", [UNANSWERED, None])
def test_its_roles_output_is_not_asked_for(error):
    driver: Any = Ended(error)
    run: Any = object.__new__(Run)
    driver.peer = driver
    run.id, run._driver, run._peer, run._printed = "mine", driver, driver, Printed(driver)
    with pytest.raises(DaskTrainError, match="did not answer"):
        asyncio.run(run._outcome())
    assert driver.num_asked == (error is None)
