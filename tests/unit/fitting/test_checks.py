"""What ``fit`` refuses before anything starts."""

from __future__ import annotations

import threading

import dask
import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import torch
from keras import layers
from sklearn.linear_model import Ridge

import dask_train as dt
from dask_train.collections.partition.part import part
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.refusals import check_served
from dask_train.inputs.making import Several, columns_for, input_data

X, Y = np.zeros((40, 4), "f4"), np.zeros(40, "i8")


def made(loss="sparse_categorical_crossentropy", units=3, **compiled):
    model = keras.Sequential([layers.Input((4,)), layers.Dense(units, activation="softmax")])
    model.compile("sgd", loss, **compiled)
    return model


def uncompiled():
    return keras.Sequential([layers.Input((4,)), layers.Dense(3)])


def optimized(*, scaled=False, built=True, **settings):
    optimizer = keras.optimizers.SGD(**settings)
    model = keras.Sequential([*([layers.Input((4,))] if built else []), layers.Dense(3)])
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, "mse")
    return model


class Locked(keras.layers.Layer):
    """Holds what can't be sent."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def call(self, inputs):
        return inputs


def locked():
    model = keras.Sequential([layers.Input((4,)), Locked(), layers.Dense(3)])
    model.compile("sgd", "mse")
    return model


class LockedCallback(keras.callbacks.Callback):
    """Holds what can't be sent."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Started(Exception):  # noqa: N818 - an event
    """What was passed has been taken."""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    """Nothing may be started."""
    from dask_train.fitting import start as fitting

    def refuse(*_, **__):
        raise Started

    monkeypatch.setattr(fitting, "client_or_local", lambda *_: "a client")
    for count in ("default_workers", "default_fit_workers"):
        monkeypatch.setattr(fitting, count, lambda *_: 2)
    monkeypatch.setattr(fitting, "launch", refuse)


class Stepped(keras.Model):
    """Has a step of its own, and no ``call``, like keras.io's VAE; the inner model makes its weights there."""

    def __init__(self, inner, **settings):
        super().__init__(**settings)
        self.inner = inner

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self.inner(data)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


