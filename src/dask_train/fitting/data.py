"""What users of ``fit`` pass for inputs, targets and weights, as one data set and what its columns mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.delayed import Delayed

from dask_train.collections.bags import bag_opened
from dask_train.collections.partition.form import is_frame, is_name, resolved
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema, names_in, structure_of
from dask_train.collections.source import OwnRows, Source
from dask_train.collections.tensors import as_numpy
from dask_train.compat.keras.layers import named_inputs
from dask_train.data.columns import UNKNOWN, Column, Columns
from dask_train.data.selection import column_names
from dask_train.data.structure import filled, leaves
from dask_train.fitting.spec import VALIDATION
from dask_train.shared_data.published import as_source
from dask_train.shared_data.segments import SharedSegments, segments_in
from dask_train.training.settings import RunInputs

# This many rows are tried before anything starts.
NUM_TRIED_ROWS = 8


class Several(tuple[Any, ...]):
    """Labels of which each is a target by itself, not columns of one matrix."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class FitData:
    """One data set of a call of ``fit``.

    Attributes
    ----------
    value
        As ``train`` takes ``data=``.
    columns
        What each column is, and what it means to Keras.
    made
        The source, where it was made to see what the columns are.
    schema
        What the columns of frames are; None if there are no frames, or only computing shows.
    """

    value: Any
    columns: Columns
    made: Source | SharedSegments | None = None
    schema: FrameSchema | None = None

    def source(self, what: str, *, decodes: bool = False) -> Source | SharedSegments:
        """Return the data as a run takes it; its batches are tuples.

        Parameters
        ----------
        what
            How errors call it.
        decodes
            Whether roles go through batches alone, which decode rows.
        """
        made = self.made or as_source(what, self.value, decodes=decodes)
        if isinstance(made, SharedSegments):
            return replace(made, schema=replace(made.schema, names=None, is_tuple=True))
        return made

    def rows_here(self) -> list[np.ndarray] | None:
        """Return up to 8 rows, evenly spread, where all data are NumPy arrays; None for other data."""
        if not isinstance(self.value, tuple) or not all(isinstance(column, np.ndarray) for column in self.value):
            return None
        num_rows = min(len(column) for column in self.value)
        if num_rows < 2:
            return None
        places = np.unique(np.linspace(0, num_rows - 1, NUM_TRIED_ROWS).astype(int))
        return [column[places] for column in self.value]


def fit_data(
    what: str,
    x: Any,
    y: Any,
    sample_weight: Any,
    *,
    features: Any = None,
    label: Any = None,
    like: Conformer | None = None,
    trains: bool = True,
) -> FitData:
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
        return _of_files(what, x if trains else x.not_augmented(), like, given=[y, sample_weight, features, label])
    if features is not None or label is not None or names_columns(sample_weight):
        if y is not None or not (sample_weight is None or names_columns(sample_weight)):
            raise ValueError(
                f"{what}: features= and label= choose columns of a frame; leave y and sample_weight out, or name the "
                "column of weights: sample_weight='name'."
            )
        return _named(what, x, features, label, sample_weight, like)
    if (segments := segments_in(x)) is not None:
        return _published(what, x, segments, [y, sample_weight], like)
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
    return FitData(
        value=value, columns=places.with_rows(list(map(_row_of, value))), schema=like.schema(structure_of(x))
    )


def _of_files(what: str, files: OwnRows, like: Conformer, given: list[Any]) -> FitData:
    if any(each is not None for each in given):
        raise ValueError(
            f"{what} is a {type(files).__name__}, which has inputs and labels together: leave y, sample_weight, "
            "features and label out. Labels of your own are label=function of dt.files, dt.tars or dt.tfrecords."
        )
    source = files.source()
    assert source.columns is not None
    places = Columns.of_batch(len(source.columns), source.columns)
    like.classes(what, files.classes)
    return FitData(value=files, columns=places.in_batch, made=source, schema=like.schema(None))


def _check_not_delayed(what: str, values: Sequence[Any]) -> None:
    """Check that values tell their columns before they are computed."""
    for value in (leaf for each in values for leaf in leaves(each)):
        if any(isinstance(part, Delayed) for part in (value if isinstance(value, list) else [value])):
            raise TypeError(
                f"{what} is a bag or has delayed results, whose columns nobody knows yet. Where partitions are frames "
                "or dicts, name their columns: features=['a', 'b'], label='y'. Of delayed arrays make a Dask array "
                "with dask.array.from_delayed."
            )


