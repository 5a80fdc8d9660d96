"""``evaluate`` of any kind of model: one task per partition, what they find joined, and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from dask import delayed

from dask_train.cluster.gathered import counting, gathered, gathered_later
from dask_train.cluster.sealed import Sealed
from dask_train.collections.bags import BagRows
from dask_train.collections.blocks import delayed_blocks, with_whole_rows
from dask_train.collections.frames import delayed_pieces, in_order, in_own_order
from dask_train.collections.partition.form import chosen, is_frame
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.collections.source import OwnRows
from dask_train.inputs.making import input_data, of_names
from dask_train.inputs.published import in_shared_memory
from dask_train.predicting.inputs import of_bag
from dask_train.printing import SafeFile
from dask_train.report.formats import score_text, seconds_text
from dask_train.report.parts_progress import PartsDisplay
from dask_train.report.progress import progress_of
from dask_train.shared_data.segments import segments_in
from dask_train.spelling import named, passed

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

# The results of this many partitions are joined in one task.
FAN_IN = 16


def opened(x: Any, y: Any, sample_weight: Any, features: Any, label: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return arrays in place of a data set of ``get_dataset``, and of a bag a frame, or arrays; others as they are.

    Raises
    ------
    TypeError, ValueError
        It is not a matrix of features and a column of targets, or a bag has no such columns.
    """
    if isinstance(x, BagRows):
        return _opened_bag(x, y, sample_weight, features, label)
    if y is not None or segments_in(x) is None:
        return x, y, sample_weight, features, label
    like = Conformer(None, coded=False)
    data = input_data("data", x, None, sample_weight, features=features, label=label, like=like)
    places = data.columns.places().values()
    if data.columns.labels is None or not all(place is None or isinstance(place, int) for place in places):
        raise ValueError(
            "To score an estimator, a data set has to be a matrix of features and a column of targets, and perhaps one "
            "of weights. Publish (X, y)."
        )
    return *in_shared_memory(data), None, None


def _opened_bag(x: BagRows, y: Any, sample_weight: Any, features: Any, label: Any) -> tuple[Any, Any, Any, Any, Any]:
    if y is not None or not (sample_weight is None or isinstance(sample_weight, str)):
        raise ValueError(
            f"{named('x')} is a bag, whose rows have targets and weights with them: name those, {passed('label')} and "
            f"{passed('sample_weight')}, and leave y out."
        )
    names = list(names_in(features)) or [name for name in x.frame.columns if name not in (label, sample_weight)]
    if label is None or not x.holds_arrays(names):
        return x.frame, y, sample_weight, features, label
    like = Conformer(None, coded=False)
    return *of_bag(x, of_names(named("x"), x.frame, features, label, sample_weight, like)), None, None


def check_classes(x: Any, known: FrameSchema | None) -> None:
    """Check that labels of files mean what the model has learnt.

    Raises
    ------
    ValueError
        They number other classes.
    """
    if isinstance(x, OwnRows):
        Conformer(known).classes("x", x.classes)


def parts_of(
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
    weight = [sample_weight] if isinstance(sample_weight, str) else []
    if weight and sample_weight not in x.columns:
        raise ValueError(f"{passed('sample_weight', sample_weight)} is no column of {named('x')}.")
    one, several, _ = chosen(named("x"), [name for name in x.columns if name not in weight], features, label)
    _check_width(
        1 if several is None else len(several),
        num_features,
        f"Name those that it was fitted with: {passed('features')}.",
    )
    beside = [each for each in (y, None if weight else sample_weight) if each is not None]
    if not beside:
        needed = in_own_order(x, [*([one] if several is None else several), label, *weight])
        return list(needed.to_delayed()) if hasattr(needed, "to_delayed") else [delayed(needed)]
    columns = [x[one] if several is None else in_order(x, several), x[label] if y is None else _column("y", y)]
    columns += [_column("sample_weight", each) for each in beside if each is not y] + [x[name] for name in weight]
    if hasattr(x, "to_delayed"):
        return delayed_pieces("data", columns)
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"The columns of data have {', '.join(str(len(column)) for column in columns)} rows.")
    return [delayed(columns)]


def _column(what: str, given: Any) -> Any:
    """Targets or weights as one column, also of a frame that has no other."""
    if not is_frame(given):
        return given
    if len(given.columns) > 1:
        raise ValueError(f"{what} has {len(given.columns)} columns. Pass one.")
    return given[given.columns[0]]


def _check_width(width: int, num_features: int | None, change: str) -> None:
    if num_features is not None and width != num_features:
        raise ValueError(f"{named('x')} has {width} features, and the model was fitted with {num_features}. {change}")


def lengths_of(x: Any, num_parts: int) -> Sequence[int] | None:
    """Return rows of each partition of an array, where they are known."""
    rows = [float(length) for length in x.chunks[0]] if hasattr(x, "chunks") else []
    known = len(rows) == num_parts and not any(map(math.isnan, rows))
    return list(map(int, rows)) if known else None


def joined(join: Callable[[list[Any]], Any], level: list[Any]) -> Any:
    """Return all of them, joined in order, some at a time."""
    while True:
        level = [join(level[at : at + FAN_IN]) for at in range(0, len(level), FAN_IN)]
        if len(level) == 1:
            return level[0]


def as_task(function: Callable[..., Any]) -> Any:
    """Make a function's calls tasks, which travel closed."""
    return delayed(Sealed(function), pure=False)


def shown(
    client: Client | None,
    total: Any,
    parts: Sequence[Any],
    rows: Sequence[int] | None,
    finish: Callable[[Any], dict[str, float]],
    verbose: Any,
) -> dict[str, float]:
    """Return what comes of all, while it is shown how many partitions are done."""
    began = time.monotonic()
    progress = False if verbose == 2 else progress_of(verbose)
    with PartsDisplay(progress, what="evaluating", rows=rows) as display:

        def show(done: Collection[int]) -> None:
            display.done(done, len(parts))

        if client is None:
            with counting([part.key for part in parts], show):
                scores = finish(total.compute(scheduler="threads"))
        else:
            scores = finish(gathered(client, total, parts=parts, watch=show if display.shown else None))
    if verbose == 2:
        told = [f"{name}: {score_text(value)}" for name, value in scores.items()]
        line = " - ".join([f"{len(parts)} partitions", seconds_text(time.monotonic() - began), *told])
        SafeFile().write(f"{line}\n")
    return scores


async def shown_later(client: Client, sent: Any, lazy: Callable[[Any], Any], finish: Callable[[Any], Any]) -> Any:
    """Return the same with an asynchronous client, whose caller is shown nothing; the model is on its way there."""
    total, _ = lazy(await sent)
    return finish(await gathered_later(client, total))
