"""A ``tf.distribute.Server`` on a port that was bound, and announced, before TensorFlow was imported."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
from typing import Any

from dask_train.compat.python import run_exit_functions
from dask_train.errors import LaunchError
from dask_train.extras import install_command
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from dask_train.keras_models.imported_later import parts_imported_later
from dask_train.roles import AddressBook

# The pool of inter-op threads of a process in which further servers may start: each of them occupies a thread, with
# fewer than two to spare they wait for each other for ever, and the pool can't grow after the first server.
SHARED_INTER_OP_THREADS = 16

_starting = threading.Lock()


def start_server(book: AddressBook, job: str, index: int, *, process_ends_with_it: bool) -> Any:
    """Import TensorFlow and start the server of one task; blocks for some seconds.

    Parameters
    ----------
    book
        All tasks of the network, ``host:port``. This task's port is held by a socket of this process with SO_REUSEPORT.
    job, index
        The task to serve.
    process_ends_with_it
        Whether the process ends with the network. Where it does not, it may come to hold several servers.

    Returns
    -------
    tf.distribute.Server
        It can't be stopped: port, threads (about 90) and memory (about 40 MB) stay until the process ends.

    Raises
    ------
    LaunchError
        TensorFlow can't be imported, or the server can't bind its port.

    Notes
    -----
    ``TF_GRPC_REUSE_PORT`` is read by TensorFlow when a server is made
    (``tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc``). The server listens on all interfaces, without
    TLS or authentication: anyone who reaches the port can run code.
    """
    with _starting, without_startup_noise():
        try:
            with parts_imported_later():
                import tensorflow as tf
        except ImportError as error:
            raise LaunchError(
                f"TensorFlow can't be imported for {job} {index}: {error}.",
                change=f"Install it on every Dask worker: {install_command('tensorflow')}.",
            ) from error
        threads = max(os.cpu_count() or 1, 3 if process_ends_with_it else SHARED_INTER_OP_THREADS)
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
        os.environ["TF_GRPC_REUSE_PORT"] = "1"
        if process_ends_with_it:
            leave_without_teardown()
        try:
            return tf.distribute.Server(book.as_dict(), job_name=job, task_index=index, config=config, start=True)
        except (tf.errors.OpError, RuntimeError) as error:
            raise LaunchError(
                f"The TensorFlow server of {job} {index} could not start at {book.task_address(job, index)}: {error}.",
                "The address may not be one of this host, or a firewall may refuse it.",
                "Look at the Dask worker's log, where TensorFlow writes more.",
            ) from error
        finally:
            os.environ.pop("TF_GRPC_REUSE_PORT", None)


def leave_without_teardown() -> None:
    """Let this process, where a Dask nanny has started it, end without taking TensorFlow apart.

    That takes about a second of a core in each process of a network (seen with TensorFlow 2.21), and on a small
    machine longer than a nanny waits before it kills. Everything else that is registered for the exit still runs.
    """
    if multiprocessing.parent_process() is not None:
        atexit.unregister(_exit_now)
        atexit.register(_exit_now)


def _exit_now() -> None:
    atexit.unregister(_exit_now)
    run_exit_functions()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
