"""Networks without TensorFlow: real Dask workers, real ports, a server that takes no seconds to import."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import Client

from dask_train.cluster.by_value import ByValue
from dask_train.tensorflow_network import api as tensorflow_network

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Dask workers can't import the test modules, so what is defined in them travels by value.

    So does what these files define, which they could import where they find them, and pytest with them.
    """
    plugins = {plugin for plugin in config.pluginmanager.get_plugins() if getattr(plugin, "__file__", None)}
    files = {plugin for plugin in plugins if HERE in Path(plugin.__file__).parents}
    for module in files | {item.module for item in items if HERE in item.path.parents}:
        cloudpickle.register_pickle_by_value(module)


class ListeningServer:
    """Takes the place of a TensorFlow server: binds the port that was held for it, in the same way, and listens."""

    def __init__(self, book: Any, job: str, index: int) -> None:
        port = int(book.task_address(job, index).rpartition(":")[2])
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.bind(("0.0.0.0", port))  # noqa: S104 - as TensorFlow does
        self.socket.listen()
        self.target = f"grpc://{book.task_address(job, index)}"


def start_listening(book: Any, job: str, index: int, **_: Any) -> ListeningServer:
    """As ``dask_train.frameworks.tensorflow.server.start_server``."""
    return ListeningServer(book, job, index)


@pytest.fixture
def start_server_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Says what ``start_tensorflow`` starts in the Dask workers from now on."""

    def use(start_server: Callable[..., Any]) -> None:
        monkeypatch.setattr(
            tensorflow_network, "start_server", ByValue(start_server, sys.modules[start_server.__module__])
        )

    return use


@pytest.fixture
def without_tensorflow(start_server_with: Callable[[Callable[..., Any]], None]) -> None:
    """Networks of this test have servers that only listen."""
    start_server_with(start_listening)


@pytest.fixture(scope="module")
def shared_client(keep_cluster: Callable[..., Client]) -> Client:
    """A client of 3 processes with a thread each, for tests of several modules."""
    return keep_cluster("shared_client", n_workers=3, threads_per_worker=1)


@pytest.fixture
def client(shared_client: Client, without_tensorflow: None) -> Iterator[Client]:
    """The shared client; fails when the test leaves a network or a feed behind, or a Dask worker less."""
    yield shared_client
    kept = state(shared_client)
    assert (kept["networks"], kept["feeds"]) == ({}, ())
    assert len(workers(shared_client)) == 3


def state(client: Client) -> dict[str, Any]:
    """What the scheduler's plug-ins keep: networks with all that is theirs, and the runs that go on."""
    networks = client.sync(client.scheduler.train_networks) or {"networks": {}, "feeds": (), "boards": {}}
    records = (client.sync(client.scheduler.train_runs) or {"runs": ()})["runs"]
    return {**networks, "runs": tuple(record["id"] for record in records if not record["ended"])}


def workers(client: Client) -> list[str]:
    """Addresses of the Dask workers that run."""
    info = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return [address for address, worker in info.items() if worker["status"] == "running"]


@pytest.fixture(name="state", scope="session")
def _state() -> Callable[[Client], dict[str, Any]]:
    return state


@pytest.fixture(name="workers", scope="session")
def _workers() -> Callable[[Client], list[str]]:
    return workers


# Runs before anything else in a Python that has its folder on PYTHONPATH.
HIDE = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == {module!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
"""


@pytest.fixture(scope="session")
def hide_module() -> Callable[[str, Path], None]:
    """Makes a folder that hides an installed module from a Python that has the folder on PYTHONPATH."""
    return lambda module, folder: (folder / "sitecustomize.py").write_text(HIDE.format(module=module))


@pytest.fixture(scope="session")
def dask_process() -> Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]:
    """``dask scheduler`` or ``dask worker`` as a process of its own, which ends with the ``with``; as a rule without a
    dashboard.
    """

    @contextmanager
    def start(*arguments: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
        dashboard = () if "--dashboard-address" in arguments else ("--no-dashboard",)
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", *dashboard],
            env={**os.environ, "PYTHONPATH": str(path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)

    return start


@pytest.fixture(scope="session")
def hosts() -> Callable[..., AbstractContextManager[Any]]:
    """Makes hosts with a network and processes of their own; see ``hosts.py``."""
    return _beside("hosts").hosts


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A page in Chromium, where that is installed; see ``browser.py``."""
    module = _beside("browser")
    if module.PROGRAM is None:
        pytest.skip("Chromium is not installed.")
    with module.browser(tmp_path) as page:
        yield page


@pytest.fixture
def path_proxy() -> Iterator[str]:
    """The address of a reverse proxy that takes a part of each path off; see ``path_proxy.py``."""
    with _beside("path_proxy").path_proxy() as address:
        yield address


def _beside(name: str) -> Any:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"tests_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
