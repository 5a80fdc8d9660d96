"""The moment at which optimizers apply gradients, for every optimizer of a process, wherever it is kept.

It can be put behind all else of a step: what is a worker's own is known before the last sum then.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import keras

from dask_train.compat.keras.optimizers import step_count, trained_variables
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.aside import is_aside, is_rehearsed, note_gradients
from dask_train.keras_models.custom_objects import STANDS_IN_FOR

# Called in place of an optimizer's ``apply``: optimizer, gradients, their variables, and the call that continues with
# gradients.
Instead = Callable[[Any, list[Any], list[Any], Callable[[Sequence[Any]], Any]], Any]


@contextmanager
def at_every_apply(instead: Instead) -> Iterator[None]:
    """While it lasts, ``instead`` is called when any Keras optimizer is to apply gradients in a step of this process.

    Parameters
    ----------
    instead
        Called as ``instead(optimizer, gradients, variables, go_on)``, in a step as it is traced, or run eagerly. What
        the optimizer would have done it does when ``go_on`` is called with gradients.

    Notes
    -----
    Methods of classes are replaced, so that it does not matter where an optimizer is held, nor when it is made. The
    outermost call counts: a loss scaler is given what is scaled, and a subclass what it is to change before it calls
    its ``super()``; calls within are passed through.
    """
    within = threading.local()
    with ExitStack() as undone:
        for cls, name in _methods():
            original = vars(cls)[name]
            stand_in = _WRAPPERS[name](original, instead, within)
            setattr(stand_in, STANDS_IN_FOR, original)  # classes of the user's own travel meanwhile
            setattr(cls, name, stand_in)
            undone.callback(setattr, cls, name, original)
        yield


def _applying(original: Callable[..., Any], instead: Instead, within: threading.local) -> Callable[..., Any]:
    """Return an ``apply`` that calls ``instead``."""

    @wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if is_rehearsed():
            note_gradients(grads)
            return step_count(self)
        if getattr(within, "apply", False) or is_aside():
            return original(self, grads, trainable_variables)
        variables = trained_variables(self) if trainable_variables is None else trainable_variables
        explicit_variables = None if trainable_variables is None else list(variables)
        return _outermost(
            within,
            instead,
            self,
            list(grads),
            list(variables),
            lambda grads: original(self, list(grads), explicit_variables),
        )

    return apply


def _applying_pairs(original: Callable[..., Any], instead: Instead, within: threading.local) -> Callable[..., Any]:
    """Do as :func:`_applying`, of ``apply_gradients``."""

    @wraps(original)
    def apply_gradients(self: Any, grads_and_vars: Any) -> Any:
        pairs = list(grads_and_vars)
        if is_rehearsed():
            note_gradients(gradient for gradient, _ in pairs)
            return step_count(self)
        if getattr(within, "apply", False) or is_aside() or not pairs:
            return original(self, pairs)
        grads, variables = map(list, zip(*pairs, strict=True))
        return _outermost(
            within,
            instead,
            self,
            grads,
            variables,
            lambda grads: original(self, list(zip(grads, variables, strict=True))),
        )

    return apply_gradients


def _applying_statelessly(
    original: Callable[..., Any], instead: Instead, within: threading.local
) -> Callable[..., Any]:
    """As :func:`_applying`, of ``stateless_apply``, in which a loss scaler of Keras on JAX looks at gradients first."""

    @wraps(original)
    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        if is_rehearsed():
            note_gradients(grads)
            return trainable_variables, optimizer_variables
        if getattr(within, "apply", False) or is_aside():
            return original(self, optimizer_variables, grads, trainable_variables)
        variables, optimizer_state = list(trained_variables(self)), list(self.variables)
        every = [*variables, *optimizer_state]

        def go_on(grads: Sequence[Any]) -> None:
            new_values = original(self, optimizer_variables, list(grads), trainable_variables)
            for variable, value in zip(every, itertools.chain(*new_values), strict=True):
                variable.assign(value)  # in the scope below; or in another one, where this is called later

        values = zip(every, [*trainable_variables, *optimizer_variables], strict=True)
        with keras.StatelessScope(list(values)) as scope:
            _outermost(within, instead, self, list(grads), variables, go_on)
        now = [[scope.get_current_value(variable) for variable in some] for some in (variables, optimizer_state)]
        return now[0], now[1]

    return stateless_apply


_WRAPPERS = {"apply": _applying, "apply_gradients": _applying_pairs, "stateless_apply": _applying_statelessly}


def _outermost(
    within: threading.local,
    instead: Instead,
    optimizer: Any,
    grads: list[Any],
    variables: list[Any],
    go_on: Callable[[Sequence[Any]], Any],
) -> Any:
    def go_on_within(grads: Sequence[Any]) -> Any:  # which may be put off until ``instead`` has returned
        with _marked(within):
            return go_on(grads)

    with _marked(within):
        return instead(optimizer, grads, variables, go_on_within)


@contextmanager
def _marked(within: threading.local) -> Iterator[None]:
    before = getattr(within, "apply", False)
    within.apply = True
    try:
        yield
    finally:
        within.apply = before


def _methods() -> Iterator[tuple[type, str]]:
    """Give the methods of all optimizers by which gradients come in."""
    waiting = [cls for cls in keras.optimizers.Optimizer.__mro__ if any(name in vars(cls) for name in _WRAPPERS)]
    seen: list[type] = []
    while waiting:
        cls = waiting.pop()
        if cls not in seen:
            seen.append(cls)
            waiting.extend(cls.__subclasses__())
            yield from ((cls, name) for name in _WRAPPERS if name in vars(cls))


class ApplyLast:
    """Lets steps apply gradients when all else in them is done, and reports the moment before.

    At that moment a worker's moving averages, random numbers and metrics are what they will be after the step, and no
    worker has passed the last sum of the step. So a worker that passes it knows that all others have noted what is
    their own.

    Parameters
    ----------
    backend, model
        Whose steps they are.
    own
        Returns the variables that are this worker's own.
    known
        Called in each step, at that moment.
    """

    def __init__(
        self, backend: Backend, model: Any, own: Callable[[], Sequence[Any]], known: Callable[[], None]
    ) -> None:
        self._backend, self._model, self._own, self._known = backend, model, own, known
        self._waiting: list[Callable[[], Any]] | None = None

    def step(self, train_step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a ``train_step`` of Keras' own that applies gradients last; it takes and returns the same."""

        def taken(*arguments: Any) -> Any:
            self._waiting = []
            try:
                outcome = train_step(*arguments)
            finally:
                waiting, self._waiting = self._waiting, None
            if len(waiting) > 1:
                raise ValueError(
                    "Gradients are applied several times in a step, and with recovery='in_place' they are once. Leave "
                    "recovery= out."
                )
            for apply in waiting:
                outcome = self._backend.at_end(outcome, self._model, partial(self._apply_last, apply))
            return outcome

        return taken

    def _apply_last(self, apply: Callable[[], Any]) -> None:
        known = self._backend.at_this_point(self._known, self._own())
        with self._backend.after(known):
            apply()

    def put_off(self, apply: Callable[[], Any]) -> Any:
        """Apply gradients when the rest of the current step is done; at once outside steps."""
        if self._waiting is None:
            return apply()
        self._waiting.append(apply)
        return None
