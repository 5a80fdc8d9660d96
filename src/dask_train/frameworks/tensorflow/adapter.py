"""TensorFlow in a run: cluster spec, ``TF_CONFIG`` and servers for the roles, and batches as tensors."""

from __future__ import annotations

import functools
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from dask_train.errors import DataError, LaunchError
from dask_train.extras import install_command
from dask_train.frameworks.base import TRAINING_ROLES, Framework, RoleInfo
from dask_train.frameworks.environment import bypass_proxies, environment_restored
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.ranks import num_ranks
from dask_train.frameworks.tensorflow.server import start_server
from dask_train.frameworks.tensorflow.sharing import shared_tensor
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from dask_train.roles import AddressBook
from dask_train.spelling import passed

# They look at what the others train, and are in no cluster: TensorFlow calls such a task an evaluator.
SCORERS = ("scorer", "evaluator")


class TensorFlowFramework(Framework):
    """What users name ``framework="tensorflow"``.

    The session has ``cluster_spec`` and ``server``, and ``TF_CONFIG`` says the same to TensorFlow. In a run with
    parameter servers the servers of ps and workers are up when the user's function begins. Otherwise, and for a
    chief, ``server`` starts when it is first asked for: ``MultiWorkerMirroredStrategy``, or the chief's
    ``ParameterServerStrategy``, starts a server of its own on the same port, and asks for none here. Such a strategy
    is made before the first batch is taken: TensorFlow sets collectives up only before its first tensor. A scorer has
    the cluster spec, no server, and is no part of the cluster.
    """

    name = "tensorflow"
    imports = ("tensorflow", "dask_train.role.main")
    views = "writable"  # a tensor is never written to, and DLPack takes no read-only array
    role_bytes = 460 << 20  # idle, with a server (PSS, TensorFlow 2.21)
    shared_bytes = 300 << 20  # a template takes 395, and an idle role 45 besides

    def __init__(self) -> None:
        self._port_holder: socket.socket | None = None

    def check(self, counts: Mapping[str, int]) -> None:
        """See :meth:`Framework.check <dask_train.frameworks.base.Framework.check>`."""
        if not set(counts) - {"ps"}:
            requested_roles = f"only ps={counts['ps']}" if counts else "no role"
            raise ValueError(
                f"{passed('framework', 'tensorflow')} with {requested_roles}: nobody would train. "
                "Ask for worker=1 or more besides."
            )
        if counts.get("chief", 0) > 1:
            raise ValueError(
                f"chief={counts['chief']} with {passed('framework', 'tensorflow')}: TensorFlow takes one chief at most."
                " Ask for chief=1 and more workers."
            )

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Return whether several train and no ps stands between them."""
        return "ps" not in counts and num_ranks(counts) > 1

    def stays_until_the_end(self, counts: Mapping[str, int]) -> bool:
        """Return whether there are parameter servers: a v1 session waits for every server when it is made."""
        return "ps" in counts

    def can_replace(self, role: str) -> bool:
        """Return whether a lost role can be replaced: not a ps, which has lost its weights, nor one that agrees."""
        return role != "ps"

    def load(self, me: RoleInfo) -> None:
        """Import TensorFlow with this role's threads.

        Raises
        ------
        LaunchError
            TensorFlow can't be imported.
        """
        os.environ["TF_NUM_INTRAOP_THREADS"] = str(me.num_threads)
        with without_startup_noise():
            try:
                import tensorflow  # noqa: F401
            except ImportError as error:
                raise LaunchError(
                    f"TensorFlow can't be imported for {me.role} {me.rank}: {error}.",
                    change=f"Install it on every Dask worker: {install_command('tensorflow')}.",
                ) from error

    def prepare(self, me: RoleInfo) -> str:
        """Load TensorFlow, and hold a port for its server."""
        self.load(me)
        if not _in_cluster(me.role, me.counts):
            return ""
        self._port_holder = hold_port()
        return address_of(me.host, self._port_holder)

    @contextmanager
    def rendezvous(self, me: RoleInfo, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:  # noqa: ARG002
        """Give ``cluster_spec``, ``server`` and ``TF_CONFIG`` without a wait, as TensorFlow's servers find each other.

        Raises
        ------
        LaunchError
            The server can't start.
        """
        book = AddressBook({role: peers[role] for role in peers if _in_cluster(role, me.counts)})
        with environment_restored():
            try:
                _set_environment(me, book)
                bypass_proxies(address for addresses in book.values() for address in addresses)
                yield {"cluster_spec": book, "server": self._server(me, book)}
            finally:
                self._release_port()

    @contextmanager
    def alone(self, me: RoleInfo) -> Iterator[Mapping[str, Any]]:  # noqa: ARG002
        """No cluster and no server, which would stay as long as the process: strategies find one worker, this one."""
        with environment_restored():
            os.environ.pop("TF_CONFIG", None)
            yield {"cluster_spec": AddressBook(), "server": _no_server}

    def lack_of_device(self) -> str:
        """See :meth:`Framework.lack_of_device <dask_train.frameworks.base.Framework.lack_of_device>`."""
        import tensorflow as tf

        return "" if tf.config.list_physical_devices("GPU") else "TensorFlow lists no physical device of type GPU"

    def _server(self, me: RoleInfo, book: AddressBook) -> Any:
        """Return the role's server, or the function that starts it, or None if it has none."""
        if not _in_cluster(me.role, me.counts):
            return None

        @functools.cache
        def start_once() -> Any:
            server = start_server(book, me.role, me.rank, process_ends_with_it=True)
            self._release_port()
            return server

        asking = threading.Lock()  # several threads may ask for it at the same time, which the cache lets pass

        def start() -> Any:
            with asking:
                return start_once()

        if "ps" in me.counts and me.role != "chief":
            return start()
        os.environ["TF_GRPC_REUSE_PORT"] = "1"  # for the server that a strategy starts; start() takes it back
        return start

    def _release_port(self) -> None:
        if self._port_holder is not None:
            self._port_holder.close()
            self._port_holder = None

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """Tensors on the arrays' own memory where TensorFlow can share it, otherwise copied once.

        It shares numbers and booleans in memory that is aligned to 64 bytes. A program that has disabled eager
        execution, as TensorFlow 1's do, is given the arrays themselves, for its ``feed_dict``.

        Raises
        ------
        DataError
            TensorFlow has no such dtype: dates, mixed objects.
        """
        import tensorflow as tf

        return tuple(_tensor(array) for array in arrays) if tf.executing_eagerly() else arrays


def _in_cluster(role: str, counts: Mapping[str, int]) -> bool:
    """Return whether TensorFlow's cluster has this role; its strategies refuse names that they don't know."""
    return role not in SCORERS if "ps" in counts else role in TRAINING_ROLES


def _no_server() -> Any:
    raise ValueError(
        "session.server: a server of TensorFlow can't be stopped, so there is none in the client's own process. "
        "Pass roles={'worker': 1}."
    )


def _set_environment(me: RoleInfo, book: AddressBook) -> None:
    os.environ.pop("TF_CONFIG", None)  # one that the Dask worker had is of another cluster
    task = "evaluator" if me.role in SCORERS else me.role
    if _in_cluster(me.role, me.counts) or task == "evaluator":
        config = {"cluster": book.as_dict(), "task": {"type": task, "index": me.rank}}
        os.environ["TF_CONFIG"] = json.dumps(config)


def _tensor(array: np.ndarray) -> Any:
    import tensorflow as tf

    shared = shared_tensor(array)
    if shared is not None:
        return shared
    try:
        return tf.convert_to_tensor(array)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"A column of {array.dtype} can't become a TensorFlow tensor: {error}",
            change="Turn dates and mixed columns into numbers or text before the run.",
        ) from error
