"""The layers that Keras' FeatureSpace makes when it has seen data, and that its config leaves out."""

from __future__ import annotations

from typing import Any

import keras

from dask_train.compat.keras.layers import feature_names, is_adapted, set_adapted, unlock


def made_late(layer: Any) -> dict[str, Any] | None:
    """Return what a FeatureSpace has made of its data: encoders by feature, and how they are put together."""
    if not isinstance(layer, keras.utils.FeatureSpace) or not is_adapted(layer):
        return None
    serialize = keras.saving.serialize_keras_object
    return {
        "encoders": {name: serialize(encoder) for name, encoder in layer.one_hot_encoders.items()},
        "concat": None if layer.concat is None else serialize(layer.concat),
        "names": feature_names(layer),
    }


def make_late(space: Any, state: dict[str, Any]) -> None:
    """Give a FeatureSpace that was made from its config what :func:`made_late` returned."""
    make = keras.saving.deserialize_keras_object
    unlock(space)
    space.one_hot_encoders = {name: make(config) for name, config in state["encoders"].items()}
    space.concat = None if state["concat"] is None else make(state["concat"])
    set_adapted(space, state["names"])
