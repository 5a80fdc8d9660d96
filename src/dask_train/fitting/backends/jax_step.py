"""A step of a Keras model on JAX: what variables hold goes in, and what they are to hold comes out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
import keras

from dask_train.fitting.backends.base import OTHER_ROWS, flat
from dask_train.fitting.backends.jax_trial import Found, check_step, is_mean_of_other_rows
from dask_train.fitting.backends.tried_gathers import TriedGathers
from dask_train.keras_models.jax_calls import exact_calls

# In what a step of training takes: those of optimizers are among it.
NUM_TRAINED = 4

# JAX keeps what it has traced of a function that a user has put under ``jax.jit``, by the types of its arguments, and
# would take a step in earnest as it took one that was tried. Traces of another value of this context are others. An
# older JAX has no such contexts: there such functions run as they are written in steps that are tried.
_traces_of: Callable[[Any], AbstractContextManager[None]] | None
_traces_of = jax.make_user_context() if hasattr(jax, "make_user_context") else None
_step_numbers = itertools.count()


def functions_run_as_written() -> AbstractContextManager[None]:
    """Let no function under ``jax.jit`` be traced while it lasts, where steps can't have traces of their own."""
    return nullcontext() if _traces_of is not None else jax.disable_jit()


class StepInHand:
    """What a backend on JAX knows of the step that is made or taken.

    Attributes
    ----------
    traces
        Whether it is traced, so that numbers are only noted.
    step
        The step itself; None between two.
    gradients
        Gives the gradients of a step that is tried; None of others.
    gathers
        What plays the other workers in these.
    global_rows
        How many rows all workers have in the step.
    doubt
        Why it is not known, of a step that was tried, whether workers compute what one does.
    """

    doubt: str | None = None

    def __init__(self) -> None:
        self.traces = False
        self.step: JaxStep | None = None
        self.gradients: Callable[[], list[Any]] | None = None
        self.gathers = TriedGathers()
        self.global_rows: Callable[[], int] = int

    @contextmanager
    def taking(self, step: JaxStep, *, traces: bool) -> Iterator[None]:
        """While it lasts, a step is made; where it is traced, all is only noted, also of numbers that are here."""
        before = self.traces, self.step
        self.traces, self.step = traces, step
        try:
            yield
        finally:
            self.traces, self.step = before


class JaxStep:
    """A step of a model, which takes what its variables hold, and lets them hold what it returns.

    Attributes
    ----------
    is_own
        Whether losses and gradients are put together by the user's own code.
    raw
        See :class:`Derived`.

    Parameters
    ----------
    now
        Of its backend.
    step
        Keras' ``train_step`` or ``test_step``.
    model : keras.Model
        Whose it is.
    """

    def __init__(self, now: StepInHand, step: Callable[..., Any], model: Any) -> None:
        self._now, self._step, self._model = now, step, model
        self._trains = step != model.test_step
        self._is_jitted = not model.run_eagerly and model.jit_compile
        self._function = jax.jit(self._begun, static_argnums=2) if self._is_jitted else self._begun
        own = [name for name in ("train_step", "compute_loss") if is_own(model, name)]
        self.is_own, self._has_own_logs = bool(own), self._trains and "train_step" in own
        self.raw: frozenset[str] = frozenset()
        self._step_number = next(_step_numbers)
        self._by_row: dict[int, bool] = {}  # losses that are added, by their number
        self._number = self._rows = 0

    def __call__(self, batch: Any) -> Any:
        variables = variables_of(self._model, trains=self._trains)
        values = tuple([variable.value for variable in some] for some in variables)
        # What has to wait for its inputs runs in a thread of JAX's pool, also without asynchronous dispatch. If that is
        # the only one, its callback waits for ever for the arguments, which the pool is to copy.
        jax.block_until_ready((values, batch))
        if self._now.gradients is not None:
            return self._try(values, batch)
        logs, new_values = self._function(values, batch, self._now.global_rows())
        jax.effects_barrier()  # what comes next may go to the same processes, in an order that all keep
        for some, before, after in zip(variables, values, new_values, strict=True):
            for variable, old, new in zip(some, before, after, strict=True):
                if new is not old:
                    variable.assign(new)
        return logs

    def is_by_row(self, loss: Any, *, tries: bool) -> bool:
        """Return whether that loss, which is added next, has values by row."""
        number, self._number = self._number, self._number + 1
        if tries:
            has_row_values = len(loss.shape) > 0 and loss.shape[0] == self._rows
            self._by_row[number] = has_row_values and self._by_row.get(number, True)
        return self._by_row.get(number, False)

    def _begun(self, values: Any, batch: Any, global_rows: int = 0) -> Any:  # another one, traced anew
        """Return the step, as it is traced or run eagerly."""
        self._number, self._rows = 0, jax.tree.leaves(batch)[0].shape[0]
        traces = self._is_jitted and not jax.config.jax_disable_jit
        with self._now.taking(self, traces=traces), exact_calls(), self._own_traces(global_rows):
            return self._step(values, batch)

    def _own_traces(self, global_rows: int) -> AbstractContextManager[None]:
        key = (self._step_number, self._now.gradients is not None, global_rows)
        return nullcontext() if _traces_of is None else _traces_of(key)

    def _try(self, values: Any, batch: Any) -> None:
        def tried(values: Any, batch: Any) -> Found:
            logs, new_values = self._begun(values, batch)
            assert self._now.gradients is not None
            gradients = self._now.gradients()
            if not self._has_own_logs:  # metrics are not used, and need not be compiled
                return Found({}, [], {}, gradients)
            pairs = list(zip(self._model.metrics_variables, new_values[-1], strict=True))
            with keras.StatelessScope(pairs):
                results = dict(self._model.get_metrics_result())
            return Found(flat(logs), new_values[-1], results, gradients)

        try:
            self._check(jax.jit(tried) if self._is_jitted else tried, values, batch)
        except (jax.errors.UnexpectedTracerError, jax.errors.TracerArrayConversionError):
            # Gradients can't leave a train_step that is itself under jax.jit.
            self._now.gathers.forget()
            if self._now.gradients is not None:
                self._now.gradients()  # those that were noted until then are tracers
            with jax.disable_jit():
                self._check(tried, values, batch)

    def _check(self, tried: Callable[[Any, Any], Found], values: Any, batch: Any) -> None:
        gathers = self._now.gathers
        self.raw = check_step(tried, values, batch, gathers, model=self._model, looks_at_logs=self._has_own_logs)
        if not is_mean_of_other_rows(tried, values, batch, gathers, self._model):
            self._now.doubt = OTHER_ROWS


def variables_of(model: Any, *, trains: bool) -> tuple[list[Any], ...]:
    """Return the variables of a model in the order in which Keras' steps take what they hold."""
    optimizers = [model.optimizer.variables] if trains else []
    return (model.trainable_variables, model.non_trainable_variables, *optimizers, model.metrics_variables)


def is_own(model: Any, name: str) -> bool:
    """Return whether that method of a model is not Keras' own."""
    return getattr(type(model), name) is not getattr(keras.Model, name)
