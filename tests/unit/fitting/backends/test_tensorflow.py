"""What replicas ask of TensorFlow: values come through as they are, and optimizers apply what Keras' own do."""

from __future__ import annotations

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from dask_train.data.buffers import empty_bytes  # noqa: E402
from dask_train.data.columns import Column  # noqa: E402
from dask_train.fitting.backends import backend_of  # noqa: E402
from dask_train.fitting.backends.base import Slices  # noqa: E402

BACKEND = backend_of("tensorflow")


def graph(function):
    return tf.function(function, autograph=False)


@pytest.mark.parametrize("in_graph", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "bool"])
def test_values_come_through_in_every_dtype(in_graph, dtype):
    tensors = [tf.cast([[1.0, 0.0]], dtype), tf.zeros((0, 3), dtype)]

    def step(*given):
        return BACKEND.on_host(lambda arrays: [np.array(array) for array in arrays], given)

    found = (graph(step) if in_graph else step)(*tensors)
    for one, other in zip(found, tensors, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    (alone,) = BACKEND.on_host(lambda arrays: [arrays[0]], tensors[:1])
    np.testing.assert_array_equal(alone, tensors[0])
    assert BACKEND.on_host(lambda arrays: pytest.fail("nothing is asked"), []) == []


@pytest.mark.parametrize("in_graph", [True, False])
def test_what_is_exchanged_is_a_copy_in_the_variable_s_dtype_that_the_step_sees(in_graph):
    variables = [tf.Variable([0.0, 0.0]), tf.Variable([[0]], dtype=tf.int64), tf.Variable(tf.zeros(2, tf.bfloat16))]
    sent = [np.array([1.5, 2.5]), np.array([[7]], np.int32), np.array([0.5, 3.0], "f4")]

    def step(given):
        BACKEND.exchanged(lambda arrays: [arrays[0][0] * value for value in sent], [given], variables)
        return variables[0] + 1.0

    found = (graph(step) if in_graph else step)(tf.constant([2]))
    for value in sent:
        value[...] = 0
    np.testing.assert_array_equal(found, [4.0, 6.0])
    assert [variable.numpy().astype(float).tolist() for variable in variables] == [[3, 5], [[14]], [1, 6]]


def test_values_of_other_dtypes_are_assigned():
    variables = [tf.Variable([0.0, 0.0]), tf.Variable(tf.zeros(2, tf.float16)), tf.Variable(0, dtype=tf.int64)]
    BACKEND.assigning(variables)([np.array([1.0, 2.0]), np.array([0.5, 3.0], "f4"), np.array(5, np.int32)])
    assert [variable.numpy().tolist() for variable in variables] == [[1.0, 2.0], [0.5, 3.0], 5]


def weights():
    return [keras.Variable(np.ones((4, 2))), keras.Variable(np.zeros(3)), keras.Variable(np.ones((5, 2)))]


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=1.0),
    ],
    ids=["averaged", "clipped"],
)
def test_a_server_applies_what_keras_does(make):
    """Gradients that lie in arrays, and those of rows of a table, some of which come twice."""
    mine, wanted = weights(), weights()
    optimizer, other = make(), make()
    optimizer.build(mine)
    other.build(wanted)
    arrays = [empty_bytes(8 * 4).view("f4").reshape(4, 2), empty_bytes(3 * 4).view("f4"), None]
    apply = BACKEND.applying(optimizer, [one.value for one in mine], arrays)
    rows, values = np.array([4, 0, 4], np.int32), np.arange(6.0).reshape(3, 2)
    for step in range(3):
        for number, array in enumerate(arrays[:2]):
            array[...] = step - number - 1.5
        apply([(rows, values + step)])
        slices = tf.IndexedSlices(tf.constant(values + step, tf.float32), tf.constant(rows), tf.constant([5, 2]))
        other.apply_gradients(zip([*map(tf.constant, arrays[:2]), slices], wanted, strict=True))
    for one, another in zip([*mine, *optimizer.variables], [*wanted, *other.variables], strict=True):
        np.testing.assert_allclose(one.value, another.value, rtol=1e-6, err_msg=one.path)


def test_a_step_of_which_a_server_has_no_weights_counts():
    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5))
    optimizer.build([])
    apply = BACKEND.applying(optimizer, [], [])
    for _ in range(2):
        apply([])
    assert (int(optimizer.iterations), float(optimizer.learning_rate)) == (2, 0.25)


