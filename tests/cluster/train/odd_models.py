"""Models whose gradients do not simply add up: tables looked up once a batch, losses that are no means, and others."""

from __future__ import annotations

import types
from typing import Any

import keras
from keras import layers, ops

WORDS, LENGTH, CLASSES = 20, 5, 3


def derived(losses_of: Any, variables: list[Any]) -> tuple[list[Any], list[list[Any]]]:
    """The losses that a function returns, and the gradients of each, in a step on the backend that Keras has."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(persistent=True) as tape:
            losses = losses_of()
        return losses, [tape.gradient(loss, variables) for loss in losses]
    import torch

    losses, weights = losses_of(), [variable.value for variable in variables]
    return losses, [list(torch.autograd.grad(ops.sum(loss), weights, retain_graph=True)) for loss in losses]


class Positions(layers.Layer):
    """Adds what it has learnt of each position, looked up once a batch; the numbers of positions may be a variable."""

    def __init__(self, numbers: Any = None) -> None:
        super().__init__()
        self.table, self.numbers = layers.Embedding(LENGTH, 4), numbers

    def build(self, shape: Any) -> None:
        self.table.build((LENGTH,))
        self.built = True

    def call(self, inputs: Any) -> Any:
        return inputs + self.table(ops.arange(LENGTH) if self.numbers is None else self.numbers)


class Doubly(layers.Layer):
    """A table looked up for each word, and whole, once a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = layers.Embedding(WORDS, 4)

    def build(self, shape: Any) -> None:
        self.table.build(shape)
        self.built = True

    def call(self, inputs: Any) -> Any:
        whole = ops.mean(self.table(ops.arange(WORDS)), axis=0)
        return self.table(inputs) * (1 + whole) + self.table(ops.arange(LENGTH))


def words(optimizer: Any, *, doubly: bool = False, numbers: Any = None, eagerly: bool = False) -> keras.Model:
    """Classifies rows of words, which occur twice in a row, and in many rows."""
    ids = layers.Input((LENGTH,), dtype="int64")
    found = Doubly()(ids) if doubly else Positions(numbers)(layers.Embedding(WORDS, 4)(ids))
    model = keras.Model(ids, layers.Dense(CLASSES)(layers.Flatten()(found)))
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=eagerly)
    return model


class Endpoint(layers.Layer):
    """A loss by row, by ``add_loss``, as CTC endpoints have it."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(0.01 * ops.sum(ops.square(inputs), axis=-1))
        return inputs


def with_added_losses() -> keras.Model:
    """Losses by row, by batch and by weight."""
    x = layers.Input((8,))
    hidden = layers.Dense(4, activity_regularizer="l2", kernel_regularizer=keras.regularizers.L1(0.01))(x)
    model = keras.Model(x, layers.Dense(2)(Endpoint()(hidden)))
    model.compile(keras.optimizers.SGD(0.001), "mse")
    return model


def regression(optimizer: Any, loss: Any = "mse", **compiled: Any) -> keras.Model:
    """Two targets."""
    model = keras.Sequential([layers.Input((8,)), layers.Dense(4, activation="tanh"), layers.Dense(2)])
    model.compile(optimizer, loss, **compiled)
    return model


class OwnSteps(keras.Model):
    """Has one layer; subclasses train it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def build(self, shape: Any) -> None:
        self.dense.build(shape)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def made(cls, *args: Any) -> OwnSteps:
        """Built and compiled."""
        model = cls()
        model.build((None, 8))
        model.compile(*args)
        return model


class OwnStepOnJax(OwnSteps):
    """Trains by itself as steps on JAX do, and tells something that is no metric."""

    def train_step(self, state: Any, data: Any) -> Any:
        import jax

        trained, others, optimizer, metrics = state
        x, y = data

        def loss_of(trained: Any) -> Any:
            found, _ = self.stateless_call(trained, others, x)
            return ops.mean((found - y) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(trained)
        trained, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trained)
        return {"squared": loss}, (trained, others, optimizer, metrics)


class OutOfSight(OwnSteps):
    """Keeps one optimizer in a namespace, and one in a function, and applies each twice in a step."""

    def compile(self, rate: float) -> None:  # type: ignore[override]
        super().compile()
        hidden = keras.optimizers.SGD(rate)
        self.kept = types.SimpleNamespace(adam=keras.optimizers.Adam(rate))
        self.hidden = lambda: hidden

    def get_compile_config(self) -> dict[str, Any]:
        return {"rate": 0.01}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**config)

    def train_step(self, data: Any) -> Any:
        x, y = data
        variables = self.trainable_variables

        def losses_of() -> Any:
            rows = (self(x) - y) ** 2
            return [ops.mean(rows[:, 0]), ops.mean(rows[:, 1]), ops.sum(rows, axis=-1)]

        losses, gradients = derived(losses_of, variables)
        self.kept.adam.apply(gradients[0], variables)
        self.kept.adam.apply(gradients[1], variables)
        self.hidden().apply_gradients(zip([0.01 * one for one in gradients[2]], variables, strict=True))
        return {"first": losses[0]}


class Remembers(keras.optimizers.Optimizer):
    """Goes by the gradient of the step before, which it keeps as it is."""

    def build(self, variables: Any) -> None:
        if not self.built:
            super().build(variables)
            self.last = self.add_optimizer_variables(variables, "last")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        last = self.last[self._get_variable_index(variable)]
        self.assign_sub(variable, learning_rate * last)
        self.assign(last, gradient)


class OwnSums(OwnSteps):
    """A loss that is the sum of a mean, of a sum over rows, and of one over weights."""

    def train_step(self, data: Any) -> Any:
        x, y = data

        def losses_of() -> Any:
            apart = (self(x) - y) ** 2
            kernel = ops.convert_to_tensor(self.dense.kernel)
            return [ops.mean(apart) + 0.01 * ops.sum(apart) + 0.1 * ops.sum(kernel**2)]

        variables = self.trainable_variables
        _, (gradients,) = derived(losses_of, variables)
        self.optimizer.apply(gradients, variables)
        return {"mean": ops.mean((self(x) - y) ** 2)}


class Weighted(OwnSteps):
    """A loss that counts as much as a variable says that Keras does not know."""

    def __init__(self) -> None:
        super().__init__()
        import tensorflow as tf

        self.beta = tf.Variable(0.0, trainable=False, dtype=keras.config.floatx())

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:  # type: ignore[no-untyped-def]
        return self.beta * ops.mean(ops.square(y_pred - y))


class Anneals(keras.callbacks.Callback):
    """Sets that variable."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.beta.assign(1.0 + epoch)


class Alone(OwnSteps):
    """Changes its weights by itself."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        variables = self.trainable_variables
        (loss,), (gradients,) = derived(lambda: [ops.mean((self(x) - y) ** 2)], variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}
