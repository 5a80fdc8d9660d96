"""A step through a parameter server: gradients out, Adam applied there, weights back; against TensorFlow 1's servers.

    .venv/bin/python benchmarks/servers.py [--rounds 5] [--small]

One server, one worker and then two that do nothing else: 2.8 million weights (11 MB of gradients) in 8 tensors, Adam.
Ours is the role of ``dt.fit(..., ps=1)`` with Keras' Adam, its lines through memory, over TCP and over TCP with TLS
(all on this host's loopback); the peer is ``tf.compat.v1`` with ``AdamOptimizer`` on a ``tf.distribute.Server``, its
push and its pull one after the other. Milliseconds a step of the slower worker, in turn in each round; medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from distributed import Client, LocalCluster
from distributed.security import Security
from local_network import certificate
from recording import save, summary

import dask_train as dt
from dask_train.data.columns import Columns
from dask_train.driver.settings import RunInputs, RunSettings
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.spec import FitTask
from dask_train.frameworks.keras.adapter import KerasFramework
from dask_train.frameworks.registry import find_framework
from dask_train.keras_models.serialization import model_to_parts
from dask_train.training.launch import launch

WIDTHS = (784, 1024, 1024, 896, 64)  # 2.83 million weights and biases
STEPS, WARM_STEPS = 100, 10


def task() -> FitTask:
    """A model of these widths, for a server of ours."""
    model = keras.Sequential([keras.layers.Input((WIDTHS[0],)), *map(keras.layers.Dense, WIDTHS[1:])])
    model.compile(keras.optimizers.Adam(1e-6), "mse")
    model.optimizer.build(model.trainable_variables)
    header, arrays = model_to_parts(model)
    return FitTask(header=header, arrays=arrays, columns=Columns(features=0), secret=b"benchmark")


def our_steps(session: Any, *, sent: FitTask, steps: int, far: bool) -> float:
    """Milliseconds a step of ours; ``far``: as if the server were on another host."""
    from dask_train.fitting.roles.models import build
    from dask_train.fitting.roles.servers import Servers
    from dask_train.keras_models.serialization import parts_to_model
    from dask_train.role.time_spent import TimeSpent

    model = parts_to_model(sent.header, sent.arrays)
    build(model, sent.columns)
    host = "another" if far else session.host
    servers = Servers(
        model, session.peers["ps"], host, sent.credentials(session), sent.collective_timeout_s, TimeSpent()
    )
    ready, *_ = servers.begin(session.rank)
    if not ready:
        servers.bring([{}], {})
    gradients = [(np.full(variable.shape, 1e-3, np.float32),) for variable in model.trainable_variables]
    began = 0.0
    for step in range(WARM_STEPS + steps):
        if step == WARM_STEPS:
            began = time.perf_counter()
        told: dict[str, Any] = {"rank": session.rank, "steps": step + 1}
        servers.apply(range(len(gradients)), gradients, index=0, optimizer=0, scale=None, **told)
        servers.step(counted=None, statistics=False, weights=False, **told)
    taken = time.perf_counter() - began
    session.report(done=1)
    servers.close()
    return 1e3 * taken / steps


def tensorflow_steps(session: Any, *, steps: int) -> float:
    """Milliseconds a step through a server of TensorFlow 1."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    shapes = [shape for i, o in itertools.pairwise(WIDTHS) for shape in ((i, o), (o,))]
    spec = tf.train.ClusterSpec(session.cluster_spec.as_dict())
    with v1.device(v1.train.replica_device_setter(cluster=spec, worker_device=f"/job:worker/task:{session.rank}")):
        weights = [v1.get_variable(f"w{n}", shape, use_resource=True) for n, shape in enumerate(shapes)]
        slots = [v1.placeholder(tf.float32, shape) for shape in shapes]
        push = v1.train.AdamOptimizer(1e-6).apply_gradients(list(zip(slots, weights, strict=True)))
        pull = [tf.identity(weight) for weight in weights]
    gradients = {slot: np.full(shape, 1e-3, np.float32) for slot, shape in zip(slots, shapes, strict=True)}
    with v1.Session(session.server.target) as there:
        if session.rank == 0:
            there.run(v1.global_variables_initializer())
        else:
            while there.run(v1.report_uninitialized_variables()).size:
                time.sleep(0.05)
        began = 0.0
        for step in range(WARM_STEPS + steps):
            if step == WARM_STEPS:
                began = time.perf_counter()
            there.run(push, gradients)
            there.run(pull)
        return 1e3 * (time.perf_counter() - began) / steps


def measured(client: Client, num_workers: int, steps: int, way: str) -> float:
    """Of the slower worker."""
    roles = {"ps": 1, "worker": num_workers}
    if way == "TensorFlow 1":
        work = partial(tensorflow_steps, steps=steps)
        result = dt.train(work, roles=roles, framework="tensorflow", client=client, name="v1")
    else:
        sent = task()
        functions = {"ps": FitRole(sent), "worker": partial(our_steps, sent=sent, steps=steps, far=way != "memory")}
        keras_framework = KerasFramework("tensorflow", find_framework("tensorflow"))
        run = RunSettings(client=client, gpus=None, name="ours", progress=False)
        result = launch(functions, roles, RunInputs(), run, framework=keras_framework)
    return max(result.results["worker"])


def security_of(folder: str) -> Security:
    """A cluster of this run, with certificates of its own."""
    files = certificate(folder)
    of_roles = {
        f"tls_{role}_{what}": files[what] for role in ("client", "worker", "scheduler") for what in ("cert", "key")
    }
    return Security(tls_ca_file=files["ca_file"], require_encryption=True, **of_roles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a round of few steps, and no file: does it all work?")
    args = parser.parse_args()
    steps = 10 if args.small else STEPS
    found: dict[str, list[float]] = {}
    common = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with tempfile.TemporaryDirectory() as folder:
        security = security_of(folder)
        with (
            LocalCluster(**common) as plain,
            LocalCluster(**common, security=security, protocol="tls") as encrypted,
            Client(plain) as client,
            Client(encrypted, security=security) as tls_client,
        ):
            ways = {"memory": client, "TCP": client, "TLS": tls_client, "TensorFlow 1": client}
            for number in range(1 if args.small else args.rounds):
                for num_workers in (1, 2):
                    for way, there in ways.items():
                        value = measured(there, num_workers, steps, way)
                        found.setdefault(f"{way}, {num_workers}", []).append(value)
                        print(f"round {number + 1}: {way}, {num_workers} workers: {value:.1f} ms a step", flush=True)
    figures: dict[str, Any] = {name: summary(values) for name, values in found.items()}
    for num_workers in (1, 2):
        peer = found[f"TensorFlow 1, {num_workers}"]
        for way in ("memory", "TCP", "TLS"):
            ratios = [theirs / mine for theirs, mine in zip(peer, found[f"{way}, {num_workers}"], strict=True)]
            name = f"TensorFlow 1 over {way}, {num_workers}"
            figures[name] = summary(ratios)
            print(f"{name} workers: {figures[name]['median']:.2f}")
    if not args.small:
        save("servers", {"warm steps": WARM_STEPS, "steps": steps, "figures": figures})


if __name__ == "__main__":
    main()
