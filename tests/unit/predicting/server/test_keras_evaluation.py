"""``evaluate`` says what Keras' own says: the same names, in the same order, the same numbers, however rows are cut."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dask_train as dt
from dask_train.fitting.backends import BACKENDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

layers = keras.layers

RNG = np.random.default_rng(6)
N = 103
X = RNG.normal(size=(N, 6)).astype("f4")
Y = X[:, :1] * 2 + 1
CLASSES = RNG.integers(0, 3, N)
WEIGHTS = RNG.random(N).astype("f4")
CUTS = ((103,), (0, 3, 1, 0, 60, 39, 0))


def two_outputs(**compiling: Any) -> Any:
    inputs = keras.Input((6,), name="rows")
    hidden = layers.Dense(4, "tanh", kernel_regularizer="l2")(inputs)
    outputs = {
        "number": layers.Dense(1, name="number")(hidden),
        "kind": layers.Dense(3, "softmax", name="kind")(hidden),
    }
    model = keras.Model(inputs, outputs)
    model.compile("sgd", {"number": "mse", "kind": "sparse_categorical_crossentropy"}, **compiling)
    return model


def one_output(loss: Any = "mse", units: int = 1, activation: Any = None, **compiling: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), layers.Dropout(0.5), layers.Dense(units, activation)])
    model.compile("sgd", loss, **compiling)
    return model


class OwnStep(keras.Model):
    """Logs under other names than its metrics', and one that no metric has."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="tracked")

    def call(self, x: Any) -> Any:
        return self.dense(x)

    @property
    def metrics(self) -> Any:
        return [self.tracker]

    def test_step(self, *given: Any) -> Any:
        if keras.backend.backend() != "jax":
            return self.logs_of(*given)
        state, data = given
        variables = [*self.trainable_variables, *self.non_trainable_variables, *self.metrics_variables]
        mapping = zip(variables, [value for values in state for value in values], strict=True)
        with keras.StatelessScope(state_mapping=list(mapping)) as scope:
            logs = self.logs_of(data)
        return logs, (*state[:2], [scope.get_current_value(variable) for variable in self.metrics_variables])

    def logs_of(self, data: Any) -> Any:
        x, y = data
        error = keras.ops.mean((self(x) - y) ** 2)
        self.tracker.update_state(error)
        return {"z_loss": self.tracker.result(), "last": error, "inner": {"twice": 2 * error}}


class Summed(layers.Layer):
    """Adds a loss for each row, which Keras adds up over a batch."""

    def call(self, x: Any) -> Any:
        self.add_loss(keras.ops.mean(x**2, axis=1))
        return x


class Largest(keras.metrics.Metric):
    """A metric that can't be added up."""

    def __init__(self, name: str = "largest", **others: Any) -> None:
        super().__init__(name=name, **others)
        self.most = self.add_variable((), "zeros", name="most")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.most.assign(keras.ops.maximum(self.most, keras.ops.max(keras.ops.abs(y_pred))))

    def result(self) -> Any:
        return self.most.value


class Average(Largest):
    """One that can."""

    def __init__(self, name: str = "average", **others: Any) -> None:
        super().__init__(name=name, **others)
        self.rows = self.add_variable((), "zeros", name="rows")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.most.assign_add(keras.ops.sum(keras.ops.abs(y_pred)))
        self.rows.assign_add(keras.ops.cast(keras.ops.shape(y_pred)[0], "float32"))

    def result(self) -> Any:
        return self.most / self.rows


def own_step() -> Any:
    model = OwnStep()
    model.compile()
    model(X[:1])
    return model


def with_added_loss() -> Any:
    model = keras.Sequential([keras.Input((6,)), Summed(), layers.Dense(1, activity_regularizer="l2")])
    model.compile("sgd", "mse")
    return model


