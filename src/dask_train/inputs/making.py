"""What users pass for inputs, targets and weights, as one data set and what its columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.delayed import Delayed

from dask_train.collections.bags import bag_opened
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import structure_of
from dask_train.collections.source import OwnRows
from dask_train.collections.tensors import as_numpy
from dask_train.data.columns import UNKNOWN, Column, Columns
from dask_train.data.structure import leaves
from dask_train.inputs.data import InputData
from dask_train.inputs.names import names_columns, of_names
from dask_train.inputs.published import of_segments
from dask_train.shared_data.segments import segments_in


def input_data(
    what: str,
    x: Any,
    y: Any,
    sample_weight: Any,
    *,
    features: Any = None,
    label: Any = None,
    like: Conformer | None = None,
    trains: bool = True,
) -> InputData:
    """Return inputs, targets and weights as one data set; nothing is computed.

    Parameters
    ----------
    like
        Makes columns of frames as the model knows them. Default: for a model that knows none yet, and learns codes.
    trains
        Whether it is trained on: files are augmented for that alone.

    Raises
    ------
    TypeError, ValueError
        They can't be put together.
    """
    like, x = like or Conformer(None), bag_opened(what, x)
    if x is None:
        raise ValueError(f"{what}: there are no inputs. Pass arrays, a frame, or a data set of dt.get_dataset(name).")
    if isinstance(x, OwnRows):
        return _of_own_rows(what, x if trains else x.not_augmented(), like, given=[y, sample_weight, features, label])
    if features is not None or label is not None or names_columns(sample_weight):
        if y is not None or not (sample_weight is None or names_columns(sample_weight)):
            raise ValueError(
                f"{what}: features= and label= choose columns of a frame; leave y and sample_weight out, or name the "
                "column of weights: sample_weight='name'."
            )
        return of_names(what, x, features, label, sample_weight, like)
    if (segments := segments_in(x)) is not None:
        return of_segments(what, x, segments, [y, sample_weight], like)
    _check_not_delayed(what, [x, y, sample_weight])
    x = like.ordered(what, x)
    places, values = Columns.of(x, y, sample_weight)
    inputs, targets = leaves(places.features), leaves(places.labels)
    given = list(values)
    for number in inputs:
        given[number] = like.inputs(what, given[number])
    for number in targets:
        given[number] = like.targets(what, given[number])
    value = tuple(as_numpy(what, each) for each in given)
    return InputData(
        value=value, columns=places.with_rows(list(map(_row_of, value))), schema=like.schema(structure_of(x))
    )


def _of_own_rows(what: str, files: OwnRows, like: Conformer, given: list[Any]) -> InputData:
    if any(each is not None for each in given):
        raise ValueError(
            f"{what} is a {type(files).__name__}, which has inputs and labels together: leave y, sample_weight, "
            "features and label out. Labels of your own are label=function of dt.files, dt.tars or dt.tfrecords."
        )
    source = files.source()
    assert source.columns is not None
    places = Columns.of_batch(len(source.columns), source.columns)
    like.classes(what, files.classes)
    return InputData(value=files, columns=places.in_batch, opened=source, schema=like.schema(None))


def _check_not_delayed(what: str, values: Sequence[Any]) -> None:
    """Check that values tell their columns before they are computed."""
    for value in (leaf for each in values for leaf in leaves(each)):
        if any(isinstance(part, Delayed) for part in (value if isinstance(value, list) else [value])):
            raise TypeError(
                f"{what} is a bag or has delayed results, whose columns nobody knows yet. Where partitions are frames "
                "or dicts, name their columns: features=['a', 'b'], label='y'. Of delayed arrays make a Dask array "
                "with dask.array.from_delayed."
            )


def _row_of(value: Any) -> Column:
    """Return what rows of an array are, as far as that is known without computing."""
    if not hasattr(value, "shape") or not isinstance(getattr(value, "dtype", None), np.dtype):
        return Column(dtype=UNKNOWN, row_shape=())
    if any(isinstance(size, float) for size in value.shape[1:]):
        return Column(dtype=UNKNOWN, row_shape=())
    return Column(dtype=value.dtype.str, row_shape=tuple(value.shape[1:]))
