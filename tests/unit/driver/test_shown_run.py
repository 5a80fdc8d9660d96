"""A run in a notebook: drawn until it is over, with a button, and held by none of both."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.driver import shown_run
from dask_train.driver.shown_run import html_of, show_live


class Display:
    """What was drawn; as a context it is open."""

    def __init__(self, given: bool | None) -> None:
        self.given, self.drawn, self.entered, self.left = given, list[str](), False, threading.Event()

    def __enter__(self) -> Display:
        self.entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self.left.set()

    def update(self, run: dict[str, Any]) -> None:
        self.drawn.append(run["phase"])

    def html(self) -> str:
        return f"<b>{self.drawn[-1]}</b>"


class Button:
    """The last one."""

    last: Button

    def __init__(self, label: str, pressed: Callable[[], None]) -> None:
        self.label, self.press, self.is_closed = label, pressed, threading.Event()
        Button.last = self

    def close(self) -> None:
        self.is_closed.set()


class Handle:
    """Who holds the run."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def stop(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A run on the event loop of a client, which is another thread's; in a notebook."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    news = asyncio.Event()

    async def until(met: Callable[[], bool], deadline: float) -> bool:
        await news.wait()
        news.clear()
        return met()

    def tell(phase: str, *, over: bool = False) -> None:
        it.phase, it.over = phase, over
        loop.call_soon_threadsafe(news.set)

    it: Any = SimpleNamespace(
        phase="starting",
        over=False,
        until=until,
        tell=tell,
        job=SimpleNamespace(id="run"),
        loop=loop,
        peer=SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop)),
    )
    monkeypatch.setattr(shown_run, "in_notebook", lambda: True)
    monkeypatch.setattr(shown_run, "NotebookButton", Button)
    monkeypatch.setattr(shown_run, "seen", lambda driver: {"phase": driver.phase})
    it.displays = []

    def make(given: bool | None) -> Display:
        it.displays.append(Display(given))
        return it.displays[-1]

    it.make = make
    try:
        yield it
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def shows() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dask-train-shows-run"]


def gone(wait_for: Any) -> None:
    wait_for(lambda: not shows(), "nobody draws any more")
    assert Button.last.is_closed.is_set()


def test_as_html_it_is_drawn_once_for_no_terminal(driver):
    assert html_of(driver, driver.make) == "<b>starting</b>"
    assert driver.displays[0].given is False


def test_elsewhere_than_in_a_notebook_it_is_shown_as_anything(driver, monkeypatch):
    monkeypatch.setattr(shown_run, "in_notebook", lambda: False)
    with pytest.raises(NotImplementedError):
        show_live(driver, driver.make, Handle().stop)
    assert driver.displays == []


def test_one_that_is_over_is_drawn_once(driver):
    driver.tell("over", over=True)
    show_live(driver, driver.make, Handle().stop)
    assert driver.displays[0].drawn == ["over"]
    assert shows() == []


def test_it_is_drawn_until_it_is_over(driver, wait_for):
    show_live(driver, driver.make, Handle().stop)
    (display,) = driver.displays
    assert display.drawn == ["starting"], "at once, below this cell"
    driver.tell("running")
    wait_for(lambda: "running" in display.drawn, "it is drawn again")
    driver.tell("over", over=True)
    gone(wait_for)
    assert display.drawn[-1] == "over"
    assert display.entered
    assert display.left.is_set()


def test_the_button_stops_it_for_as_long_as_somebody_holds_it(driver, wait_for):
    handle = Handle()
    show_live(driver, driver.make, handle.stop)
    Button.last.press()
    assert handle.reasons == ["it was stopped in the notebook"]
    reasons = handle.reasons
    del handle
    gc.collect()
    Button.last.press()
    assert len(reasons) == 1, "the display has not held it"
    driver.tell("over", over=True)
    gone(wait_for)


@pytest.mark.parametrize("how", ["the loop has ended", "the loop hangs", "it raises"])
def test_without_the_clients_loop_nobody_goes_on_drawing(driver, wait_for, monkeypatch, how):
    if how == "the loop has ended":
        closed = asyncio.new_event_loop()
        closed.close()
        driver.peer.loop.asyncio_loop = closed
    elif how == "the loop hangs":
        monkeypatch.setattr(shown_run, "ANSWER_S", 0.01)
    else:

        async def cancelled(*_: Any) -> bool:
            raise asyncio.CancelledError

        driver.until = cancelled
    show_live(driver, driver.make, Handle().stop)
    gone(wait_for)
    assert driver.displays[0].left.is_set()
    gc.collect()


def test_a_run_that_ends_right_after_a_look_is_drawn_once_more(driver: Any) -> None:
    class Ending(Display):
        def update(self, run: dict[str, Any]) -> None:
            super().update(run)
            if run["phase"] == "running":
                driver.phase, driver.over = "over", True

    display, handle = Ending(None), Handle()
    show_live(driver, lambda given: display, handle.stop)
    driver.tell("running")
    assert display.left.wait(10)
    assert display.drawn[-1] == "over"
