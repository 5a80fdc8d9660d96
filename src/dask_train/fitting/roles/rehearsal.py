"""Steps that are tried before the first one is taken: they train nothing, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from dask_train.compat.keras.layers import flatten_layers, has_added_losses
from dask_train.compat.keras.penalties import averages_activity
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import noted_gradients, rehearsing, tried_gathers
from dask_train.fitting.roles.by_row import is_of_keras
from dask_train.fitting.roles.metrics import Metrics, all_metrics, compiled_with
from dask_train.fitting.roles.models import is_own
from dask_train.fitting.roles.weights import assign, value_of
from dask_train.keras_models import state
from dask_train.keras_models.held import unknown_variables
from dask_train.keras_models.torch_state import torch_buffers, torch_random

_NUMBERS = (int, float)


@contextmanager
def rehearsed(model: Any, metrics: Metrics) -> Iterator[Callable[[], None]]:
    """While it lasts, steps are of this process alone and apply nothing; then all is as it was before.

    Yields
    ------
    function
        Sets weights, optimizers, random numbers and counts back; metrics continue to count.
    """
    with rehearsing(), kept(model, metrics) as set_back:
        yield set_back


@contextmanager
def kept(model: Any, metrics: Metrics, more: Iterable[Any] = ()) -> Iterator[Callable[[], None]]:
    """Let all be as it was before, once this is left, whatever steps do meanwhile; yields as :func:`rehearsed`.

    Parameters
    ----------
    more
        Variables that the model does not hold.
    """
    variables = [*model.variables, *state.optimizer_variables(model), *unknown_variables(model)]
    variables += [*torch_buffers(model), *torch_random(), *more]
    before = [value_of(variable) for variable in variables]
    counts = Counts(model)

    def set_back() -> None:
        assign(variables, before)
        counts.set_back()

    counted = metrics.state()
    try:
        yield set_back
    finally:
        set_back()
        metrics.restore(counted)


class Counts:
    """Numbers in attributes of the model, its layers, losses and metrics that are the user's own.

    They may count their calls.

    Layers that are not built are left out, as building may set numbers by which they go.
    """

    def __init__(self, model: Any) -> None:
        losses = [loss for loss in keras.tree.flatten(model.loss) if isinstance(loss, keras.losses.Loss)]
        layers = [layer for layer in flatten_layers(model) if layer.built]
        parts = [*layers, *losses, *all_metrics(model), *compiled_with(model)]
        self._parts = [part for part in parts if not is_of_keras(type(part))]
        self.note()

    def note(self) -> None:
        """Take them as they are now for those to set back."""
        self._noted = [
            {name: value for name, value in vars(part).items() if type(value) in _NUMBERS} for part in self._parts
        ]

    def set_back(self) -> None:
        """Let them be as they were noted."""
        for part, numbers in zip(self._parts, self._noted, strict=True):
            own = vars(part)
            for name in [name for name, value in own.items() if type(value) in _NUMBERS and name not in numbers]:
                if type(getattr(type(part), name, None)) in _NUMBERS:  # it was its class's until it was counted
                    del own[name]
            own.update(numbers)


class Inspection:
    """How a step of a model is inspected before it is taken: the one place that tells backends apart.

    Losses of ``compile`` need none: they go by row, or get all rows. What code of the user's own adds up in a step is a
    mean over rows, or a sum, or refused.

    ======================  ==========  =====  ===
    what tells              TensorFlow  torch  JAX
    ======================  ==========  =====  ===
    the graph of the step   yes
    steps that are tried                yes    yes
    parts of a batch        yes         yes
    the client's own trial                     yes
    ======================  ==========  =====  ===
    """

    def __init__(self, model: Any, backend: Backend) -> None:
        self._model, self._backend = model, backend
        self._is_own = may_have_own_losses(model)

    @property
    def learns(self) -> bool:
        """Return whether a backend sees in tried steps what no graph shows."""
        return self._is_own and not self._backend.graphs_tell_more

    @property
    def compares(self) -> bool:
        """Return whether a worker's first batch is compared with its parts."""
        return self._is_own and not self._backend.refuses_losses

    @property
    def in_client(self) -> bool:
        """Return whether tried steps refuse losses, so that the client can ask before anything starts."""
        return self._is_own and self._backend.refuses_losses

    @property
    def compares_made(self) -> bool:
        """Return whether that is still needed once a step is made, which tells most losses that layers add."""
        is_known = not (self._backend.graphs_tell_more and self._model.run_eagerly)
        return self.compares and (not is_known or has_own_losses(self._model))


def learn_losses(model: Any, metrics: Metrics, backend: Backend, run: Callable[[Any], Any], batch: Any) -> str | None:
    """Let a backend see what the losses of a step are, where some of them may be the user's own.

    A step that accepts a batch, but not one whose rows come twice, is an error.

    Returns
    -------
    str or None
        Why it is not known whether several workers compute what one does; None if it is.
    """
    if not Inspection(model, backend).learns:
        return None
    with rehearsed(model, metrics) as set_back:

        def tried(times: int) -> None:
            set_back()
            run(keras.tree.map_structure(lambda rows: keras.ops.concatenate([rows] * times), batch))

        gathers = tried_gathers()
        assert gathers is not None
        return backend.learn(tried, noted_gradients, model, gathers)


def has_own_steps(model: Any) -> bool:
    """Return whether a user's own code puts losses or gradients together."""
    return any(is_own(model, name) for name in ("train_step", "compute_loss"))


def may_have_own_losses(model: Any) -> bool:
    """Return whether a step may add up what is not Keras' own, so that nothing is known of it.

    Compiled losses are not meant, which are given all workers' rows where nothing is known of them.
    """
    layers = flatten_layers(model)
    own = [layer for layer in layers if not is_of_keras(type(layer))]
    own += [layer for layer in layers if not _is_known(getattr(layer, "activity_regularizer", None))]
    regularizers = [getattr(variable, "regularizer", None) for variable in model.trainable_variables]
    own += [one for one in regularizers if one is not None and not is_of_keras(one)]
    return has_own_steps(model) or bool(own)


def may_shape_rows(model: Any) -> bool:
    """Return whether code of a user's own may change the shapes of outputs and targets, or a layer that takes text."""
    layers = flatten_layers(model)
    own = any(not is_of_keras(type(layer)) for layer in (model, *layers))
    shaping = (keras.layers.Lambda, keras.layers.TextVectorization)
    return own or has_own_steps(model) or is_own(model, "test_step") or any(isinstance(one, shaping) for one in layers)


def has_own_losses(model: Any) -> bool:
    """Return whether a user's own code computes losses in a step, which was made by now."""
    if has_own_steps(model):
        return True
    return any(
        has_added_losses(layer) and not (is_of_keras(type(layer)) and _is_known(layer.activity_regularizer))
        for layer in flatten_layers(model)
    )


# Others of Keras' own, such as OrthogonalRegularizer, compare the rows of what a layer returns.
_PENALTIES_BY_ROW = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)


def _is_known(regularizer: Any) -> bool:
    """Return whether what an ``activity_regularizer`` adds is a mean over rows."""
    return regularizer is None or (type(regularizer) in _PENALTIES_BY_ROW and averages_activity())
