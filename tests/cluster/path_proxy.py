"""A reverse proxy that takes a part of each path off, as jupyter-server-proxy does.

``/user/ada/proxy/8787/train`` is ``/train`` at port 8787 of this host, websockets included.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler, websocket_connect

PREFIX = "/user/ada/proxy"
_LARGEST = 1 << 28


class _Pages(RequestHandler):
    """What is asked for at one address after the other."""

    async def get(self, port: str, path: str) -> None:
        asked = HTTPRequest(
            f"http://127.0.0.1:{port}/{path}?{self.request.query}", headers=self.request.headers, follow_redirects=False
        )
        answer = await AsyncHTTPClient(force_instance=True, max_body_size=_LARGEST).fetch(asked, raise_error=False)
        self.set_status(answer.code)
        for name in ("Content-Type", "Location"):
            if name in answer.headers:
                self.set_header(name, answer.headers[name])
        if answer.body:
            self.write(answer.body)


class _Icon(RequestHandler):
    """What browsers ask each host for by themselves."""

    def get(self) -> None:
        self.set_status(204)


class _Socket(WebSocketHandler):
    """A websocket on either side; ``opened`` has all of which either is still open."""

    _subprotocols: list[str]
    _other: WebSocketClientConnection | None = None

    def initialize(self, opened: dict[asyncio.Task[None], _Socket]) -> None:
        self._opened, self._left = opened, asyncio.Event()

    def check_origin(self, origin: str) -> bool:
        return True

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        self._subprotocols = subprotocols
        return subprotocols[0]

    async def open(self, *args: str, **kwargs: str) -> None:
        port, path = args
        told = {name: self.request.headers[name] for name in ("Host", "Origin")}  # as jupyter-server-proxy does
        self._other = await websocket_connect(
            HTTPRequest(f"ws://127.0.0.1:{port}/{path}?{self.request.query}", headers=told),
            subprotocols=self._subprotocols,
            max_message_size=_LARGEST,
        )
        going_back = asyncio.create_task(self._back(self._other))
        self._opened[going_back] = self
        going_back.add_done_callback(self._opened.pop)
        if self._left.is_set():
            self._other.close()

    async def _back(self, other: WebSocketClientConnection) -> None:
        while (message := await other.read_message()) is not None:
            with suppress(WebSocketClosedError):  # what comes after the browser has left is read, up to the end
                await self.write_message(message, binary=isinstance(message, bytes))
        self.close()
        await self._left.wait()

    async def on_message(self, message: str | bytes) -> None:
        assert self._other is not None
        await self._other.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        self._left.set()
        if self._other is not None:
            self._other.close()


@contextmanager
def path_proxy() -> Iterator[str]:
    """Serve in a thread; gives the address to which a port and a path are appended."""
    told: Future[tuple[int, Any]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        opened: dict[asyncio.Task[None], _Socket] = {}
        application = Application(
            [
                (rf"{PREFIX}/(\d+)/(.*ws)", _Socket, {"opened": opened}),
                (rf"{PREFIX}/(\d+)/(.*)", _Pages),
                ("/favicon.ico", _Icon),
            ],
            websocket_max_message_size=_LARGEST,
        )
        server, sockets = HTTPServer(application), bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        loop = asyncio.get_running_loop()
        told.set_result((sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(over.set)))
        await over.wait()
        server.stop()
        await server.close_all_connections()  # not those that have become websockets
        for each in opened.values():
            each.close()
        if opened:
            await asyncio.wait(opened, timeout=20)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="path-proxy")
    thread.start()
    port, end = told.result(60)
    try:
        yield f"http://127.0.0.1:{port}{PREFIX}"
    finally:
        end()
        thread.join(60)
        assert not thread.is_alive()