def names_columns(sample_weight: Any) -> bool:
    """Return whether weights are given by the name of their column, or by one for each output."""
    if isinstance(sample_weight, Mapping):
        return bool(sample_weight) and all(isinstance(name, str) for name in sample_weight.values())
    return isinstance(sample_weight, str)


def columns_for(model: Any, x: Any, y: Any, features: Any, label: Any) -> tuple[Any, Any]:
    """``features`` and ``label`` as this model means them.

    A frame for a model whose inputs are a dict gives a column to each input of its name. A list of labels is a matrix
    for a model of one output, and one target for each of several.
    """
    inputs, outputs = named_inputs(model), getattr(model, "outputs", None) or ()
    if isinstance(inputs, dict) and is_frame(x) and y is None and not isinstance(features, Mapping):
        names = {name: name for name in inputs}
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


def _named(what: str, x: Any, features: Any, label: Any, sample_weight: Any, like: Conformer) -> FitData:
    """Columns by their names."""
    is_open = is_frame(x) and segments_in(x) is None
    targets, weights = list(names_in(label)), list(names_in(sample_weight))
    if is_open:
        _check_apart(what, targets, features)
        x, features = like.named(what, x, features, [*targets, *weights])
    elif isinstance(x, list) and x and all(isinstance(part, Delayed) for part in x):
        x, features = like.parts(what, x, features, [*targets, *weights], targets)
    picks: list[Any] = []
    places = [places_of(features, picks)]
    places += [None if spec is None else places_of(spec, picks) for spec in (label, sample_weight)]
    columns = Columns(features=places[0], labels=places[1], weights=places[2])
    _check_apart(what, targets, features)
    if (segments := segments_in(x)) is not None:
        return _named_segments(what, x, segments, columns, picks, like)
    if is_open:
        x = like.targets(what, x, targets)
    elif isinstance(x, Mapping):
        inputs = list(names_in(features)) or [name for name in x if name not in [*targets, *weights]]
        x = {name: like.inputs(what, value) if name in inputs else value for name, value in x.items()}
        x = {name: like.targets(what, value) if name in targets else value for name, value in x.items()}
    source = as_source(what, x, picks={"arrays": picks, "is_tuple": True})
    assert isinstance(source, Source)
    schema = like.schema(features if is_open else None)
    return FitData(value=x, columns=columns.with_rows(source.columns or ()), made=source, schema=schema)


def _check_apart(what: str, targets: Sequence[Any], features: Any) -> None:
    if twice := [name for name in targets if name in list(names_in(features))]:
        raise ValueError(f"{twice[0]!r} of {what} is the label and one of the features too. Take it out of features.")


def _named_segments(
    what: str, x: Any, segments: SharedSegments, columns: Columns, picks: list[Any], like: Conformer
) -> FitData:
    """Give the columns of a published data set: columns as they are, since they lie in shared memory already."""
    known = column_names(segments.schema)
    numbers = []
    for names, matrix in resolved(what, known, picks):
        if matrix:
            raise ValueError(
                f"{what} lies in shared memory with its columns as they are, so {names} can't be one matrix. Choose "
                "them when it is published, dt.publish_dataset(frame, name=..., features=..., label=...); or name "
                "columns one by one, features={'a': 'a', 'b': 'b'}."
            )
        numbers.append(known.index(names[0]))
    placed = [filled(places, numbers.__getitem__) for places in columns.places().values()]
    return _lying(what, x, segments, Columns(features=placed[0], labels=placed[1], weights=placed[2]), like)


def _lying(what: str, x: Any, segments: SharedSegments, columns: Columns, like: Conformer) -> FitData:
    """Give a published data set with the schema of its frames, once it is seen that the model knows these codes."""
    frames, schema = segments.frames, None
    if frames:
        inputs, targets = leaves(columns.features), leaves(columns.labels)
        like.lying(what, [frames[number] for number in inputs], [frames[number] for number in targets])
        features = filled(columns.features, lambda number: getattr(frames[number], "features", None))
        schema = like.schema(None if isinstance(columns.features, list | tuple) else features)
    return FitData(value=x, columns=columns.with_rows(segments.schema), schema=schema)


def places_of(spec: Any, picks: list[Any]) -> Any:
    """Return a structure with the place in ``picks`` of each array that is named in it."""
    if isinstance(spec, Mapping):
        return {name: places_of(below, picks) for name, below in spec.items()}
    if isinstance(spec, Several):
        return [places_of(below, picks) for below in spec]
    picks.append(spec if spec is None or is_name(spec) else list(spec))
    return len(picks) - 1


