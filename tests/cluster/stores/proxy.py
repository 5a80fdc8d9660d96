"""A proxy before an object store's server that fails as the real stores do: ``python proxy.py PORT SERVER_PORT``.

``POST /-/rules`` sets the rules, a JSON list; ``GET /-/rules`` tells how often each has matched. A rule's ``methods``,
``told`` (a regular expression for its path and the beginning of its body) and ``min_bytes`` of the body say which
requests it is about. With ``times`` it answers so many of them with ``status``, ``headers`` and ``body``. With ``hold``
it keeps the first one waiting, and the server gets nothing of it.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NOT_PASSED_ON = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}
RULES: list[dict] = []
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_port = 0

    def handle_any(self) -> None:
        if self.path == "/-/rules":
            return self._rules()
        body = self._body()
        rule = self._matching(body)
        if rule is not None and rule.get("hold"):
            threading.Event().wait()  # until this process is killed
        if rule is not None:
            return self._answer(rule["status"], rule.get("headers", {}).items(), rule.get("body", "").encode())
        server = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in NOT_PASSED_ON}
            if body or "Content-Length" in self.headers:  # Azurite's signatures tell 0 from none
                headers["Content-Length"] = str(len(body))
            server.request(self.command, self.path, body, headers)
            answer = server.getresponse()
            return self._answer(answer.status, answer.getheaders(), answer.read())
        finally:
            server.close()

    def _rules(self) -> None:
        if self.command == "POST":
            with LOCK:
                RULES[:] = [{"matched": 0, **rule} for rule in json.loads(self._body())]
        with LOCK:
            told = json.dumps([rule["matched"] for rule in RULES])
        self._answer(200, [], told.encode())

    def _matching(self, body: bytes) -> dict | None:
        told = f"{self.path} {body[:1000].decode('latin-1')}"  # the name of an object of GCS is in the body
        with LOCK:
            for rule in RULES:
                if (
                    rule["matched"] < rule.get("times", 1)
                    and self.command in rule["methods"]
                    and re.search(rule.get("told", ""), told)
                    and len(body) >= rule.get("min_bytes", 0)
                ):
                    rule["matched"] += 1
                    return rule
        return None

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _answer(self, status: int, headers, body: bytes) -> None:
        self.send_response_only(status)
        length = None
        for name, value in headers:
            if name.lower() == "content-length":
                length = value
            elif name.lower() not in NOT_PASSED_ON:
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header("Connection", "close")  # clients would keep open what tests look for
        self.send_header("Content-Length", length if is_head and length is not None else str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)


for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"):
    setattr(Handler, f"do_{method}", Handler.handle_any)

if __name__ == "__main__":
    own, Handler.server_port = map(int, sys.argv[1:])
    Handler.log_message = lambda *_: None
    ThreadingHTTPServer.request_queue_size = 100
    ThreadingHTTPServer(("127.0.0.1", own), Handler).serve_forever()
