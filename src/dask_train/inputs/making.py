"""What users pass for inputs, targets and weights, as one value that says what each column is and means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask.delayed import Delayed

from dask_train.collections.bags import bag_opened
from dask_train.collections.delayed import are_parts
from dask_train.collections.partition.form import is_frame, is_name
from dask_train.collections.schema.category import listed
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import names_in
from dask_train.collections.source import OwnRows, Source
from dask_train.collections.tensors import as_numpy
from dask_train.compat.keras.layers import named_inputs
from dask_train.data.columns import UNKNOWN, Column, Columns
from dask_train.data.structure import leaves
from dask_train.inputs.data import InputData
from dask_train.inputs.published import of_named_segments, of_segments
from dask_train.shared_data.published import as_source
from dask_train.shared_data.segments import is_data_set, segments_in
from dask_train.spelling import by_caller, named


class Several(tuple[Any, ...]):
    """Labels of which each is a target by itself, not columns of one matrix."""

    __slots__ = ()


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
        return _of_own_rows(what, x if trains else x.not_augmented(), like, [y, sample_weight, features, label])
    if features is not None or label is not None or names_columns(sample_weight):
        if y is not None or not (sample_weight is None or names_columns(sample_weight)):
            raise ValueError(
                f"{what}: features= and label= choose columns of a frame; leave y and sample_weight out, or name the "
                "column of weights: sample_weight='name'."
            )
        return of_names(what, x, features, label, sample_weight, like)
    if (segments := segments_in(x)) is not None and (y is None or is_data_set(x)):  # arrays of dt.persist may be inputs
        return of_segments(what, x, segments, [y, sample_weight], like)
    _check_not_delayed(what, [x, y, sample_weight])
    _check_no_name(what, x, y)
    x, y = like.inputs(what, x), like.targets(what, y)
    places, values = Columns.of(x, y, sample_weight)
    value = tuple(as_numpy(what, each) for each in values)
    return InputData(value=value, columns=places.with_rows(list(map(_row_of, value))), schema=like.schema_of(x))


def of_names(
    what: str, x: Any, features: Any, label: Any, sample_weight: Any, like: Conformer, *, model: Any = None
) -> InputData:
    """Return rows of which columns were named: of a frame, a dict, delayed partitions, or a published data set.

    Parameters
    ----------
    features, label, sample_weight
        Names in the structure that the model takes; features may be None, which are all other columns.
    like
        Makes columns of frames as the model knows them.
    model
        A network whose inputs may name columns of a frame. Default: the names are as it means them already.

    Raises
    ------
    TypeError, ValueError
        There is no such column, or columns can't be put together.
    """
    is_open = is_frame(x) and segments_in(x) is None
    label = like.labels_in_order(label)
    targets, weights = list(names_in(label)), list(names_in(sample_weight))
    if is_open:
        check_apart(what, targets, features)
        if model is not None and not like.knows_features:
            features, _ = columns_for(model, x, None, features, None, what=what)
        x, features = like.named(what, x, features, [*targets, *weights])
        if model is not None:
            features, _ = columns_for(model, x, None, features, None)
    elif are_parts(x):
        x, features = like.parts(what, x, features, [*targets, *weights], targets)
    picks: list[Any] = []
    places = [places_of(features, picks)]
    places += [None if spec is None else places_of(spec, picks) for spec in (label, sample_weight)]
    columns = Columns(features=places[0], labels=places[1], weights=places[2])
    check_apart(what, targets, features)
    if (segments := segments_in(x)) is not None:
        return of_named_segments(what, x, segments, columns, picks, like)
    if is_open:
        x = like.targets(what, x, targets)
    elif isinstance(x, Mapping):
        x = like.columns(what, x, features, [*targets, *weights], targets)
    source = as_source(what, x, picks={"arrays": picks, "is_tuple": True})
    assert isinstance(source, Source)
    schema = like.schema(features) if is_open else like.schema_of_columns(features)
    return InputData(value=x, columns=columns.with_rows(source.columns or ()), opened=source, schema=schema)


def check_apart(what: str, targets: Sequence[Any], features: Any) -> None:
    """Check that no target is one of the features too.

    Raises
    ------
    ValueError
        One is.
    """
    if twice := [name for name in targets if name in list(names_in(features))]:
        raise ValueError(f"{twice[0]!r} of {what} is the label and one of the features too. Take it out of features.")


def places_of(spec: Any, picks: list[Any]) -> Any:
    """Return a structure with the place in ``picks`` of each array that is named in it."""
    if isinstance(spec, Mapping):
        return {name: places_of(below, picks) for name, below in spec.items()}
    if isinstance(spec, Several):
        return [places_of(below, picks) for below in spec]
    picks.append(spec if spec is None or is_name(spec) else list(spec))
    return len(picks) - 1


def names_columns(sample_weight: Any) -> bool:
    """Return whether weights are given by the name of their column, or by one for each output."""
    if isinstance(sample_weight, Mapping):
        return bool(sample_weight) and all(isinstance(name, str) for name in sample_weight.values())
    return isinstance(sample_weight, str)


def columns_for(model: Any, x: Any, y: Any, features: Any, label: Any, *, what: str | None = None) -> tuple[Any, Any]:
    """``features`` and ``label`` as this model means them.

    A frame for a model whose inputs are a dict gives a column to each input of its name. A list of labels is a matrix
    for a model of one output, and one target for each of several.

    Parameters
    ----------
    what
        How errors call the frame. Default: ``x``.

    Raises
    ------
    ValueError
        The frame lacks the column of an input, and ``features`` name none; or labels and outputs differ in number.
    """
    inputs, outputs = named_inputs(model), getattr(model, "outputs", None) or ()
    if isinstance(inputs, dict) and is_frame(x) and y is None and not isinstance(features, Mapping):
        names = {name: name for name in inputs}
        if features is None:
            _check_named(what or named("x"), model, list(inputs), list(x.columns))
        if features is None or (not is_name(features) and set(features) == set(names)):
            features = names
    if len(outputs) > 1 and isinstance(label, list | tuple):
        if len(label) != len(outputs):
            raise ValueError(
                f"label={list(label)!r} names {len(label)} columns, and the model has {len(outputs)} outputs. Name one "
                "for each, or pass a dict of outputs to columns."
            )
        label = Several(label)
    return features, label


def _check_named(what: str, model: Any, inputs: list[str], known: list[Any]) -> None:
    """Check that a frame has a column for each input by its name: the user has named none."""
    if missing := [name for name in inputs if name not in known]:
        pairs = ", ".join(f"{name!r}: {name!r}" if name in known else f"{name!r}: ..." for name in inputs)
        raise ValueError(
            f"Model {model.name!r} has the inputs {listed(inputs)}, each of which takes the column of its name, and "
            f"{what} has no column {listed(missing)}. It has {listed(known)}. "
            + by_caller(
                f"Say which column, or list of columns, each input takes: features={{{pairs}}}; or pass schema=, where "
                "result.save has kept what the model was fitted with.",
                "Write them there, by these names; or save the model with result.save, which keeps the columns that "
                "it was fitted with.",
            )
        )


def _of_own_rows(what: str, files: OwnRows, like: Conformer, arguments: list[Any]) -> InputData:
    if any(each is not None for each in arguments):
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


def _check_no_name(what: str, x: Any, y: Any) -> None:
    """Check that targets beside a frame are no name of one of its columns."""
    if is_frame(x) and isinstance(y, str):
        raise TypeError(
            f"validation_data has {y!r} beside a frame. Pass the frame alone, validation_data=frame, which has the "
            "columns of features= and label= of the call; or the column itself, (frame, frame[name])."
            if what == "validation_data"
            else f"y is {y!r}, beside a frame. If it names a column, pass label={y!r} in its place."
        )


def _row_of(value: Any) -> Column:
    """Return what rows of an array are, as far as that is known without computing."""
    if not hasattr(value, "shape") or not isinstance(getattr(value, "dtype", None), np.dtype):
        return Column(dtype=UNKNOWN, row_shape=())
    if any(isinstance(size, float) for size in value.shape[1:]):
        return Column(dtype=UNKNOWN, row_shape=())
    return Column(dtype=value.dtype.str, row_shape=tuple(value.shape[1:]))
