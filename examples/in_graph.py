"""One client, one graph, many machines: TensorFlow's in-graph distribution on Dask workers.

Two TensorFlow servers run in two Dask workers, as the tasks of a job whose name is ours (``local``). No code of ours
runs there: this program is the master. It builds every graph, says with ``tf.device`` which task computes what, and
checks what it was told in TensorFlow's own record of the run (``RunMetadata``):

1. a few constants and equations, forced onto the two tasks;
2. map and reduce: each task averages its slice, one of them combines;
3. slices of unequal size: the mean of the means is wrong, the mean weighted by ``tf.size`` is right;
4. a GPU of another machine, named by its device string; where there is none, a CPU does the work, and says so;
5. training: one model on task 0, a tower on each task with its part of every batch, gradients combined. The weights
   are those of one process.

Run it::

    python examples/in_graph.py              # half a minute
    python examples/in_graph.py --small      # fewer steps, as in CI
    python examples/in_graph.py --job grid   # another job name: nothing else changes
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

# Read when TensorFlow is imported, here and in the Dask workers, which inherit them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # else every process prints a notice about rounding, twice
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # else the first process takes all memory of a GPU

import dask.array as da
import numpy as np

import dask_train as dt
from dask_train.cluster.local import local_client


def main() -> int:
    args = parse_args()
    with local_client(num_workers=2) as client:
        started = time.perf_counter()
        with dt.start_tensorflow(client, jobs={args.job: 2}) as net:
            print(f"Two TensorFlow servers after {time.perf_counter() - started:.1f} s:")
            for job, index, address in net.tf_spec.tasks():
                print(f"  {task(job, index)} at {address}, in the Dask worker {net.dask_spec[job][index]}")
            equations(net, args.job)
            map_and_reduce(net, args.job)
            unequal_slices(net, args.job)
            remote_gpu(net, args.job)
            training(net, args.job, steps=20 if args.small else 300)
    print("\nEverything was where it was told to be, and every result is right.")
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer training steps, as in CI")
    parser.add_argument("--job", default="local", help="name of the servers' job (%(default)s)")
    return parser.parse_args()


def task(job: str, index: int) -> str:
    """TensorFlow's device string for one task of the network."""
    return f"/job:{job}/task:{index}"


