"""Steps, layers and losses of a user's own that compare rows of the global batch: SimCLR, CLIP, SupCon, MoCo."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

import dask_train as dt


def unit(z: Any) -> Any:
    """Rows of length 1."""
    return z / ops.sqrt(ops.sum(z**2, axis=-1, keepdims=True) + 1e-6)


def cross_entropy(logits: Any, places: Any) -> Any:
    """By row, of the place that is right."""
    picked = ops.take_along_axis(logits, places[:, None], axis=1)[:, 0]
    return ops.logsumexp(logits, axis=1) - picked


def nt_xent(first: Any, second: Any) -> Any:
    """NT-Xent of two views of each row (Chen et al., 2020)."""
    rows, both = ops.shape(first)[0], ops.concatenate([unit(first), unit(second)])
    alike = ops.matmul(both, ops.transpose(both)) / 0.5
    alike = alike - 1e9 * ops.eye(2 * rows, dtype=alike.dtype)
    numbers = ops.arange(rows)
    return ops.mean(cross_entropy(alike, ops.concatenate([numbers + rows, numbers])))


def clip(images: Any, texts: Any, scale: Any) -> Any:
    """CLIP's symmetrical loss of pairs (Radford et al., 2021)."""
    alike = ops.exp(scale) * ops.matmul(unit(images), ops.transpose(unit(texts)))
    numbers = ops.arange(ops.shape(images)[0])
    return ops.mean(cross_entropy(alike, numbers) + cross_entropy(ops.transpose(alike), numbers)) / 2


def against(p: Any, labels: Any, others: Any, other_labels: Any) -> Any:
    """By row, how near rows of its class are among all others (Khosla et al., 2020, with the row itself)."""
    alike = ops.matmul(unit(p), ops.transpose(unit(others))) / 0.5
    same = ops.cast(ops.reshape(labels, (-1,))[:, None] == ops.reshape(other_labels, (-1,))[None], alike.dtype)
    return ops.logsumexp(alike, axis=1) - ops.logsumexp(alike - 1e9 * (1 - same), axis=1)


class Computes(keras.Model):
    """Its loss is a function of labels and outputs, by name, since functions of a class travel with it."""

    kind = "of all"

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):  # type: ignore[no-untyped-def]
        if self.kind == "own rows against all":
            return ops.mean(against(y_pred, y, *dt.keras.global_batch((y_pred, y))))
        if self.kind == "own rows summed":
            return ops.sum(against(y_pred, y, *dt.keras.global_batch((y_pred, y))))
        p, labels = dt.keras.global_batch([y_pred, y])
        by_row = against(p, labels, p, labels)
        return 1e-2 * ops.sum(by_row) if self.kind == "a sum" else ops.mean(by_row)

    @classmethod
    def made(cls, kind: str, optimizer: Any = None) -> Any:
        """Built and compiled."""
        x = layers.Input((8,))
        model = type(cls.__name__, (cls,), {"kind": kind})(x, layers.Dense(4)(layers.Dense(16, activation="tanh")(x)))
        model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.5))
        return model


class TwoTowers(keras.Model):
    """Trains two towers by its own step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.towers = [layers.Dense(6, activation="tanh") for _ in range(1 if kind == "simclr" else 2)]
        self.tracker = keras.metrics.Mean(name="loss")

    def build(self, shape: Any) -> None:
        for tower in self.towers:
            tower.build((None, 4))
        self.scale = self.add_weight(shape=(), initializer="zeros", name="scale") if self.kind == "clip" else None
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {"kind": self.kind}

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def call(self, x: Any) -> Any:
        """Return what both towers make of a row's halves."""
        return self.towers[0](x[:, :4]), self.towers[-1](x[:, 4:])

    def loss_of(self, both: Any) -> Any:
        """Compare the rows of all workers; and keep weights small."""
        one, other = dt.keras.global_batch(both)
        found = clip(one, other, self.scale) if self.kind == "clip" else nt_xent(one, other)
        return found + 0.01 * ops.sum(self.towers[0].kernel ** 2)

    def keep(self, both: Any) -> None:
        """Keep something of a batch, once its gradients are applied."""

    def train_step(self, *given: Any) -> Any:
        if keras.backend.backend() == "jax":
            return self.train_step_on_jax(*given)
        (data,) = given
        x, variables = data[0], self.trainable_variables
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                both = self(x)
                loss = self.loss_of(both)
            gradients = tape.gradient(loss, variables)
        else:
            self.zero_grad()
            both = self(x)
            loss = self.loss_of(both)
            loss.backward()
            gradients = [variable.value.grad for variable in variables]
        self.optimizer.apply(gradients, variables)
        self.keep(both)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def train_step_on_jax(self, state: Any, data: Any) -> Any:
        import jax

        trained, others, optimizer, metrics = state

        def values(trained: Any) -> Any:
            pairs = (self.trainable_variables, trained), (self.non_trainable_variables, others)
            return keras.StatelessScope([pair for some in pairs for pair in zip(*some, strict=True)])

        def loss_of(trained: Any) -> Any:
            with values(trained):
                both = self(data[0])
                return self.loss_of(both), both

        (loss, both), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
        trained, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trained)
        with values(trained) as scope:
            self.keep(both)
        others = [scope.get_current_value(variable) for variable in self.non_trainable_variables]
        metrics = self.tracker.stateless_update_state(metrics, loss)
        return {"loss": self.tracker.stateless_result(metrics)}, (trained, others, optimizer, metrics)

    @classmethod
    def made(cls, kind: str) -> Any:
        """Built and compiled."""
        model = cls(kind)
        model.build((None, 8))
        model.compile(keras.optimizers.Adam(0.01))
        return model


