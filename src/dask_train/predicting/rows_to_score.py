"""Rows of estimators and boosters that are scored: a delayed partition each, with features, targets and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask import delayed

from dask_train.collections.bags import BagRows
from dask_train.collections.blocks import delayed_blocks, with_whole_rows
from dask_train.collections.frames import delayed_pieces, in_order, in_own_order
from dask_train.collections.partition.form import chosen, is_frame, is_name, picks_of
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.inputs.making import input_data, of_names
from dask_train.inputs.published import in_shared_memory
from dask_train.predicting.bags import as_rows
from dask_train.predicting.inputs import as_known, of_bag
from dask_train.predicting.model import Predictor
from dask_train.shared_data.segments import segments_in
from dask_train.spelling import named, passed

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsToScore:
    """Rows of a model that takes them as they are.

    Attributes
    ----------
    parts
        A delayed frame, or a list of features, targets and perhaps weights, for each partition.
    lengths
        Rows of each partition of arrays, where they are known.
    features, label, weight
        Columns of a frame.
    is_weighted
        Whether rows have weights.
    """

    parts: list[Any]
    lengths: Sequence[int] | None
    features: Any
    label: Any
    weight: Any
    is_weighted: bool


def rows_to_score(
    x: Any,
    y: Any,
    sample_weight: Any,
    features: Any,
    label: Any,
    *,
    known: FrameSchema | None,
    client: Client | None,
    predictor: Predictor,
) -> RowsToScore:
    """Return the rows of an evaluation of an estimator or a booster; nothing is computed but a first row of a bag.

    Parameters
    ----------
    x, y, sample_weight, features, label
        As :func:`~dask_train.evaluate` takes them; files as Dask arrays.
    known
        What the model knows of the columns of frames.
    client
        Whose Dask workers compute the first row of a bag.
    predictor
        The model.

    Raises
    ------
    TypeError, ValueError
        There are no targets, or columns are others than those that the model was fitted with.
    """
    x, y, sample_weight, features, label = _opened(as_rows("x", x, client), y, sample_weight, features, label, known)
    label = label_for(known, x, y, label)
    if is_frame(x):
        picks_of(named("x"), features, label)  # refuses several labels, and one among the features
    num_features = predictor.value.num_features
    if known is not None and known.features is not None and is_frame(x):
        num_features = len(known.columns)  # of dask_train.linear_model fewer than coefficients
    weight = sample_weight if is_name(sample_weight) else None
    x, features = as_known(x, features, known, others=[label, weight], finds_categories=predictor.finds_categories)
    parts = _parts_of(x, y, sample_weight, features, label, num_features=num_features)
    return RowsToScore(
        parts=parts,
        lengths=lengths_of(x, len(parts)),
        features=features,
        label=label,
        weight=weight,
        is_weighted=sample_weight is not None,
    )


def label_for(known: FrameSchema | None, x: Any, y: Any, label: Any) -> Any:
    """Return the label that is given; of a frame without targets the column that the model was fitted with.

    Raises
    ------
    ValueError
        The frame lacks that column.
    """
    if label is not None or y is not None or known is None or not is_frame(x):
        return label
    targets = [column.name for column in known.targets]
    if len(targets) != 1:
        return None
    if targets[0] not in x.columns:
        raise ValueError(
            f"x has no column {targets[0]!r}, which the model was fitted to predict. Pass a frame with it, y=, or "
            "label= with the name of another column."
        )
    return targets[0]


def _opened(
    x: Any, y: Any, sample_weight: Any, features: Any, label: Any, known: FrameSchema | None
) -> tuple[Any, Any, Any, Any, Any]:
    """Return arrays in place of a data set of ``get_dataset``, and of a bag a frame, or arrays; others as they are.

    Raises
    ------
    TypeError, ValueError
        It is not a matrix of features and a column of targets, or those of other columns than the model was fitted
        with; or a bag has no such columns.
    """
    if isinstance(x, BagRows):
        return _opened_bag(x, y, sample_weight, features, label)
    if y is not None or segments_in(x) is None:
        return x, y, sample_weight, features, label
    like = Conformer(known, coded=False)
    data = input_data("data", x, None, sample_weight, features=features, label=label, like=like)
    places = data.columns.places().values()
    if data.columns.labels is None or not all(place is None or isinstance(place, int) for place in places):
        raise ValueError(
            "To score an estimator, a data set has to be a matrix of features and a column of targets, and perhaps one "
            "of weights. Publish (X, y)."
        )
    return *in_shared_memory(data), None, None


def _opened_bag(x: BagRows, y: Any, sample_weight: Any, features: Any, label: Any) -> tuple[Any, Any, Any, Any, Any]:
    if y is not None or not is_name(sample_weight):
        raise ValueError(
            f"{named('x')} is a bag, whose rows have targets and weights with them: name those, {passed('label')} and "
            f"{passed('sample_weight')}, and leave y out."
        )
    names = list(names_in(features)) or [name for name in x.frame.columns if name not in (label, sample_weight)]
    if label is None or not x.holds_arrays(names):
        return x.frame, y, sample_weight, features, label
    like = Conformer(None, coded=False)
    return *of_bag(x, of_names(named("x"), x.frame, features, label, sample_weight, like)), None, None


def _parts_of(
    x: Any, y: Any, sample_weight: Any, features: Any, label: Any, *, num_features: int | None = None
) -> list[Any]:
    """Return a delayed frame, or a list of arrays, for each partition; for models that take rows as they are.

    Parameters
    ----------
    num_features
        How many the model takes, where it tells.

    Raises
    ------
    TypeError, ValueError
        There are no targets, columns are not named, or the model takes another number of features.
    """
    if is_frame(x):
        return _parts_of_frame(x, y, sample_weight, features, label, num_features)
    if y is None:
        raise ValueError("There are no targets. Pass y, or label= with a frame.")
    for what, value in (("x", x), ("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            with_whole_rows(what, [value])
    arrays = with_whole_rows("data", [x, y] if sample_weight is None else [x, y, sample_weight])
    if arrays[0].ndim == 2:
        _check_width(arrays[0].shape[1], num_features, "Pass those that it was fitted with.")
    return [delayed(list)(pieces) for pieces in zip(*delayed_blocks(arrays), strict=True)]


def _parts_of_frame(
    x: Any, y: Any, sample_weight: Any, features: Any, label: Any, num_features: int | None
) -> list[Any]:
    if (label is None) == (y is None):
        raise ValueError(
            "To score an estimator on a frame, name its label column, label=, or pass y, a column that was cut from "
            "the same frame: one of the two."
        )
    weight = [sample_weight] if sample_weight is not None and is_name(sample_weight) else []
    if weight and sample_weight not in x.columns:
        raise ValueError(f"{passed('sample_weight', sample_weight)} is no column of {named('x')}.")
    one, several, _ = chosen(named("x"), [name for name in x.columns if name not in weight], features, label)
    _check_width(
        1 if several is None else len(several),
        num_features,
        f"Name those that it was fitted with: {passed('features')}.",
    )
    weights = None if weight else sample_weight
    if y is None and weights is None:
        needed = in_own_order(x, [*([one] if several is None else several), label, *weight])
        return list(needed.to_delayed()) if hasattr(needed, "to_delayed") else [delayed(needed)]
    columns = [x[one] if several is None else in_order(x, several), x[label] if y is None else _column("y", y)]
    columns += [_column("sample_weight", each) for each in [weights] if each is not None] + [x[name] for name in weight]
    if hasattr(x, "to_delayed"):
        return delayed_pieces("data", columns)
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"The columns of data have {', '.join(str(len(column)) for column in columns)} rows.")
    return [delayed(columns)]


def _column(what: str, values: Any) -> Any:
    """Targets or weights as one column, also of a frame that has no other."""
    if not is_frame(values):
        return values
    if len(values.columns) > 1:
        raise ValueError(f"{what} has {len(values.columns)} columns. Pass one.")
    return values[values.columns[0]]


def _check_width(width: int, num_features: int | None, change: str) -> None:
    if num_features is not None and width != num_features:
        raise ValueError(f"{named('x')} has {width} features, and the model was fitted with {num_features}. {change}")


def lengths_of(x: Any, num_parts: int) -> Sequence[int] | None:
    """Return rows of each partition of an array, where they are known."""
    rows = [float(length) for length in x.chunks[0]] if hasattr(x, "chunks") else []
    known = len(rows) == num_parts and not any(map(math.isnan, rows))
    return list(map(int, rows)) if known else None