def open_session(target: str, graph: Any = None, *, soft: bool = False) -> Any:
    """A session on the server at ``target``; its calls end with an error after a minute."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(allow_soft_placement=soft, operation_timeout_in_ms=60_000)
    # Else TensorFlow folds what hangs on constants alone, and the servers have nothing to compute.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return tf.compat.v1.Session(target, graph=graph, config=config)


def run_once(
    target: str, graph: Any, fetches: Any, feed: dict[Any, Any] | None = None, *, soft: bool = False
) -> tuple[Any, dict[str, str]]:
    """What ``fetches`` are, in a session of their own; also the device on which each operation ran."""
    with open_session(target, graph, soft=soft) as session:
        return run_traced(session, fetches, feed)


def run_traced(session: Any, fetches: Any, feed: dict[Any, Any] | None) -> tuple[Any, dict[str, str]]:
    """What ``fetches`` are; also the device on which each operation ran, as the servers recorded it."""
    import tensorflow as tf

    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    metadata = tf.compat.v1.RunMetadata()
    result = session.run(fetches, feed, options=options, run_metadata=metadata)
    devices = {node.node_name: stats.device for stats in metadata.step_stats.dev_stats for node in stats.node_stats}
    return result, devices


def check_ran_on(devices: dict[str, str], expected: dict[str, str]) -> None:
    """Fail unless each operation ran on its task."""
    for operation, place in expected.items():
        ran_on = devices.get(operation, "nowhere")
        print(f"  {operation:14} ran on {ran_on}")
        assert place.replace("/task", "/replica:0/task") in ran_on, f"{operation} was sent to {place}"


def equations(net: dt.TensorFlowNetwork, job: str) -> None:
    import tensorflow as tf

    print("\n1. Equations, forced onto the two tasks")
    with tf.Graph().as_default() as graph:
        x = tf.constant(7, name="x")
        with tf.compat.v1.device(task(job, 0)):
            up = tf.multiply(x, 40, name="forty_x")
        with tf.compat.v1.device(task(job, 1)):
            down = tf.multiply(x, 6, name="six_x")
            difference = tf.subtract(up, down, name="difference")
    result, devices = run_once(net.target(job, 0), graph, difference)
    print(f"  40 * 7 - 6 * 7 = {result}")
    assert result == 238
    check_ran_on(devices, {"forty_x": task(job, 0), "six_x": task(job, 1), "difference": task(job, 1)})


def map_and_reduce(net: dt.TensorFlowNetwork, job: str) -> None:
    import tensorflow as tf

    print("\n2. Map and reduce: the mean of 1,000 numbers, half of them on each task")
    numbers = np.random.default_rng(2).normal(5.0, 2.0, 1000)
    with tf.Graph().as_default() as graph:
        whole = tf.compat.v1.placeholder(tf.float64, [None])
        means = []
        for index, part in enumerate(tf.split(whole, 2)):
            with tf.compat.v1.device(task(job, index)):
                means.append(tf.reduce_mean(part, name=f"map_{index}"))
        with tf.compat.v1.device(task(job, 1)):
            mean = tf.divide(tf.add_n(means, name="reduce"), 2)
    result, devices = run_once(net.target(job, 0), graph, mean, {whole: numbers})
    print(f"  mean {result:.6f}, by NumPy {numbers.mean():.6f}")
    np.testing.assert_allclose(result, numbers.mean(), rtol=1e-12)
    check_ran_on(devices, {"map_0": task(job, 0), "map_1": task(job, 1), "reduce": task(job, 1)})


def unequal_slices(net: dt.TensorFlowNetwork, job: str) -> None:
    import tensorflow as tf

    print("\n3. Unequal slices: the two blocks of a Dask array, 700 and 300 numbers")
    numbers = da.arange(1000, chunks=((700, 300),), dtype="float64") ** 2
    blocks = [numbers.blocks[index].compute() for index in range(numbers.numblocks[0])]
    with tf.Graph().as_default() as graph:
        slices = [tf.compat.v1.placeholder(tf.float64, [None]) for _ in blocks]
        means, sizes = [], []
        for index, part in enumerate(slices):
            with tf.compat.v1.device(task(job, index)):
                means.append(tf.reduce_mean(part, name=f"mean_{index}"))
                sizes.append(tf.cast(tf.size(part), tf.float64, name=f"rows_{index}"))
        with tf.compat.v1.device(task(job, 0)):
            naive = tf.add_n(means) / len(means)
            weighted = tf.add_n([mean * size for mean, size in zip(means, sizes, strict=True)]) / tf.add_n(sizes)
    feed = dict(zip(slices, blocks, strict=True))
    (wrong, right), devices = run_once(net.target(job, 0), graph, [naive, weighted], feed)
    exact = numbers.mean().compute()
    print(f"  mean of the means     {wrong:12.2f}   wrong by {abs(wrong - exact) / exact:.0%}")
    print(f"  sum(mean*size)/sum(size) {right:9.2f}   by Dask {exact:.2f}")
    assert abs(wrong - exact) > 0.1 * exact
    np.testing.assert_allclose(right, exact, rtol=1e-12)
    check_ran_on(devices, {f"{what}_{index}": task(job, index) for what in ("mean", "rows") for index in (0, 1)})


def remote_gpu(net: dt.TensorFlowNetwork, job: str) -> None:
    import tensorflow as tf

    wanted = f"{task(job, 1)}/device:GPU:0"
    print(f"\n4. A GPU of another process: {wanted}")
    with open_session(net.target(job, 0)) as session:
        has_gpu = any(wanted.replace("/task", "/replica:0/task") == device.name for device in session.list_devices())
    with tf.Graph().as_default() as graph:
        matrix = tf.compat.v1.placeholder(tf.float32, [64, 64])
        with tf.compat.v1.device(wanted):
            product = tf.matmul(matrix, matrix, name="product")
    feed = {matrix: np.eye(64, dtype="float32")}
    if not has_gpu:
        try:
            run_once(net.target(job, 0), graph, product, feed)
        except tf.errors.InvalidArgumentError:
            print("  that process has none; taken at its word, TensorFlow refuses")
        else:
            raise AssertionError("TensorFlow placed an operation on a GPU that is not there")
    result, devices = run_once(net.target(job, 0), graph, product, feed, soft=True)
    assert np.array_equal(result, feed[matrix])
    kind = "GPU" if has_gpu else "CPU"
    print(f"  with soft placement it ran on a {kind}: {devices['product']}")
    assert f"/device:{kind}:0" in devices["product"]


def training(net: dt.TensorFlowNetwork, job: str, steps: int) -> None:
    print("\n5. Training: the variables on task 0, a tower on each task, gradients combined by the rows behind them")
    rng = np.random.default_rng(5)
    features = rng.normal(size=(1000, 12))
    labels = (features @ rng.normal(size=(12, 3))).argmax(axis=1)
    # 37 rows don't halve, and the towers need not be equal for the result to be: 25 and 12.
    picks = [rng.choice(len(features), 37, replace=False) for _ in range(steps)]
    batches = [(features[rows], labels[rows]) for rows in picks]
    started = time.perf_counter()
    towers = [task(job, 0), task(job, 1)]
    weights, losses, devices = train(net.target(job, 0), towers, [25, 12], batches)
    took_s = time.perf_counter() - started
    print(f"  two towers: loss {losses[0]:.4f}, after {steps} steps {losses[-1]:.4f} ({took_s:.1f} s)")
    check_ran_on(devices, {"loss_0": towers[0], "loss_1": towers[1], "apply": towers[0]})
    alone, _, _ = train("", ["/device:CPU:0"], [37], batches)
    worst = max(float(np.abs(ours - theirs).max()) for ours, theirs in zip(weights, alone, strict=True))
    print(f"  furthest weight from those of one process: {worst:.1e}")
    assert losses[-1] < losses[0]
    for ours, theirs in zip(weights, alone, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def train(
    target: str, towers: list[str], shares: list[int], batches: list[Any]
) -> tuple[list[Any], list[float], dict[str, str]]:
    """Weights after all batches, each cut into ``shares``; the loss of every step; where the last step ran."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [None, 12])
        y = tf.compat.v1.placeholder(tf.int64, [None])
        with tf.compat.v1.device(towers[0]):
            variables = make_variables()
        losses, gradients, sizes = [], [], []
        for index, part in enumerate(zip(tf.split(x, shares), tf.split(y, shares), strict=True)):
            with tf.compat.v1.device(towers[index]):
                losses.append(tower_loss(variables, *part, name=f"loss_{index}"))
                gradients.append(tf.gradients(losses[-1], variables))
                sizes.append(tf.cast(tf.size(part[1]), tf.float64))
        with tf.compat.v1.device(towers[0]):
            loss = weighted_mean(losses, sizes)
            combined = [weighted_mean(list(same), sizes) for same in zip(*gradients, strict=True)]
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
            step = optimizer.apply_gradients(zip(combined, variables, strict=True), name="apply")
        start = tf.compat.v1.global_variables_initializer()
    with open_session(target, graph) as session:
        session.run(start)
        feeds = [{x: rows, y: wanted} for rows, wanted in batches]
        seen = [session.run([loss, step], feed)[0] for feed in feeds[:-1]]
        (last, _), devices = run_traced(session, [loss, step], feeds[-1])
        return session.run(variables), [*seen, last], devices


def make_variables() -> list[Any]:
    """A network of 12 inputs, 16 hidden units and 3 classes, in float64: sums differ by their order only."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    starts = [rng.normal(0, 0.3, (12, 16)), np.zeros(16), rng.normal(0, 0.3, (16, 3)), np.zeros(3)]
    return [tf.compat.v1.get_variable(f"v{number}", initializer=start) for number, start in enumerate(starts)]


def tower_loss(variables: list[Any], x: Any, y: Any, name: str) -> Any:
    """Mean cross-entropy of one tower's rows."""
    import tensorflow as tf

    hidden = tf.tanh(x @ variables[0] + variables[1])
    logits = hidden @ variables[2] + variables[3]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name=name)


def weighted_mean(values: list[Any], sizes: list[Any]) -> Any:
    """What the mean over all rows is, from the means and the sizes of its slices."""
    import tensorflow as tf

    return tf.add_n([value * size for value, size in zip(values, sizes, strict=True)]) / tf.add_n(sizes)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the network and its cluster are closed.")