def masked() -> Any:
    model = keras.Sequential(
        [keras.Input((5,)), layers.Embedding(9, 4, mask_zero=True), layers.GRU(3), layers.Dense(3, "softmax")]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    return model


KINDS: list[Any] = [
    (lambda: two_outputs(metrics={"kind": ["accuracy"], "number": ["mae"]}), X, {"number": Y, "kind": CLASSES}, None),
    (
        lambda: two_outputs(loss_weights={"number": 0.5, "kind": 3.0}, weighted_metrics={"kind": ["accuracy"]}),
        X, {"number": Y, "kind": CLASSES}, {"number": WEIGHTS, "kind": WEIGHTS[::-1].copy()},
    ),
    (lambda: two_outputs(run_eagerly=True), X, {"number": Y, "kind": CLASSES}, None),
    (lambda: one_output(metrics=["mae", keras.metrics.R2Score(), Average()], weighted_metrics=["mse"]), X, Y, WEIGHTS),
    (lambda: one_output("binary_crossentropy", 1, "sigmoid", metrics=["auc", "accuracy", "precision"]), X, X[:, 0] > 0,
     None),
    (lambda: one_output("sparse_categorical_crossentropy", 3, "softmax",
                        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)]), X, CLASSES, None),
    (own_step, X, Y, None),
    (with_added_loss, X, Y, WEIGHTS),
    (masked, RNG.integers(0, 9, (N, 5)), CLASSES, WEIGHTS),
]  # fmt: skip
NAMES = ["outputs", "weights", "eager", "own-metric", "binary", "classes", "own-step", "added-loss", "masked"]


def cut(value: Any, lengths: tuple[int, ...], *, known: bool) -> Any:
    if isinstance(value, dict):
        return {name: cut(each, lengths, known=known) for name, each in value.items()}
    if value is None:
        return None
    array = da.from_array(value, chunks=(tuple(length for length in lengths if length), *value.shape[1:]))
    if known:
        return array
    blocks = [value[end - length : end] for length, end in zip(lengths, np.cumsum(lengths), strict=True)]
    parts = [da.from_array(block).map_blocks(lambda x: x, chunks=((np.nan,), *block.shape[1:])) for block in blocks]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


@pytest.mark.parametrize(("build", "x", "y", "weights"), KINDS, ids=NAMES)
def test_as_keras(build: Any, x: Any, y: Any, weights: Any) -> None:
    keras.utils.set_random_seed(3)
    model = build()
    expected = model.evaluate(x, y, 16, sample_weight=weights, verbose=0, return_dict=True)
    for lengths, known in ((CUTS[0], True), (CUTS[1], True), (CUTS[1], False)):
        data = [cut(value, lengths, known=known) for value in (x, y, weights)]
        found = dt.evaluate(model, data[0], data[1], sample_weight=data[2], batch_size=16)
        assert list(found) == list(expected)
        assert found == pytest.approx(expected, rel=2e-5, abs=1e-6)


def test_a_metric_that_is_no_sum_is_refused() -> None:
    model = one_output(metrics=[Largest()])
    with pytest.raises(ValueError, match="Metric 'largest' of class Largest does not count sums"):
        dt.evaluate(model, X, Y, batch_size=16)


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_a_metric_that_is_no_sum_is_refused_also_where_the_first_rows_count_nothing(scale: float) -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Rescaling(scale)])
    model.compile(loss="mse", metrics=[Largest()])
    rows = np.abs(X)
    rows[:40] = 0
    for cuts in ((103,), (35, 68)):
        with pytest.raises(ValueError, match="Metric 'largest' of class Largest does not count sums"):
            dt.evaluate(model, cut(rows, cuts, known=True), rows, batch_size=16)


def test_targets_may_be_missing_where_nothing_is_compared_with_them() -> None:
    with pytest.raises(ValueError, match=r"There are no targets: y is None, and the loss"):
        dt.evaluate(one_output(), X)
    model = keras.Sequential([keras.Input((6,)), Summed()])
    model.compile("sgd")
    expected = model.evaluate(X, batch_size=16, verbose=0, return_dict=True)
    assert dt.evaluate(model, cut(X, CUTS[1], known=True), batch_size=16) == pytest.approx(expected, rel=1e-5)


def test_what_can_not_be_is_refused_before_anything_starts() -> None:
    model = one_output()
    for arguments, error, text in (
        ((X, "y"), TypeError, "y has 'y'; pass arrays"),
        ((X, 3), TypeError, "y has 3; pass arrays"),
        ((X, Y[:, 0].tolist()), TypeError, r"y has \d\.\d+; pass arrays"),
        (("x", Y), TypeError, "x has 'x'; pass arrays"),
        *(
            [((X[:, :5], Y), ValueError, r"The data does not fit model .*: it has rows of float32 \(5,\)")]
            if keras.backend.backend() in BACKENDS
            else []
        ),
        ((X, Y[1:]), ValueError, "have 103, 102 rows"),
    ):
        with pytest.raises(error, match=text):
            dt.evaluate(model, *arguments)
    unbuilt = keras.Sequential([layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
    with pytest.raises(ValueError, match="has no weights yet, so each process would make its own"):
        dt.evaluate(unbuilt, X, Y)
