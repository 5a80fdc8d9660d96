"""Text where a Keras model takes none."""

from __future__ import annotations

from typing import Any

import keras

from dask_train.compat.keras.layers import named_inputs

_CODES = "make codes of columns of text with .astype('category'), of a Dask frame with .cat.as_known()"


def check_text_inputs(model: Any, texts: Any) -> None:
    """Refuse text for inputs of numbers, which Keras would find only when it runs.

    Parameters
    ----------
    texts
        Whether each input is text, put together as the inputs are. Those of a subclassed model are its own affair.

    Raises
    ------
    TypeError
        Text is given where the model takes numbers.
    """
    inputs = getattr(model, "inputs", None) or ()
    dtypes = {keras.backend.standardize_dtype(each.dtype) for each in inputs}
    if dtypes and "string" not in dtypes and any(keras.tree.flatten(texts)):
        raise TypeError(f"Its inputs are {', '.join(sorted(dtypes))}, not text; {_CODES}")
    named = named_inputs(model)
    if not isinstance(named, dict) or not isinstance(texts, dict):
        return
    for name in named.keys() & {name for name, is_text in texts.items() if is_text is True}:
        dtype = keras.backend.standardize_dtype(getattr(named[name], "dtype", "string"))
        if dtype != "string":
            raise TypeError(f"Its input {name!r} is {dtype}, not text; {_CODES}")


def check_texts(model: Any, x: Any, y: Any, sample_weight: Any) -> None:
    """Refuse text where training needs numbers: each is put together as it is given, with whether it is text.

    Raises
    ------
    TypeError
        An input that takes numbers, a target or a weight is text.
    """
    check_text_inputs(model, x)
    for what, texts in (("targets", y), ("sample weights", sample_weight)):
        if any(keras.tree.flatten(texts)):
            raise TypeError(f"Its {what} are text; make numbers of them, classes with .astype('category') for instance")
