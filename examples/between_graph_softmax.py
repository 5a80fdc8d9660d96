"""Between-graph replication: MNIST softmax on two parameter servers and two workers, killed half-way, and resumed.

Every worker builds the same graph and trains on rows of its own; the variables, one set for all, lie on the parameter
servers. What to look at:

* Dask prepares blocks of rows and ``net.feed`` divides them: each block goes to exactly one worker. The ids of the
  rows travel along, and after every epoch the program checks that no row was trained twice and none left out.
* The chief (worker 0) initialises the variables, or restores them; the others wait for it, for fractions of a second.
* After every epoch the chief writes a checkpoint. In the middle of the second one a parameter server's process is
  killed. TensorFlow's workers would hang; here their futures end with ``RoleLostError``. The program closes the
  network, starts a new one and goes on from the checkpoint's global step. What was trained since is gone with the
  parameter server, so the interrupted epoch is done again as a whole: the model has seen every row once an epoch.
* ``--join``: one more worker. The cluster grows by a Dask worker, and the new network, which has three workers now,
  restores the checkpoint that two have made. Nothing is typed on any host.

Run it::

    python examples/between_graph_softmax.py --join
    python examples/between_graph_softmax.py --small           # half of the rows, as in CI
    python examples/between_graph_softmax.py --kill worker     # it survives that, too

Checkpoints lie in a temporary folder here. On several hosts, name one that all of them share: the next chief may run
on another one.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when the Dask workers, which inherit it, import TensorFlow

import numpy as np
from distributed import Client, Future, get_worker

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.datasets import load_mnist

PIXELS, CLASSES = 784, 10
ROWS_PER_BLOCK, BATCH_SIZE, LEARNING_RATE = 500, 100, 0.2
NUM_PS, NUM_WORKERS = 2, 2
BEGUN = time.perf_counter()


# The client: this process


def main() -> int:
    args = parse_args()
    with (
        local_client(NUM_PS + NUM_WORKERS, silence_logs=logging.CRITICAL) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        blocks = client.map(prepare_block, range(0, args.rows, ROWS_PER_BLOCK), pure=False)
        say(f"Dask prepares {args.rows:,} rows in {len(blocks)} blocks")

        with Training(client, NUM_WORKERS, folder) as training:
            training.show_placement()
            training.epoch("epoch 1", blocks)
            saved = training.checkpoint()
            training.epoch_with_a_kill("epoch 2", blocks, args.kill)

        num_workers = NUM_WORKERS
        if args.join:
            say("One more Dask worker joins")
            num_workers += 1
            client.cluster.scale(NUM_PS + num_workers)
        client.wait_for_workers(NUM_PS + num_workers, timeout=60)  # the nanny of the killed one brings it back, too
        with Training(client, num_workers, folder, saved["step"]) as training:
            training.epoch("epoch 2, again", blocks)
            saved = training.checkpoint()
    good = saved["accuracy"] > 0.90
    say(f"Test accuracy {saved['accuracy']:.4f} after {saved['step']} steps: {'above' if good else 'NOT above'} 0.90")
    return 0 if good else 1


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="30,000 rows instead of 60,000, as in CI")
    parser.add_argument("--kill", choices=["ps", "worker"], default="ps", help="whose process dies (%(default)s)")
    parser.add_argument("--join", action="store_true", help="go on with one more worker")
    args = parser.parse_args()
    args.rows = 30_000 if args.small else 60_000
    return args


def say(what: str) -> None:
    print(f"{time.perf_counter() - BEGUN:6.1f} s  {what}", flush=True)


class Training:
    """One network from its start to its end: the workers' role on it, and what they report on a board."""

    def __init__(self, client: Client, num_workers: int, folder: str, expected_step: int = 0) -> None:
        begun = time.perf_counter()
        self.client, self.folder, self.step = client, folder, expected_step
        self.net = dt.start_tensorflow(client, ps=NUM_PS, worker=num_workers)
        say(f"A network of ps={NUM_PS}, worker={num_workers} stands after {time.perf_counter() - begun:.1f} s")
        self.reports = dt.board(self.net.id, client=client)
        self.roles = self.net.submit("worker", train, self.net.tf_spec, self.net.id, folder)
        self.wait_for(num_workers)
        for report in sorted(self.reports, key=lambda report: report["worker"]):
            chief_did = "restored the checkpoint" if expected_step else "initialised the variables"
            did = "waited for the chief" if report["worker"] else chief_did
            say(f"  worker {report['worker']} {did}, {report['seconds']:.2f} s; global step {report['step']}")
            assert report["step"] == expected_step

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        begun = time.perf_counter()
        self.net.close()
        self.reports.delete()
        say(f"The network is closed after {time.perf_counter() - begun:.1f} s")

    def wait_for(self, num_reports: int, timeout_s: float = 60.0) -> None:
        """Wait for reports; what a role raises is raised here."""
        deadline = time.monotonic() + timeout_s
        while self.reports.count < num_reports:
            try:
                self.reports.wait_until(lambda board: board.count >= num_reports, timeout_s=0.5)
            except dt.StalledError:
                for role in self.roles:
                    if role.status == "error":
                        role.result()
                if time.monotonic() > deadline:
                    raise

    def show_placement(self) -> None:
        for name, device in self.reports[0]["placement"].items():
            say(f"  variable {name:12} on {device}")

    def epoch(self, name: str, blocks: list[Future]) -> None:
        """Train on every block once, and check that the workers divided the rows."""
        before = self.reports.count
        self.net.feed(blocks, to="worker")
        self.wait_for(before + len(blocks))
        rows = self.rows_by_worker(before)
        together = np.concatenate(list(rows.values()))
        num_rows = len(blocks) * ROWS_PER_BLOCK
        twice, never = len(together) - len(np.unique(together)), num_rows - len(np.unique(together))
        shares = ", ".join(f"worker {worker} {len(ids):,} rows" for worker, ids in sorted(rows.items()))
        say(f"{name}: {shares}; trained twice {twice}, never {never}; loss {self.reports[-1]['loss']:.3f}")
        assert len(rows) == len(self.roles), "a worker trained nothing"
        assert np.array_equal(np.sort(together), np.arange(num_rows))
        self.step += num_rows // BATCH_SIZE

    def rows_by_worker(self, since: int) -> dict[int, np.ndarray]:
        """The ids of the rows that each worker trained, from report number ``since`` on."""
        ids: dict[int, list[np.ndarray]] = {}
        for report in list(self.reports)[since:]:
            ids.setdefault(report["worker"], []).append(report["ids"])
        return {worker: np.concatenate(parts) for worker, parts in ids.items()}

    def checkpoint(self) -> dict[str, Any]:
        """Let the chief save and score the model; nobody trains meanwhile, so it is the model after whole epochs."""
        saved = self.net.submit("worker", save_and_score, self.net.tf_spec, self.folder)[0].result(timeout=60)
        say(f"  checkpoint at global step {saved['step']}, test accuracy {saved['accuracy']:.4f}")
        assert saved["step"] == self.step, "a step was lost, or counted twice"
        return saved

    def epoch_with_a_kill(self, name: str, blocks: list[Future], job: str) -> None:
        """Begin an epoch, and kill the process of the last task of ``job`` after a quarter of it."""
        address = self.net.dask_spec[job][-1]
        pid = self.client.run(os.getpid, workers=[address])[address]
        before = self.reports.count
        self.net.feed(blocks, to="worker")
        self.wait_for(before + len(blocks) // 4)
        os.kill(pid, signal.SIGKILL)
        killed = time.perf_counter()
        say(f"{name}: SIGKILL to process {pid}, {job} {self.net.tf_spec.num_tasks(job) - 1}")
        losses = [role.exception(timeout=30) for role in self.roles]
        assert all(isinstance(loss, dt.RoleLostError) for loss in losses), losses
        say(f"  every role has ended {time.perf_counter() - killed:.2f} s later: {losses[0].what}")
        lost = sum(len(ids) for ids in self.rows_by_worker(before).values())
        say(f"  what {lost:,} rows of this epoch had taught the model is lost")


# The Dask tasks


def prepare_block(first: int) -> dict[str, np.ndarray]:
    """Rows of MNIST as the model takes them, with the number of each."""
    ids = np.arange(first, first + ROWS_PER_BLOCK)
    mnist = load_mnist()
    images = mnist.train_images[ids].reshape(-1, PIXELS).astype("float32") / 255
    return {"ids": ids, "images": images, "labels": mnist.train_labels[ids].astype("int64")}


# The roles: Dask tasks pinned to the workers of the network


def train(tf_spec: dt.AddressBook, board: str, folder: str) -> None:
    """Train on the blocks that come through the queue, until the network is closed."""
    server, queue = get_worker().tensorflow_server, get_worker().tensorflow_queue
    me = server.server_def.task_index
    reports = dt.board(board)
    model = build(tf_spec, me)
    begun = time.perf_counter()
    with open_session(model, server.target, me, folder) as session:
        ready = {"seconds": time.perf_counter() - begun, "step": int(session.run(model.step))}
        reports.append({"worker": me, **ready, "placement": model.placement})
        for block in queue:
            trained = []
            for start in range(0, ROWS_PER_BLOCK, BATCH_SIZE):
                rows = slice(start, start + BATCH_SIZE)
                feed = {model.images: block["images"][rows], model.labels: block["labels"][rows]}
                _, loss = session.run([model.train, model.loss], feed)
                trained.append(block["ids"][rows])
            reports.append({"worker": me, "ids": np.concatenate(trained), "loss": float(loss)})


def save_and_score(tf_spec: dt.AddressBook, folder: str) -> dict[str, Any] | None:
    """In the chief: write a checkpoint, and score the model on the test rows."""
    import tensorflow as tf

    server = get_worker().tensorflow_server
    me = server.server_def.task_index
    if me != 0:
        return None
    model = build(tf_spec, me)
    mnist = load_mnist()
    test = {
        model.images: mnist.test_images.reshape(-1, PIXELS).astype("float32") / 255,
        model.labels: mnist.test_labels.astype("int64"),
    }
    with tf.compat.v1.Session(server.target, graph=model.graph, config=session_config(me)) as session:
        model.saver.save(session, os.path.join(folder, "softmax"), global_step=model.step)
        step, accuracy = session.run([model.step, model.accuracy], test)
    return {"step": int(step), "accuracy": float(accuracy)}


class Model(NamedTuple):
    """One worker's graph."""

    graph: Any
    images: Any  # placeholder (rows, 784) float32
    labels: Any  # placeholder (rows,) int64
    loss: Any
    accuracy: Any
    step: Any
    train: Any
    init: Any
    saver: Any
    placement: dict[str, str]


def build(tf_spec: dt.AddressBook, index: int) -> Model:
    """The graph of worker ``index``: variables on the parameter servers in turn, all else on its own task."""
    import tensorflow as tf

    v1 = tf.compat.v1
    setter = v1.train.replica_device_setter(cluster=tf_spec, worker_device=f"/job:worker/task:{index}")
    with tf.Graph().as_default() as graph, v1.device(setter):
        step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", (PIXELS, CLASSES), initializer=v1.zeros_initializer())
        bias = v1.get_variable("bias", (CLASSES,), initializer=v1.zeros_initializer())
        images = v1.placeholder(tf.float32, (None, PIXELS))
        labels = v1.placeholder(tf.int64, (None,))
        logits = tf.matmul(images, weights) + bias
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        train_step = v1.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, global_step=step)
        init, saver = v1.global_variables_initializer(), v1.train.Saver()
    placement = {variable.op.name: variable.device for variable in (step, weights, bias)}
    return Model(graph, images, labels, loss, accuracy, step, train_step, init, saver, placement)


def open_session(model: Model, target: str, index: int, folder: str) -> Any:
    """A session on the worker's own server: the chief restores or initialises, the others wait until it has."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with model.graph.as_default():
        # MonitoredTrainingSession and Supervisor look every 30 s whether the chief is ready, unless told otherwise.
        manager = v1.train.SessionManager(
            ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=0.1, graph=model.graph
        )
        if index == 0:
            return manager.prepare_session(
                target,
                init_op=model.init,
                saver=model.saver,
                checkpoint_filename_with_path=tf.train.latest_checkpoint(folder),
                config=session_config(index),
            )
        return manager.wait_for_session(target, config=session_config(index), max_wait_secs=60)


def session_config(index: int) -> Any:
    """A worker talks to the parameter servers and to itself; a call that takes a minute ends with an error."""
    import tensorflow as tf

    filters = ["/job:ps", f"/job:worker/task:{index}"]
    return tf.compat.v1.ConfigProto(device_filters=filters, operation_timeout_in_ms=60_000)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the network and its cluster are closed.")
