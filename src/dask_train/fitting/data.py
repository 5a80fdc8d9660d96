"""What a fit trains on, and what it validates on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dask_train.collections.delayed import are_parts
from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.collections.source import OwnRows
from dask_train.data.sparse_rows import is_sparse
from dask_train.driver.settings import RunInputs
from dask_train.fitting.spec import VALIDATION
from dask_train.inputs.data import InputData, check_some_rows
from dask_train.inputs.making import input_data, names_columns


def rows_of(
    settings: Any, x: Any, y: Any, *, features: Any, label: Any, known: FrameSchema | None, missing: bool = False
) -> tuple[InputData, InputData | None]:
    """Return what is trained on, and what is validated on, of models that go through rows in batches.

    Parameters
    ----------
    settings
        Name the weights, and what is validated on if such models are.
    x, y
        As the user passed them.
    features, label
        Columns of frames, as the model means them.
    known
        What the model knows of columns.
    missing
        Whether categories of frames may be missing, whose codes are -1.

    Raises
    ------
    TypeError, ValueError
        They can't be put together.
    """
    named: dict[str, Any] = {"features": features, "label": label}
    # Of several frames it is not known which array has which column.
    missing = missing and all(map(is_frame, _frames_of(x, settings.validation_data)))
    data = input_data("data", x, y, settings.sample_weight, **named, like=Conformer(known, missing=missing))
    if not settings.validates:
        return data, None
    if settings.validation_data is None:
        return split_off(data, settings.validation_split)
    if are_parts(x) and data.schema is None:
        if features is None and (known is None or known.names is None):
            _check_is_delayed(settings.validation_data)
        targets, weights = list(names_in(label)), list(names_in(settings.sample_weight))
        # Only computing shows which categories their codes stand for.
        like = Conformer(known).shown_by("data", x[0], features, [*targets, *weights], targets)
    else:
        like = Conformer(data.schema or known, learns=False, missing=missing)
    return data, validation_of(settings.validation_data, features, label, settings.sample_weight, like)


def _frames_of(x: Any, validation_data: Any) -> list[Any]:
    """Return what has the features, of the data and of what is validated on."""
    if validation_data is None:
        return [x]
    return [x, validation_data[0] if _has_columns(validation_data) else validation_data]


def _check_is_delayed(validation_data: Any) -> None:
    """Refuse a frame to validate on beside delayed partitions of which nobody knows the order of the columns yet."""
    if is_frame(_frames_of(None, validation_data)[1]):
        raise ValueError(
            "validation_data is a frame, and the order of the columns of delayed partitions is not known before they "
            "are computed, so columns could be taken for others. Name them: features=['a', 'b']."
        )


def _has_columns(value: Any) -> bool:
    """Return whether a value to validate on is inputs, targets and weights, rather than data that has all of them."""
    return isinstance(value, tuple | list) and bool(value) and not are_parts(value)


def validation_of(
    value: Any, features: Any, label: Any, sample_weight: Any = None, like: Conformer | None = None
) -> InputData:
    """Return what ``validation_data=`` was given: inputs, targets and perhaps weights; a frame; partitions; a data set.

    A frame is read as the data is: ``sample_weight`` counts where it is the name of a column, and ``like`` makes its
    columns as those of the data are.
    """
    if _has_columns(value) and 2 <= len(value) <= 3:
        x, y, *weights = value
        return input_data("validation_data", x, y, *weights or [None], like=like, trains=False)
    weights_by_name = sample_weight if names_columns(sample_weight) else None
    columns: dict[str, Any] = {"features": features, "label": label}
    return input_data("validation_data", value, None, weights_by_name, **columns, like=like, trains=False)


def split_off(data: InputData, fraction: float) -> tuple[InputData, InputData]:
    """Split off the last ``fraction`` of the rows to validate on, as Keras splits arrays.

    Raises
    ------
    ValueError
        The number of rows is not known, or one side would have none.
    """
    if isinstance(data.value, OwnRows):
        drawn = f"train, test = files.split({fraction:g}), and pass validation_data=test"
        raise ValueError(
            "validation_split takes the last rows, and files that a wildcard finds are sorted by path. "
            + (
                f"Draw some in its place: {drawn}."
                if hasattr(data.value, "split")
                else "Pass other files to validate on."
            )
        )
    lengths = [
        len(column) if isinstance(column, np.ndarray) else getattr(column, "shape", (np.nan,))[0]
        for column in (data.value if isinstance(data.value, tuple) else ())
    ]
    if not lengths or not data.columns.are_known or any(not isinstance(length, int | np.integer) for length in lengths):
        raise ValueError(
            "validation_split needs arrays whose number of rows is known. "
            + (
                "Split the frame in its place: train, valid = frame.random_split([0.8, 0.2]) of Dask, and pass "
                "validation_data=valid."
                if is_frame(data.value)
                else "Pass validation_data, or call compute_chunk_sizes() on Dask arrays first."
            )
        )
    at = math.floor(lengths[0] * (1.0 - fraction))
    if not 0 < at < lengths[0]:
        raise ValueError(f"validation_split={fraction!r} of {lengths[0]} rows leaves one side without rows.")
    columns = [column.tocsr() if is_sparse(column) else column for column in data.value]  # some can't be sliced
    return (
        replace(data, value=tuple(column[:at] for column in columns)),
        replace(data, value=tuple(column[at:] for column in columns)),
    )


def check_same_classes(data: InputData, validation: InputData | None) -> None:
    """Check that labels of files to validate on mean what those of files to train on do.

    Raises
    ------
    ValueError
        They number other classes.
    """
    if validation is None or not isinstance(data.value, OwnRows) or not isinstance(validation.value, OwnRows):
        return
    known, validation_classes = data.value.classes, validation.value.classes
    if known != validation_classes:
        raise ValueError(
            f"The classes of validation_data are {_listed(validation_classes)}, and those of the data "
            f"{_listed(known)}, so the same number would mean two things. Pass classes=train.classes for both."
        )


def _listed(classes: tuple[str, ...] | None) -> str:
    return "none" if classes is None else ", ".join(map(repr, classes[:20]))


def run_inputs(data: InputData, validation: InputData | None) -> RunInputs:
    """Return the data of a fit as a run takes it: the workers', and what is validated on by its name.

    Raises
    ------
    ValueError
        There are no rows, or the labels of both mean different classes.
    """
    check_same_classes(data, validation)
    named = {} if validation is None else {VALIDATION: validation.source("validation_data", decodes=True)}
    check_some_rows("The data", source := data.source("data", decodes=True))
    return RunInputs(data={"worker": source}, datasets=named)