def _published(what: str, x: Any, segments: SharedSegments, others: list[Any], like: Conformer) -> FitData:
    if any(other is not None for other in others):
        raise ValueError(f"{what}: a published data set has inputs, targets and weights together. Pass it alone.")
    schema = segments.schema
    if schema.names is not None:
        known = ", ".join(schema.names)
        numbers = {name: number for number, name in enumerate(schema.names)}
        if not {"x", "y"} >= set(numbers) - {"sample_weight"} or "x" not in numbers:
            raise ValueError(
                f"{what}: the columns of that data set are {known}; which of them are inputs is not told. Say it with "
                "features={'input': 'column'} and label=, or publish it as (X, y), or (X, y, sample_weight)."
            )
        columns = Columns(features=numbers["x"], labels=numbers.get("y"), weights=numbers.get("sample_weight"))
        return _lying(what, x, segments, columns, like)
    if len(schema) > 3:
        raise ValueError(f"{what}: that data set has {len(schema)} columns. Publish it as (X, y).")
    return _lying(what, x, segments, Columns.of_batch(len(schema)), like)


def _row_of(value: Any) -> Column:
    """Return what rows of an array are, as far as that is known without computing."""
    if not hasattr(value, "shape") or not isinstance(getattr(value, "dtype", None), np.dtype):
        return Column(dtype=UNKNOWN, row_shape=())
    if any(isinstance(size, float) for size in value.shape[1:]):
        return Column(dtype=UNKNOWN, row_shape=())
    return Column(dtype=value.dtype.str, row_shape=tuple(value.shape[1:]))


def validation_of(
    value: Any, features: Any, label: Any, sample_weight: Any = None, known: FrameSchema | None = None
) -> FitData:
    """Return what ``validation_data=`` was given: inputs, targets and perhaps weights; a frame; a data set.

    A frame is read as the data is: ``sample_weight`` counts where it is the name of a column, and categories are those
    that are ``known`` of the data.
    """
    if isinstance(value, tuple | list) and 2 <= len(value) <= 3:
        x, y, *weights = value
        return fit_data("validation_data", x, y, *weights or [None], like=Conformer(known), trains=False)
    weights_by_name = sample_weight if names_columns(sample_weight) else None
    columns: dict[str, Any] = {"features": features, "label": label}
    return fit_data("validation_data", value, None, weights_by_name, **columns, like=Conformer(known), trains=False)


def split_off(data: FitData, fraction: float) -> tuple[FitData, FitData]:
    """Split off the last ``fraction`` of the rows to validate on, as Keras splits arrays.

    Raises
    ------
    ValueError
        The number of rows is not known, or one side would have none.
    """
    if isinstance(data.value, OwnRows):
        drawn = f"train, test = files.split({fraction:g}), and pass validation_data=test"
        raise ValueError(
            "validation_split takes the last rows, and files are sorted by path. "
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
            "validation_split needs arrays whose number of rows is known. Pass validation_data, or call "
            "compute_chunk_sizes() on Dask arrays first."
        )
    at = math.floor(lengths[0] * (1.0 - fraction))
    if not 0 < at < lengths[0]:
        raise ValueError(f"validation_split={fraction!r} of {lengths[0]} rows leaves one side without rows.")
    return (
        replace(data, value=tuple(column[:at] for column in data.value)),
        replace(data, value=tuple(column[at:] for column in data.value)),
    )


def check_some_rows(what: str, source: Source | SharedSegments) -> None:
    """Check that there are rows, where their number is known.

    Raises
    ------
    ValueError
        There are no rows.
    """
    if source.lengths is not None and not sum(source.lengths):
        raise ValueError(f"{what} has no rows. Pass at least one.")


def check_same_classes(data: FitData, validation: FitData | None) -> None:
    """Check that labels of files to validate on mean what those of files to train on do.

    Raises
    ------
    ValueError
        They number other classes.
    """
    if validation is None or not isinstance(data.value, OwnRows) or not isinstance(validation.value, OwnRows):
        return
    known, given = data.value.classes, validation.value.classes
    if known != given:
        raise ValueError(
            f"The classes of validation_data are {_listed(given)}, and those of the data {_listed(known)}, so the same "
            "number would mean two things. Pass classes=train.classes for both."
        )


def _listed(classes: tuple[str, ...] | None) -> str:
    return "none" if classes is None else ", ".join(map(repr, classes[:20]))


def inputs_of(data: FitData, validation: FitData | None) -> RunInputs:
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