class Moco(TwoTowers):
    """Compares its queries with keys of earlier batches, which a tower that follows slowly makes (He et al., 2020)."""

    def build(self, shape: Any) -> None:
        super().build(shape)
        queries, keys = self.towers
        keys.set_weights(queries.get_weights())
        keys.trainable = False
        self.queue = self.add_weight(shape=(120, 6), initializer="random_normal", trainable=False, name="queue")

    def loss_of(self, both: Any) -> Any:
        """Compare this worker's rows with what all workers have the same of."""
        queries, keys = map(unit, both)
        right = ops.sum(queries * ops.stop_gradient(keys), axis=1, keepdims=True)
        alike = ops.concatenate([right, ops.matmul(queries, ops.transpose(unit(self.queue)))], axis=1) / 0.2
        return ops.mean(ops.logsumexp(alike, axis=1) - alike[:, 0])

    def keep(self, both: Any) -> None:
        """Put the keys of all workers into the queue, and let the slow tower follow."""
        keys = ops.concatenate([dt.keras.global_batch(both[1]), self.queue])
        self.queue.assign(keys[: self.queue.shape[0]])
        for slow, fast in zip(self.towers[1].weights, self.towers[0].weights, strict=True):
            slow.assign(0.9 * slow + 0.1 * fast)


class Remembers(keras.Model):
    """As :class:`Moco`, of gathered rows alone, and without a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fast, self.slow = (layers.Dense(6, activation="tanh") for _ in range(2))

    def build(self, shape: Any) -> None:
        for tower in (self.fast, self.slow):
            tower.build((None, 4))
        self.slow.set_weights(self.fast.get_weights())
        self.slow.trainable = False
        self.queue = self.add_weight(shape=(120, 6), initializer="random_normal", trainable=False, name="queue")
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {}

    def call(self, x: Any) -> Any:
        return unit(self.fast(x[:, :4])), unit(self.slow(x[:, 4:]))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):  # type: ignore[no-untyped-def]
        queries, keys = dt.keras.global_batch(y_pred)
        bank = ops.concatenate([keys, self.queue])
        alike = ops.matmul(queries, ops.transpose(bank)) / 0.2
        if training:
            self.queue.assign(bank[: self.queue.shape[0]])
            for slow, fast in zip(self.slow.weights, self.fast.weights, strict=True):
                slow.assign(0.9 * slow + 0.1 * fast)
        return ops.mean(cross_entropy(alike, ops.arange(ops.shape(queries)[0])))

    @classmethod
    def made(cls) -> Any:
        """Built and compiled."""
        model = cls()
        model.build((None, 8))
        model.compile(keras.optimizers.Adam(0.01))
        return model


class Contrasts(layers.Layer):
    """Adds a loss that compares the rows of the global batch."""

    def call(self, p: Any) -> Any:
        everyones = unit(dt.keras.global_batch(p))
        self.add_loss(0.1 * ops.mean(ops.matmul(everyones, ops.transpose(everyones)) ** 2))
        return p


class Centers(layers.Layer):
    """Takes the mean of the global batch off each row."""

    def call(self, p: Any) -> Any:
        return p - ops.mean(dt.keras.global_batch(p), axis=0)


class Avoids(layers.Layer):
    """Adds a loss that compares rows with those of earlier batches, which are written one after the other in a ring."""

    def build(self, shape: Any) -> None:
        self.bank = self.add_weight(shape=(120, shape[-1]), initializer="random_normal", trainable=False, name="bank")
        self.place = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="place")

    def call(self, p: Any, training: bool = False) -> Any:
        self.add_loss(0.1 * ops.mean(ops.matmul(unit(p), ops.transpose(unit(self.bank))) ** 2))
        if training:
            everyones, size = dt.keras.global_batch(p), self.bank.shape[0]
            places = (self.place + ops.arange(ops.shape(everyones)[0])) % size
            self.bank.assign(ops.scatter_update(self.bank, places[:, None], ops.stop_gradient(everyones)))
            self.place.assign((self.place + ops.shape(everyones)[0]) % size)
        return p


def with_layer(layer: Any) -> Any:
    """A classifier with that layer."""
    model = keras.Sequential([layers.Input((8,)), layers.Dense(6, activation="tanh"), layer, layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
