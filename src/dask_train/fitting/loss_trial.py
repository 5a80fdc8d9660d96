"""Losses of a user's own that a backend can't share out, found on a few rows before anything starts.

Workers try their first batch as well (:mod:`dask_train.fitting.roles.rehearsal`): what only real rows show of data that
is not here, they see.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dask_train.data.columns import Column
from dask_train.data.structure import leaves
from dask_train.fitting.backends import Backend, StepError, backend_of
from dask_train.inputs.data import NUM_TRIED_ROWS, InputData

# A larger model is not copied and compiled here, where no memory is planned for it: its workers refuse it.
_MOST_BYTES = 2**28
# Methods of Keras' classes are replaced meanwhile; calls of other threads are passed through.
_one_at_a_time = threading.Lock()


def check_losses(
    model: Any, parts: tuple[Mapping[str, Any], Sequence[Any]], data: InputData, class_weight: dict[int, float] | None
) -> None:
    """Check that several workers can take a step of a model together, in a copy of it that is tried on a few rows.

    Rows are those of arrays that are here. Others are made up: of any inputs, with one target for all, so that what a
    loss divides by is the same for each. A step that can't be taken with these is left to the workers, and so is
    whatever is not seen.

    Parameters
    ----------
    parts
        The model, as it travels.

    Raises
    ------
    ValueError
        They can't.
    """
    import keras

    from dask_train.fitting.roles.rehearsal import Inspection
    from dask_train.keras_models.serialization import model_size_bytes

    backend = backend_of(keras.backend.backend())
    if not data.columns.are_known or not Inspection(model, backend).in_client:
        return
    if model_size_bytes(model) > _MOST_BYTES or any(column.is_text for column in data.columns):
        return
    columns = data.sample_rows() or _made_up(data.columns, leaves(data.columns.features))
    with _one_at_a_time:
        drawn = random.getstate()  # from there a copy's layers take seeds, as the program's next model will
        try:
            _try(backend, parts, data, columns, class_weight)
        except StepError as error:
            raise ValueError(str(error)) from error
        except Exception:  # noqa: S110 - such as made-up rows that the model is not for
            pass
        finally:
            random.setstate(drawn)


def _try(backend: Backend, parts: Any, data: InputData, columns: list[np.ndarray], class_weight: Any) -> None:
    """One trial, as a worker makes it of its first batch."""
    import keras

    from dask_train.fitting.roles.applying import at_every_apply
    from dask_train.fitting.roles.global_batch import global_batch_of_all
    from dask_train.fitting.roles.gradients import RowFraction
    from dask_train.fitting.roles.metrics import Metrics
    from dask_train.fitting.roles.models import build
    from dask_train.fitting.roles.reductions import losses_of_all
    from dask_train.fitting.roles.rehearsal import learn_losses
    from dask_train.fitting.roles.steps import weights_of
    from dask_train.keras_models.serialization import parts_to_model

    model, share = parts_to_model(*parts), RowFraction()
    build(model, data.columns)
    share.rows = len(columns[0])
    tensors = [backend.as_floatx(keras.ops.convert_to_tensor(column), keras.config.floatx()) for column in columns]
    x, y, sample_weight = data.columns.pack(tensors)
    if class_weight is not None:
        sample_weight = keras.ops.convert_to_tensor(weights_of(y, class_weight))
    batch = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
    alone: Any = _Alone()
    gathering = global_batch_of_all(alone, backend, share)
    with at_every_apply(_as_it_is), losses_of_all(alone, backend, share), gathering:
        step = backend.compiled(model.train_step, model, batch)
        learn_losses(model, Metrics(model), backend, step, batch)


def _as_it_is(_: Any, grads: list[Any], variables: list[Any], go_on: Callable[[Sequence[Any]], Any]) -> Any:  # noqa: ARG001
    return go_on(grads)


class _Alone:
    """The sums of one process."""

    size, rank = 1, 0

    def channel(self, shapes: Any, dtype: Any) -> None:
        """Make nothing: none is needed."""

    def sum(self, channel: Any, arrays: Sequence[Any], weight: float = 1.0) -> list[np.ndarray]:  # noqa: ARG002
        """Return what is given."""
        return [np.asarray(array) * weight for array in arrays]


def _made_up(columns: Sequence[Column], inputs: Sequence[int]) -> list[np.ndarray]:
    """Return rows between 0 and 1, which most models are for; whole numbers are 0 and 1, which any table has."""
    random = np.random.default_rng(0)
    arrays = []
    for number, column in enumerate(columns):
        dtype = np.dtype(column.dtype)
        values = random.uniform(0.05, 0.95, (NUM_TRIED_ROWS, *column.row_shape))
        if dtype.kind != "f":
            values = np.round(values)
        if number not in inputs:
            values = np.repeat(values[:1], NUM_TRIED_ROWS, axis=0)
        arrays.append(values.astype(dtype))
    return arrays