def stepped():
    model = Stepped(keras.Sequential([layers.Dense(2), layers.Dense(1)]))
    model.compile("adam")
    return model


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"model": lambda: 3}, TypeError, "model is a int; pass a compiled keras.Model"),
        (
            {"model": Ridge},
            TypeError,
            "model is a Ridge; .* dask_train.sklearn.Incremental trains what has",
        ),
        ({"model": uncompiled}, ValueError, r"is not compiled. Call model.compile\("),
        ({"model": lambda: made(jit_compile=True)}, ValueError, "Compile it with jit_compile=False"),
        ({"model": locked}, TypeError, "can't be sent: .*lock"),
        ({"x": None}, ValueError, "there are no inputs"),
        ({"x": X[:0], "y": Y[:0]}, ValueError, "has no rows"),
        ({"x": X[:, :3]}, ValueError, r"does not fit model .* rows of float32 \(3,\) and rows of int64 numbers"),
        ({"x": da.zeros((40, 5), chunks=10)}, ValueError, r"does not fit model .* rows of float64 \(5,\)"),
        ({"model": lambda: made("mse", 3), "y": np.zeros((40, 2))}, ValueError, r"shape \(2,\), and .* \(3,\)"),
        ({"y": Y[:39]}, ValueError, "have 40, 39 rows"),
        ({"y": None}, ValueError, "There are no targets, .* Pass y, or label= with a frame"),
        ({"x": (X, Y), "y": None}, ValueError, "2 arrays are 2 inputs there. Pass y"),
        ({"validation_data": X}, ValueError, r"There are no targets, .* Pass validation_data=\(X, y\)"),
        (
            {"model": stepped, "y": None, "validation_data": (X, Y)},
            ValueError,
            r"validation data does not fit .* `call\(\)`",
        ),
        ({"y": Y + 3}, ValueError, "labels go from 3 to 3, and the model tells 3 classes apart, 0 to 2"),
        ({"y": Y - 1}, ValueError, "labels go from -1 to -1"),
        ({"batch_size": 1}, ValueError, "batch_size=1 is the global batch, and 2 workers share it"),
        ({"batch_size": 0}, ValueError, "batch_size is 0; it is a whole number of at least 1"),
        ({"batch_size": np.int64(8)}, ValueError, r"batch_size is np.int64\(8\); .* Pass int\(batch_size\)"),
        ({"workers": -1}, ValueError, "workers is -1; it is a whole number"),
        ({"workers": 0, "ps": 1}, ValueError, "ps=1 with workers=0, which trains in this process"),
        ({"workers": 0, "wait": False}, ValueError, "wait=False would return before it is over"),
        ({"epochs": 1.5}, ValueError, "epochs is 1.5"),
        ({"initial_epoch": 4}, ValueError, "initial_epoch is 4; it is a whole number from 0 to epochs=1"),
        ({"steps_per_epoch": 0}, ValueError, "steps_per_epoch is 0"),
        ({"shuffle": "batch"}, ValueError, "shuffle is 'batch'; it is True, False or 'partition'"),
        ({"seed": "a"}, ValueError, "seed is 'a'"),
        ({"validation_freq": 0}, ValueError, "validation_freq is 0"),
        ({"validation_split": 1.0}, ValueError, "validation_split is 1.0; it is a fraction"),
        ({"validation_split": 0.999}, ValueError, "leaves one side without rows"),
        ({"validation_data": (X[:, :2], Y)}, ValueError, "The validation data does not fit"),
        ({"callbacks": [print]}, TypeError, "callbacks has a builtin_function_or_method; pass instances of"),
        ({"callbacks": [LockedCallback()]}, TypeError, "Callback LockedCallback can't be sent .* lock"),
        ({"callbacks": [[keras.callbacks.BackupAndRestore("a")]]}, ValueError, "BackupAndRestore .* Pass checkpoint="),
        ({"class_weight": [1, 2]}, TypeError, "class_weight is a list; pass a dict"),
        ({"class_weight": {0: 1.0}, "sample_weight": X[:, 0]}, ValueError, "can't both be given"),
        ({"class_weight": {"a": 1.0}}, ValueError, "class_weight has 'a'"),
        ({"class_weight": {0: "a"}}, ValueError, "class_weight has 0: 'a'"),
        ({"class_weight": {0.5: 1.0}}, ValueError, "class_weight has 0.5: 1.0; it is a dict of whole class numbers"),
        ({"class_weight": {0: float("nan")}}, ValueError, "class_weight has 0: nan"),
        ({"class_weight": {0: None}}, ValueError, "class_weight has 0: None"),
        ({"class_weight": {0: 1.0}, "y": [Y]}, ValueError, "class_weight is for models with a single output"),
        ({"class_weight": {0: 1.0}, "y": np.zeros((40, 2, 3))}, ValueError, r"rows have targets of shape \(2, 3\)"),
        ({"class_weight": {0: 1.0}, "y": None}, ValueError, "there are no targets"),
        ({"model": lambda: made(steps_per_execution="auto")}, ValueError, "steps_per_execution='auto'; it is a whole"),
        ({"model": lambda: made(steps_per_execution=0)}, ValueError, "steps_per_execution=0; it is a whole"),
        ({"resume": True}, ValueError, "say where they are kept: checkpoint="),
        ({"checkpoint": ""}, ValueError, "checkpoint is ''; pass a folder or a URL"),
        ({"resume": "yes", "checkpoint": "a"}, TypeError, "resume is 'yes'; it is True or False, or 'new_learn"),
        (
            {"checkpoint": dt.Checkpoint("a", best="val_loss")},
            ValueError,
            "known by 'val_loss', which nothing computes: pass validation_data",
        ),
        (
            {"checkpoint": dt.Checkpoint("a", best="loss"), "ps": 1},
            ValueError,
            "known by 'loss', and with ps=1 the weights change while they are scored",
        ),
        (
            {"checkpoint": dt.Checkpoint("a", best="val_loss"), "ps": 1, "scorer": 1, "validation_split": 0.5},
            ValueError,
            "known by 'val_loss', and with ps=1 the weights change while they are scored, by a scorer as well",
        ),
        ({"resume": "new_learning_rate"}, ValueError, "resume='new_learning_rate' resumes from a checkpoint; say"),
        ({"wait": "no"}, TypeError, "wait is 'no'; it is True or False"),
        ({"verbose": "loud"}, ValueError, "verbose is 'loud'; it is 'auto', 0, 1 or 2"),
        ({"verbose": 3}, ValueError, "verbose is 3"),
        ({"name": "../../x"}, ValueError, r"name is '\.\./\.\./x', which can't begin a run's name"),
        ({"resources": "GPU"}, TypeError, "resources is 'GPU'; pass a dict"),
        ({"resources": {"GPU": float("inf")}}, ValueError, "GPU=inf; an amount is a finite number"),
        ({"resources": {"worker": {"GPU": "1"}}}, ValueError, "GPU='1'"),
        ({"resources": {"ps": {"GPU": 1}}}, ValueError, "names role 'ps', which the run does not have"),
        ({"stop": "nonsense <"}, ValueError, "is no rule to stop by"),
        ({"stop": "val_loss < 1"}, ValueError, "stop looks at val_loss, which nothing computes: pass validation_data"),
        ({"stop": [dt.Patience("val_acc", 2)]}, ValueError, "stop looks at val_acc, which nothing computes"),
        ({"ps": -1}, ValueError, "ps is -1; it is a whole number from 0"),
        ({"scorer": 1}, ValueError, "Pass scorer=1 with validation_data"),
        (
            {"ps": 2, "model": lambda: optimized(scaled=True)},
            ValueError,
            "several servers share them. Use ps=1, or compile",
        ),
        ({"ps": 2, "model": lambda: optimized(global_clipnorm=1.0)}, ValueError, "Use ps=1, or clipnorm"),
        ({"ps": 9}, ValueError, "ps=9 servers share . trainable weights of model .*: some would have none"),
        (
            {"ps": 1, "callbacks": [keras.callbacks.SwapEMAWeights()]},
            ValueError,
            "other workers train on meanwhile. Leave it out",
        ),
        ({"unknown": 1}, TypeError, "takes no unknown= for a model of type Sequential"),
    ],
)
def test_what_can_not_be(arguments, error, match):
    arguments = {"model": made, "x": X, "y": Y, **arguments}
    model = arguments.pop("model")()
    with pytest.raises(error, match=f"(?s){match}"):
        dt.fit(model, arguments.pop("x"), arguments.pop("y"), **arguments)


