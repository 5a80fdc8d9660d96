"""Check that embeddings have a row for each category of the columns that they look up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dask_train.collections.schema.category import CategoryColumn
from dask_train.compat.keras.layers import flatten_layers, named_inputs
from dask_train.inputs.data import InputData


def check_embeddings(model: Any, data: InputData) -> None:
    """Check that no code of a category lies beyond the rows of an embedding: an error of TensorFlow, and NaN on JAX.

    Embeddings are known where they take an input of the model as it is.

    Raises
    ------
    ValueError
        One does.
    """
    codes = data.codes
    if not codes or data.schema is None:
        return
    sizes = {each.name: len(each.categories) for each in data.schema.columns if isinstance(each, CategoryColumn)}
    for layer, number in _looked_up(model, data.columns.features):
        for _, name in codes.get(number, ()):
            if sizes[name] > layer.input_dim:
                raise ValueError(
                    f"Column {name!r} has {sizes[name]} categories, and the embedding {layer.name!r} has "
                    f"input_dim={layer.input_dim}, so it has no row for the last ones. Make it with "
                    f"input_dim=len(frame[{name!r}].cat.categories), which is {sizes[name]}, or more."
                )


def _looked_up(model: Any, features: Any) -> Iterator[tuple[Any, int]]:
    """Give embeddings that take inputs of a model, each with the number of the array that the input is."""
    import keras

    inputs = named_inputs(model)
    if inputs is None:
        inputs = (getattr(model, "inputs", None) or [None])[0]
    if isinstance(inputs, Mapping) and isinstance(features, Mapping):
        pairs = [(inputs[name], features[name]) for name in inputs if name in features]
    elif isinstance(inputs, list | tuple) and isinstance(features, list | tuple):
        pairs = list(zip(inputs, features, strict=False))
    else:
        (tensor,) = inputs if isinstance(inputs, list | tuple) and len(inputs) == 1 else (inputs,)
        pairs = [(tensor, features)]
    for layer in flatten_layers(model):
        if not isinstance(layer, keras.layers.Embedding):
            continue
        try:
            layer_input = layer.input
        except (AttributeError, ValueError):  # it was never called on a symbolic tensor, or on several
            continue
        for tensor, number in pairs:
            if tensor is layer_input and isinstance(number, int):
                yield layer, number