def test_slices_are_put_together_again():
    like = tf.IndexedSlices(tf.zeros((1, 2)), tf.constant([0], tf.int64), tf.constant([5, 2]))
    pieces = [
        Slices(tf.constant([1, 4]), tf.constant([[1.0, 2.0], [3.0, 4.0]]), alike=None),
        Slices(tf.constant([4]), tf.constant([[10.0, 10.0]]), alike=None),
    ]
    dense = [[0, 0], [1, 2], [0, 0], [0, 0], [13, 14]]
    found = BACKEND.sparse(pieces, like)
    assert found.indices.dtype == tf.int64
    np.testing.assert_array_equal(tf.convert_to_tensor(found), dense)
    np.testing.assert_array_equal(tf.convert_to_tensor(BACKEND.sparse(pieces[:1], like))[4], [3, 4])
    parts = BACKEND.parts_of(found, tf.float64)
    assert [part.dtype for part in parts] == [tf.int64, tf.float64]
    assert len(BACKEND.parts_of(tf.zeros(2), tf.float64)) == 1
    with pytest.raises(ValueError, match="There is no gradient of 'table' on this worker, and a sparse one on another"):
        BACKEND.sparse(pieces, keras.Variable(np.zeros((5, 2)), name="table"))


def test_a_step_is_one_graph_for_any_number_of_rows_and_none_where_it_runs_eagerly():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    traced = []

    def step(batch):
        traced.append(tf.executing_eagerly())
        return {"sum": tf.reduce_sum(batch[0]), "rows": tf.shape(batch[0])[0]}

    model.compile("sgd", "mse")
    batches = [(tf.ones((rows, 2)),) for rows in (4, 1, 3)]
    run = BACKEND.compiled(step, model, batches[0])
    assert [int(run(batch)["rows"]) for batch in batches] == [4, 1, 3]
    assert traced == [False]
    model.compile("sgd", "mse", run_eagerly=True)
    assert float(BACKEND.compiled(step, model, batches[0])(batches[2])["sum"]) == 6
    assert traced == [False, True]
    model.compile("sgd", "mse", jit_compile=True)
    assert "compiled with jit_compile=True" in BACKEND.refusal(model)


def test_columns_are_seen_by_their_shapes_and_graphs_are_forgotten():
    from tensorflow.python.framework import ops

    seen, known = [], set(ops.gradient_registry._registry)

    @tf.custom_gradient
    def own(x):
        return x, lambda gradient: gradient

    def function(columns):
        seen.extend((column.shape.as_list(), column.dtype) for column in columns)
        return own(columns[1])

    columns = [Column(dtype="<i2", row_shape=(3,)), Column(dtype="<f8", row_shape=())]
    text = Column(dtype="<U5", row_shape=())
    BACKEND.traced(function, [*columns, text])
    assert seen == [([None, 3], tf.int16), ([None], tf.float64), ([None], tf.string)]
    assert set(ops.gradient_registry._registry) == known
    with pytest.raises(ZeroDivisionError):
        BACKEND.traced(lambda _: 1 / 0, columns)


def test_floats_are_in_keras_precision_and_nothing_else_is_touched():
    assert BACKEND.as_floatx(tf.zeros(2, tf.float64), "float32").dtype == tf.float32
    for other in (tf.zeros(2, tf.int64), tf.constant(["a"]), tf.zeros(2)):
        assert BACKEND.as_floatx(other, "float32") is other
    assert list(BACKEND.counted(3).as_numpy_iterator()) == [0, 1, 2]


def test_values_by_row_are_told_from_others():
    found = {}

    @tf.function(input_signature=[tf.TensorSpec((None, 2))], autograph=False)
    def step(x):
        by_row = tf.reduce_sum(x, axis=1)
        found["graph"] = [BACKEND.is_by_row(loss, 2) for loss in (by_row, tf.reduce_sum(x), tf.reduce_sum(x, axis=0))]
        return x

    step(tf.ones((3, 2)))
    assert found["graph"] == [True, False, False]
    assert [BACKEND.is_by_row(tf.zeros(shape), 3) for shape in ((3,), (), (2,))] == [True, False, False]
