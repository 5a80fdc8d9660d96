"""What programs of one machine need to talk to each other as those of a cluster do."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path


def unused_ports(count: int) -> list[int]:
    """So many different ones that were free a moment ago: what people do by hand."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in held]


def certificate(folder: str) -> dict[str, str]:
    """A new one, its own authority: the paths of ``ca_file``, ``cert`` and ``key``."""
    cert, key = str(Path(folder, "certificate.pem")), str(Path(folder, "key.pem"))
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
    subprocess.run([*new, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return {"ca_file": cert, "cert": cert, "key": key}
