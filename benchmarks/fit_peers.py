"""One process of a peer of ``fit.py`` and ``backends.py``: trains the CNN for some steps, and prints seconds a step.

python fit_peers.py PEER RANK PORTS     PORTS: as many as there are processes, with commas between
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

BATCH_ROWS, WARM_STEPS, STEPS, THREADS = 64, 20, 200, 1


def rows(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch of a process after the other, 100 of them."""
    random = np.random.default_rng(rank)
    return random.random((100 * BATCH_ROWS, 28, 28, 1), np.float32), random.integers(0, 10, 100 * BATCH_ROWS)


def batches(rank: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    x, y = rows(rank)
    while True:
        for start in range(0, len(x), BATCH_ROWS):
            yield x[start : start + BATCH_ROWS], y[start : start + BATCH_ROWS]


def cnn(keras: Any) -> Any:
    """2.8 million weights."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def timed(step: Callable[[], Any]) -> float:
    """Seconds a step, after some that warm up."""
    for _ in range(WARM_STEPS):
        step()
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begun) / STEPS


def configure(rank: int, ports: list[str]) -> Any:
    """TensorFlow, as one worker of several."""
    workers = [f"127.0.0.1:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    return tf


def mirrored_loop(rank: int, ports: list[str]) -> float:
    """A loop by hand under ``MultiWorkerMirroredStrategy``, with Keras 3."""
    tf = configure(rank, ports)
    import keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model, optimizer = cnn(keras), keras.optimizers.SGD(0.001)
        optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return value

        return strategy.run(replica, args=(x, y))

    feed = batches(rank)
    return timed(lambda: step(*map(tf.constant, next(feed))))


def tf_keras_fit(rank: int, ports: list[str]) -> float:
    """``fit`` of Keras 2 under the strategy."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    tf = configure(rank, ports)
    import tf_keras as keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = cnn(keras)
        model.compile(keras.optimizers.SGD(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = tf.data.Dataset.from_tensor_slices(rows(rank)).repeat().batch(BATCH_ROWS)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = data.with_options(options)
    times: list[float] = []

    class Clock(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            times.append(time.perf_counter())

    model.fit(data, steps_per_epoch=WARM_STEPS + STEPS, epochs=1, verbose=0, callbacks=[Clock()])
    return (times[-1] - times[WARM_STEPS - 1]) / STEPS


def torch_ddp(rank: int, ports: list[str]) -> float:
    """``DistributedDataParallel`` on gloo."""
    import torch

    torch.set_num_threads(THREADS)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=len(ports)
    )
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 26 * 26, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer, loss, feed = torch.optim.SGD(model.parameters(), 0.001), torch.nn.CrossEntropyLoss(), batches(rank)

    def step() -> None:
        x, y = next(feed)
        optimizer.zero_grad()
        loss(model(torch.from_numpy(x.transpose(0, 3, 1, 2))), torch.from_numpy(y)).backward()
        optimizer.step()

    return timed(step)


def jax_distributed(rank: int, ports: list[str]) -> float:
    """``jax.jit`` over the devices of all processes, whose gradients gloo adds up."""
    os.environ["NPROC"] = str(THREADS)
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{ports[0]}", len(ports), rank)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    alike, by_row = (jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in ((), ("rows",)))
    random = np.random.default_rng(1)
    shapes = ((3, 3, 1, 32), (32,), (32 * 26 * 26, 128), (128,), (128, 10), (10,))
    scale = [float(np.prod(shape[:-1])) ** -0.5 * (len(shape) > 1) for shape in shapes]
    weights = [
        jax.device_put((size * random.normal(size=shape)).astype("f4"), alike)
        for size, shape in zip(scale, shapes, strict=True)
    ]

    def loss(weights: Any, x: Any, y: Any) -> Any:
        kernel, bias, hidden, hidden_bias, out, out_bias = weights
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias).reshape(len(x), -1)
        x = jax.nn.relu(x @ hidden + hidden_bias) @ out + out_bias
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    @jax.jit
    def step(weights: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(weights, x, y)
        return [weight - 0.001 * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    feed, held = batches(rank), [weights]

    def take() -> None:
        x, y = (jax.make_array_from_process_local_data(by_row, part) for part in next(feed))
        held[0] = jax.block_until_ready(step(held[0], x, y))

    return timed(take)


def one_process(rank: int, ports: list[str]) -> float:
    """``fit`` of one process with all cores, on both processes' rows: batches twice as large."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(len(ports) * THREADS)
    import keras

    model = cnn(keras)
    model.compile(keras.optimizers.SGD(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = (np.concatenate([rows(other)[place] for other in range(len(ports))]) for place in (0, 1))
    times: list[float] = []

    class Clock(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            times.append(time.perf_counter())

    epochs = -(-(WARM_STEPS + STEPS) // 100)
    model.fit(x, y, batch_size=BATCH_ROWS * len(ports), epochs=epochs, verbose=0, shuffle=False, callbacks=[Clock()])
    steps = np.diff(times)[WARM_STEPS:]
    return float(np.mean(np.sort(steps)[: -epochs or None])) if rank == 0 else 0.0  # without the ends of epochs


PEERS = {
    "tf_keras fit": tf_keras_fit,
    "mirrored loop": mirrored_loop,
    "torch DDP": torch_ddp,
    "jax.distributed": jax_distributed,
    "one process": one_process,
}

if __name__ == "__main__":
    peer, rank, ports = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
    print(json.dumps(PEERS[peer](rank, ports)), flush=True)
    os._exit(0)  # the strategies' servers would wait for each other