def looked_up():
    model = keras.Sequential(
        [
            layers.Input((4,), dtype="int64"),
            layers.IntegerLookup(vocabulary=[3, 5], num_oov_indices=0),
            layers.Embedding(3, 2),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model


def of_other_width(y, predicted):
    return keras.ops.mean(keras.ops.square(y - predicted[:, :2]) * keras.ops.exp(-predicted[:, 2:]), -1)


def of_pairs(y, predicted):
    y = keras.ops.squeeze(y)
    same = keras.ops.cast(y[:, None] == y[None], "float32")
    return keras.ops.mean(keras.ops.square(same - predicted @ keras.ops.transpose(predicted)))


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        (stepped, X, None),
        (looked_up, X.astype("i8") + 3, Y),
        (lambda: made(of_other_width, 4), X, X[:, :2]),
        (lambda: made(of_pairs), X, Y[:, None]),
        (lambda: made(run_eagerly=True), X, Y),
    ],
)
def test_what_keras_trains_is_taken(model, x, y):
    """What only values tell is no reason to refuse: nothing is computed, least of all with made-up rows."""
    with pytest.raises(Started):
        dt.fit(model(), x, y)


class Named(keras.Model):
    """Looks its labels up itself, and says nothing of them in its loss."""

    def train_step(self, data):
        x, y = data
        return super().train_step((x, tf.where(y == "a", 0, 1)))


