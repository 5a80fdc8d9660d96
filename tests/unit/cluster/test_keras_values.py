"""Keras models as values of Dask: how they are pickled, measured and named."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from dask.sizeof import sizeof
from dask.tokenize import tokenize
from distributed.protocol import deserialize, serialize

from dask_train.cluster import keras_values

keras_values.register()


@pytest.fixture(scope="module")
def trained():
    """A model whose optimizer has made a step."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="last")], name="net")
    model.compile(keras.optimizers.Adam(0.1), loss="mse")
    model.train_on_batch(np.ones((4, 2)), np.ones((4, 1)))
    return model


def assert_same(one, other):
    for a, b in zip(
        [*one.variables, *one.optimizer.variables], [*other.variables, *other.optimizer.variables], strict=True
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=a.path)


@pytest.mark.parametrize(
    "way", [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy], ids=["pickle", "copy"]
)
def test_a_copy_has_the_state_of_its_optimizer_and_is_its_own(trained, way):
    other = way(trained)
    assert_same(other, trained)
    assert int(other.optimizer.iterations.assign_add(1)) == 2
    assert int(trained.optimizer.iterations) == 1


def test_dask_sends_arrays_as_frames_of_their_own(trained):
    for value, find in ((trained, lambda found: found), ({"a": [1, trained]}, lambda found: found["a"][1])):
        header, frames = serialize(value)
        assert len(frames) > len(trained.variables)
        assert_same(find(deserialize(header, frames)), trained)


def test_its_size_is_that_of_its_variables(trained):
    variables = [*trained.variables, *trained.optimizer.variables]
    assert sizeof(trained) == sum(np.asarray(variable).nbytes for variable in variables)


def test_its_token_tells_what_it_holds(trained):
    model = copy.deepcopy(trained)
    token = tokenize(model)
    assert tokenize(model) == token
    weights = model.get_weights()
    model.set_weights([weight + 1 for weight in weights])
    assert tokenize(model) != token
    model.set_weights(weights)
    assert tokenize(model) == token
    model.optimizer.iterations.assign_add(1)
    assert tokenize(model) != token


def test_a_model_that_has_lost_what_it_trained_can_still_be_sent(trained, monkeypatch):
    asked = []
    monkeypatch.setattr("dask_train.keras_models.state.has_lost_what_it_trained", lambda model: asked.append(1) or True)
    other = pickle.loads(pickle.dumps(trained))
    assert asked == [1]
    np.testing.assert_array_equal(other.get_weights()[0], trained.get_weights()[0])
    assert int(other.optimizer.iterations) == 0


def test_keras_may_come_later_and_is_not_imported_for_it(tmp_path):
    (tmp_path / "keras.py").write_text("class Model: pass")
    program = """
        import sys
        from dask_train.cluster import keras_values
        keras_values.register()
        keras_values.register()
        assert "keras" not in sys.modules
        import keras
        from dask.sizeof import sizeof
        from dask.tokenize import normalize_token
        from distributed.protocol.serialize import dask_serialize
        assert keras.Model.__reduce__ is keras_values._reduce
        assert sizeof.dispatch(keras.Model) is keras_values._size_bytes
        assert normalize_token.dispatch(keras.Model) is keras_values._token
        """
    sys_path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    command = [sys.executable, "-c", sys_path + textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
