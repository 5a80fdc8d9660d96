"""What a FeatureSpace has made of its data, and its config leaves out, is told and made again."""

from __future__ import annotations

import json
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras
    import tensorflow as tf

from dask_train.keras_models.feature_spaces import made_late, make_late

FeatureSpace = keras.utils.FeatureSpace
DATA = {"kind": ["a", "b", "a"], "place": [1, 2, 3]}


def space(mode):
    features = {name: f"{'string' if name == 'kind' else 'integer'}_categorical" for name in DATA}
    return FeatureSpace(features, crosses=[("kind", "place")], crossing_dim=8, output_mode=mode)


@pytest.fixture(scope="module", params=["dict", "concat"])
def adapted(request):
    made = space(request.param)
    made.adapt(tf.data.Dataset.from_tensor_slices(DATA))
    return made


def sent(made):
    """What is told of it, as it travels."""
    return json.loads(json.dumps(made_late(made)))


def test_it_has_the_encoders_and_the_names_that_its_data_made(adapted):
    other = FeatureSpace.from_config(adapted.get_config())
    assert not other.one_hot_encoders
    make_late(other, sent(adapted))
    assert list(other.one_hot_encoders) == list(adapted.one_hot_encoders) == ["kind", "place", "kind_X_place"]
    for name, encoder in adapted.one_hot_encoders.items():
        assert other.one_hot_encoders[name].get_config() == encoder.get_config()
    assert (other.concat is None) == (adapted.concat is None) == (adapted.output_mode == "dict")
    assert other._crossed_features_names == adapted._crossed_features_names == ["kind_X_place"]
    assert other._preprocessed_features_names == adapted._preprocessed_features_names


def test_what_has_arrived_needs_no_data_and_can_be_sent_on(adapted):
    other = FeatureSpace.from_config(adapted.get_config())
    make_late(other, sent(adapted))
    assert (other._is_adapted, other._sublayers_built) == (True, True)
    assert sent(other) == sent(adapted)


def test_one_that_has_seen_no_data_and_other_layers_have_made_nothing():
    assert made_late(space("dict")) is None
    assert made_late(keras.layers.Dense(1)) is None
