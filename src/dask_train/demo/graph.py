"""The 784-100-10 network, built once in every task that uses it (between-graph replication).

Variables live on the parameter servers under the same names in each of the graphs, which is what makes them one
model. TensorFlow's version 1 graph is used because it is the one whose servers train asynchronously.
"""

from __future__ import annotations

from typing import Any, NamedTuple

PIXELS, HIDDEN, CLASSES = 784, 100, 10


class SyncParts(NamedTuple):
    """What synchronous training has besides the train step."""

    local_init: Any  # run by every worker before its first step, another one in the chief
    ready_for_local_init: Any
    apply_mean: Any  # the chief's, run again and again: gathers gradients, applies their mean, hands out tokens
    first_tokens: Any  # run by the chief before the first of these
    end: Any  # wakes every worker that waits for its next step, permanently


class Graph(NamedTuple):
    """One task's graph: its inputs, what to run, and how its session begins."""

    graph: Any
    images: Any  # placeholder (rows, 784) float32
    labels: Any  # placeholder (rows, 10) float32, one-hot
    loss: Any  # mean cross-entropy over the rows that were fed
    accuracy: Any
    step: Any
    train: Any
    init: Any
    uninitialized: Any  # names of variables
    sync: SyncParts | None


def build(
    cluster: dict[str, list[str]], job: str, index: int, *, learning_rate: float = 0.001, sync: bool = False
) -> Graph:
    """Build the graph of one task.

    Parameters
    ----------
    cluster
        Addresses by job; variables are spread over ``ps`` in turn.
    job, index
        The task whose device computes.
    learning_rate
        Of Adam.
    sync
        Whether a step waits for the gradients of all workers and applies their mean.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = tf.Graph()
    setter = v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{job}/task:{index}")
    with graph.as_default(), v1.device(setter):
        v1.set_random_seed(0)
        step = v1.train.get_or_create_global_step()
        images = v1.placeholder(tf.float32, (None, PIXELS))
        labels = v1.placeholder(tf.float32, (None, CLASSES))
        logits = _dense(_dense(images, HIDDEN, "hidden", tf.nn.relu), CLASSES, "softmax")
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        hit = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
        accuracy = tf.reduce_mean(tf.cast(hit, tf.float32))
        optimizer = v1.train.AdamOptimizer(learning_rate)
        if sync:
            num_workers = len(cluster["worker"])
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, num_workers, num_workers)
        train = optimizer.minimize(loss, global_step=step)
        parts = _sync_parts(optimizer, step, chief=index == 0) if sync else None
        init = v1.global_variables_initializer()
        uninitialized = v1.report_uninitialized_variables(v1.global_variables())
    return Graph(graph, images, labels, loss, accuracy, step, train, init, uninitialized, parts)


def _sync_parts(optimizer: Any, step: Any, *, chief: bool) -> SyncParts:
    (apply_mean,) = optimizer.get_chief_queue_runner().enqueue_ops
    return SyncParts(
        local_init=optimizer.chief_init_op if chief else optimizer.local_step_init_op,
        ready_for_local_init=optimizer.ready_for_local_init_op,
        apply_mean=apply_mean,
        first_tokens=optimizer.get_init_tokens_op(),
        end=_close_tokens(step),
    )


def _close_tokens(step: Any) -> Any:
    """Return an operation that ends synchronous training for all workers at once.

    SyncReplicasOptimizer lets a worker begin its next step when it gets a token from a queue that lies next to the
    global step. When one worker leaves, the tokens dry up and the others would wait for ever; closing the queue ends
    their wait with OutOfRangeError. The queue is found by the name it is shared under
    (``tensorflow/python/training/sync_replicas_optimizer.py``).
    """
    import tensorflow as tf

    with tf.compat.v1.device(step.device):
        tokens = tf.queue.FIFOQueue(-1, [step.dtype.base_dtype], shapes=[()], shared_name="sync_token_q")
        return tokens.close(cancel_pending_enqueues=True)


def _dense(inputs: Any, units: int, name: str, activation: Any = None) -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    fan_in = int(inputs.shape[1])
    with v1.variable_scope(name):
        spread = v1.truncated_normal_initializer(stddev=fan_in**-0.5)
        weights = v1.get_variable("weights", (fan_in, units), initializer=spread)
        bias = v1.get_variable("bias", (units,), initializer=v1.zeros_initializer())
    outputs = tf.matmul(inputs, weights) + bias
    return activation(outputs) if activation else outputs


def open_session(graph: Graph, target: str, job: str, index: int, *, chief: bool, timeout_s: float) -> Any:
    """Return a session on the task's own server: the chief initialises the variables, the others wait until it has.

    Raises
    ------
    tf.errors.DeadlineExceededError
        The chief did not initialise within ``timeout_s`` seconds.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    # A task talks to the parameter servers and itself only, so that another one's end does not touch it.
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:{job}/task:{index}"], allow_soft_placement=True)
    with graph.graph.as_default():
        # Polled every 0.2 s: the default of 30 s would let the others begin half a minute late.
        manager = v1.train.SessionManager(
            local_init_op=graph.sync.local_init if graph.sync else None,
            ready_op=graph.uninitialized,
            ready_for_local_init_op=graph.sync.ready_for_local_init if graph.sync else None,
            recovery_wait_secs=0.2,
            graph=graph.graph,
        )
        if chief:
            return manager.prepare_session(target, init_op=graph.init, config=config)
        return manager.wait_for_session(target, config=config, max_wait_secs=timeout_s)