def named():
    inputs = layers.Input((4,))
    model = Named(inputs, layers.Dense(3, activation="softmax")(inputs))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


@pytest.mark.parametrize("dtype", ["U1", object])
def test_labels_of_a_step_of_the_users_own_are_its_own_affair(dtype):
    with pytest.raises(Started):
        dt.fit(named(), X, WORDS.astype(dtype))


def test_a_step_of_the_users_own_makes_the_weights():
    model = stepped()
    with pytest.raises(Started):
        dt.fit(model, X)
    assert [weight.shape for weight in model.weights] == [(4, 2), (2,), (2, 1), (1,)]
    assert model.optimizer.iterations == 0


WORDS = np.array(["a", "b"] * 20)


def of_words():
    """A number and a text."""
    inputs = {"n": layers.Input((1,), name="n"), "t": layers.Input((1,), dtype="string", name="t")}
    code = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(inputs["t"])
    model = keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([inputs["n"], code])))
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("kind", ["O", "U", "S"])
def test_text_is_taken_where_the_model_takes_it(kind):
    words, ones = WORDS.astype(kind), np.ones(40)
    if kind == "S":  # bytes of a fixed length
        words = words.reshape(-1, 1)
    with pytest.raises(Started):
        dt.fit(of_words(), {"n": ones, "t": words}, ones)
    for model, given, match in (
        (of_words(), ({"n": words, "t": words}, ones), "rows of text .*Its input 'n' is float32, not text"),
        (made("mse"), (np.stack([words] * 4, 1).reshape(40, 4), ones), "Its inputs are float32, not text"),
        (of_words(), ({"n": ones, "t": words}, words), "Its targets are text; make numbers of them, classes with"),
        (of_words(), ({"n": ones, "t": words}, ones, words.ravel()), "Its sample weights are text"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"(?s){match}"):
            dt.fit(model, *given[:2], sample_weight=given[2] if given[2:] else None)


TABLE = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4], "c": [0.5, 0.5], "y": [0, 1], "z": [1.0, 0.0], "w": [1.0, 2.0]})
FRAME = dd.from_pandas(TABLE, npartitions=1)


def of_dicts(*names, outputs=("one",)):
    """Inputs by name, and outputs by name."""
    inputs = {name: layers.Input((1,), name=name) for name in names}
    joined = layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, [layers.Dense(1, name=name)(joined) for name in outputs])
    model.compile("sgd", ["mse"] * len(outputs))
    return model


def given(what="data", **named):
    """What a batch of the table is to Keras."""
    x, y, sample_weight = (named.pop(name, None) for name in ("x", "y", "sample_weight"))
    data = input_data(what, FRAME if x is None else x, y, sample_weight, **named)
    parts = dask.compute(*data.source(what).delayed_parts(part, list), scheduler="sync")
    dtypes = [column.dtype for column in data.columns]
    assert dtypes in ([], [array.dtype.str for array in parts[0]])
    return tuple(
        keras.tree.map_structure(lambda array: array if array is None else array.tolist(), each)
        for each in data.columns.pack(parts[0])
    )


