"""Chromium without a window, driven over its DevTools protocol: https://chromedevtools.github.io/devtools-protocol/."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import websocket_connect

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# How long anything on a page may take, in seconds; the machine may be busy.
PATIENCE_S = 60.0
# All elements of a page that match a selector, in shadow roots as well, in which bokeh draws.
DEEP = """
const deep = (selector, root = document) => [...root.querySelectorAll('*')].flatMap(element => [
    ...(element.matches(selector) ? [element] : []),
    ...(element.shadowRoot ? deep(selector, element.shadowRoot) : [])]);
"""


class Browser:
    """One page of it.

    Attributes
    ----------
    errors
        What the page's console told as errors, and exceptions of its scripts.
    """

    def __init__(self, runner: asyncio.Runner, port: int) -> None:
        self._runner, self._numbers = runner, 0
        self.errors: list[str] = []
        self._socket = runner.run(self._connected(port))
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    async def _connected(self, port: int) -> Any:
        answer = await AsyncHTTPClient(force_instance=True).fetch(f"http://127.0.0.1:{port}/json/list")
        target = next(each for each in json.loads(answer.body) if each["type"] == "page")
        return await websocket_connect(target["webSocketDebuggerUrl"], max_message_size=1 << 28)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._runner.run(asyncio.wait_for(self._answer(method, params), PATIENCE_S))

    async def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._numbers += 1
        number = self._numbers
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(await self._socket.read_message())
            if told.get("id") == number:
                assert "error" not in told, told["error"]
                return told["result"]
            self._heard(told.get("method"), told.get("params", {}))

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:1000])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(json.dumps(params["args"])[:1000])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def load(self, url: str) -> None:
        """Load a page, with all that it is made of."""
        self._call("Page.navigate", url=url)
        self.until(f"document.URL === {json.dumps(url)} && document.readyState === 'complete'")

    def open(self, url: str) -> None:
        """Load a page, until bokeh has drawn a document."""
        self._call("Page.navigate", url=url)
        self.until("typeof Bokeh !== 'undefined' && Bokeh.documents.length > 0 && Bokeh.documents[0].is_idle")

    def tell(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        answer = self._call(
            "Runtime.evaluate", expression=f"(() => {{ {DEEP} return {script} }})()", returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The same, once it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not (value := self.tell(script)):
            assert time.monotonic() < deadline, f"never: {script}; errors: {self.errors}"
            self._runner.run(asyncio.sleep(0.1))
        return value

    def press(self, words: str) -> None:
        """Click on the button whose label has these words."""
        button = f"deep('button').find(button => button.textContent.includes({json.dumps(words)}) && !button.disabled)"
        self.until(f"!!{button}")
        self.tell(f"{button}.click()")

    def make_dark(self) -> None:
        """Tell pages that the system is dark."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def picture(self, file: Path, width: int = 1400, height: int = 1800) -> None:
        """Write what the page looks like as a PNG."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._runner.run(asyncio.sleep(1.5))
        file.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """Let the page go, and wait until the connection has ended."""
        self._runner.run(asyncio.wait_for(self._closed(), PATIENCE_S))

    async def _closed(self) -> None:
        self._socket.close()
        while await self._socket.read_message() is not None:
            pass


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium, with its files in a folder, and end it."""
    assert PROGRAM is not None
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--remote-debugging-port=0",
    ]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, *options, f"--user-data-dir={folder}", "about:blank"], stdout=log, stderr=log
        )
    try:
        with asyncio.Runner() as runner:
            page = Browser(runner, _port(folder / "DevToolsActivePort", process))
            try:
                yield page
            finally:
                page.close()
    finally:
        process.terminate()
        process.wait(60)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while not (file.exists() and file.read_text()):
        assert process.poll() is None, "Chromium has ended"
        assert time.monotonic() < deadline, "Chromium did not start"
        time.sleep(0.05)
    return int(file.read_text().split()[0])