A, B, C, LATE, Z, W = ([*TABLE[name]] for name in TABLE)


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ({"features": "a", "label": "y"}, (A, LATE, None)),
        ({"features": ["a", "c"]}, ([[1.0, 0.5], [2.0, 0.5]], None, None)),
        (
            {"features": {"one": "a", "two": ["b", "c"]}, "label": "y"},
            ({"one": A, "two": [[3, 0.5], [4, 0.5]]}, LATE, None),
        ),
        ({"features": "a", "label": {"p": "y", "q": "z"}, "sample_weight": "w"}, (A, {"p": LATE, "q": Z}, W)),
        (
            {"features": ["a"], "label": ["y", "z"], "sample_weight": {"p": "w"}},
            ([[1.0], [2.0]], [[0, 1], [1, 0]], {"p": W}),
        ),
        ({"features": "a", "label": Several(["y", "z"])}, (A, [LATE, Z], None)),
        ({"x": FRAME[["a", "y", "w"]], "label": "y", "sample_weight": "w"}, ([[1.0], [2.0]], LATE, W)),
        ({"x": FRAME[["a", "y", "w"]], "label": "y"}, ([[1.0, 1.0], [2.0, 2.0]], LATE, None)),
        ({"x": {"a": np.ones(2), "y": np.zeros(2)}, "label": "y"}, ([1, 1], [0, 0], None)),
        ({"x": [dask.delayed(TABLE)], "features": {"one": "a"}, "label": "y"}, ({"one": A}, LATE, None)),
        ({"x": TABLE, "features": {"one": "a"}, "label": "y"}, ({"one": A}, LATE, None)),
    ],
)
def test_columns_by_their_names(named, wanted):
    assert given(**named) == wanted


def test_columns_as_the_model_means_them():
    assert columns_for(of_dicts("a", "c"), FRAME, None, None, "y") == ({"a": "a", "c": "c"}, "y")
    assert columns_for(of_dicts("a", "c"), FRAME, None, ["c", "a"], "y") == ({"a": "a", "c": "c"}, "y")
    assert columns_for(of_dicts("a"), X, None, None, None) == (None, None)
    _, label = columns_for(of_dicts("a", outputs=("p", "q")), FRAME, None, None, ["y", "z"])
    assert isinstance(label, Several)
    assert columns_for(of_dicts("a"), FRAME, None, None, ["y", "z"])[1] == ["y", "z"], "a matrix"
    with pytest.raises(ValueError, match="names 3 columns, and the model has 2 outputs"):
        columns_for(of_dicts("a", outputs=("p", "q")), FRAME, None, None, ["y", "z", "a"])


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda: of_dicts("a", "c"), {"label": "y"}),
        (lambda: of_dicts("a", outputs=("p", "q")), {"label": ["y", "z"]}),
        (lambda: of_dicts("i", "j"), {"features": {"i": "a", "j": ["c"]}, "label": "y", "sample_weight": "w"}),
        (lambda: optimized(built=False), {"features": ["a", "b"], "label": ["y", "z", "w"]}),
    ],
)
def test_frames_are_taken(model, named):
    model = model()
    with pytest.raises(Started):
        dt.fit(model, FRAME, validation_data=TABLE, **named)
    assert model.built, "also one that had no weights yet"


@pytest.mark.parametrize(
    ("named", "match"),
    [
        ({"label": "y"}, "has no column 'other'"),
        ({"features": ["a"], "label": "y"}, r"does not fit model .* rows of float64 \(1,\)"),
        ({"features": {"a": "a"}, "label": "a"}, "'a' of data is the label and one of the features too"),
        ({"features": {"a": "a"}, "label": "y", "sample_weight": np.ones(2)}, "sample_weight='name'"),
    ],
)
def test_frames_that_do_not_fit(named, match):
    with pytest.raises(ValueError, match=f"(?s){match}"):
        dt.fit(of_dicts("a", "other"), FRAME, **named)


def test_a_frame_has_its_target_in_itself():
    frame = dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}), npartitions=1)
    with pytest.raises(ValueError, match="leave y and sample_weight out"):
        dt.fit(made(), frame, Y, features=["a"], label="b")
    with pytest.raises(ValueError, match="validation_split needs arrays whose number of rows is known"):
        dt.fit(made(), frame, features=["a"], label="b", validation_split=0.5)


def test_which_checkpoints_stay_and_which_is_the_best():
    for settings, match in (
        ({"keep": 0}, "keep is 0; pass a whole number of at least 1"),
        ({"best": ""}, "best is ''; pass the name of a score"),
        ({"best": "loss", "mode": "less"}, "mode is 'less'; it is 'auto', 'min' or 'max'"),
        ({"restore_best": True}, r"restore_best=True is of the best checkpoint; say by which score: best='val_loss'"),
        ({"mode": "max"}, "mode='max' is of the best checkpoint"),
    ):
        with pytest.raises(ValueError, match=match):
            dt.Checkpoint("here", **settings)
    for settings, match in (
        ({"best": "skill"}, "does not say whether less or more of it is better. Pass mode='min' or mode='max'"),
        ({"best": "loss", "restore_best": True}, r"In a function of dt\.train, session.load_checkpoint\(best=True\)"),
    ):
        with pytest.raises(ValueError, match=match):
            dt.train(print, checkpoint=dt.Checkpoint("here", **settings))


@pytest.mark.parametrize(("value", "match"), [("every_steps", "every_steps is 0"), ("every_s", "every_s is 0")])
def test_how_often_checkpoints_are_kept(value, match):
    with pytest.raises(ValueError, match=match):
        dt.Checkpoint("here", **{value: 0})


def test_servers_need_a_model_that_has_weights():
    with pytest.raises(ValueError, match="Build it first, or give it an Input, to use ps"):
        check_served(optimized(built=False), 1)
    check_served(optimized(built=False), 0)
    check_served(optimized(), 1)


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (
            lambda: keras.layers.BatchNormalization(synchronized=True),
            "synchronized=True, .* with ps= each worker takes",
        ),
        (lambda: keras.layers.LSTM(2, stateful=True, return_sequences=True), "is stateful: it carries a state for"),
    ],
    ids=["synchronized", "stateful"],
)
@pytest.mark.parametrize("ps", [0, 1])
def test_layers_that_need_all_rows_of_a_batch_are_for_one_worker(layer, match, ps):
    within = keras.Sequential([keras.Input(batch_shape=(4, 3, 2)), layer()])
    model = keras.Sequential([keras.Input(batch_shape=(4, 3, 2)), within, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    if ps or "stateful" in match:
        with pytest.raises(ValueError, match=match):
            fit_checks.check_together(model, 2, ps=ps)
    else:
        fit_checks.check_together(model, 2)
    fit_checks.check_together(model, 1, ps=ps)


@pytest.mark.parametrize(
    "verb",
    [
        lambda *data, **more: dt.fit(made(), *data, workers=1, **more),
        lambda *data, **more: dt.fit(
            torch.nn.Linear(2, 3), *data, loss=torch.nn.CrossEntropyLoss(), optimizer=torch.optim.SGD, **more
        ),
        lambda *data, **more: dt.search(lambda _: made(), *data, **more),
    ],
    ids=["keras", "torch", "search"],
)
def test_rows_to_validate_on_have_the_categories_of_the_data(verb):
    frame = pd.DataFrame({"a": np.ones(4), "b": np.ones(4), "kind": pd.Categorical(["u", "v", "w", "u"])})
    other = frame.assign(kind=frame["kind"].cat.rename_categories({"w": "x"}))
    with pytest.raises(ValueError, match="Column 'kind' of validation_data has 'x', and the model is fitted with"):
        verb(frame, features=["a", "b"], label="kind", validation_data=other)


def test_classes_of_a_label_are_told_with_their_numbers():
    frame = pd.DataFrame({"a": X[:, 0], "y": pd.Categorical(["no", "yes"] * 20)})
    with pytest.raises(ValueError, match="Of 'y' 'no' is 0, 'yes' is 1"):
        dt.fit(made(), frame, features=["a"], label="y", class_weight={"no": 1.0}, workers=0)
