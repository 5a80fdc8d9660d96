"""The user's callbacks on their way to the first worker, and what they hold on the way back."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from dask_train.errors import CheckpointError
from dask_train.fitting.roles.variables import Variables
from dask_train.trainers.common.callback_progress import CallbackProgress, without_code

# What Keras sets on a callback; the model stays where it is.
_KERAS_OWN = ("_model", "params")
# What Keras' callbacks that monitor a score derive from their arguments at the end of their first epoch.
_DERIVED = ("monitor_op", "min_delta")
# The name under which variables are kept with callbacks.
_VARIABLES = "the variables of callbacks"
# The name under which is kept that callbacks have ended training, with their arguments.
_ENDED = "ended by callbacks"
# Keras' own callbacks that never stop training.
_NEVER_STOP = (
    "BackupAndRestore",
    "CSVLogger",
    "History",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "RemoteMonitor",
    "SwapEMAWeights",
    "TensorBoard",
)


class CallbackState(NamedTuple):
    """What one callback holds, for those that resume from a checkpoint.

    Attributes
    ----------
    name
        Of its class.
    state
        Pickled; empty if it can't be.
    """

    name: str
    state: bytes


def send_callbacks(callbacks: Sequence[Any], variables: Variables | None = None) -> bytes:
    """Pickle the callbacks and the variables that they use, without the model that ``fit`` set on them.

    Raises
    ------
    TypeError
        One of them holds something that can't be sent; the message names it.
    """
    parts = [(type(callback), _held(callback)) for callback in callbacks]
    try:
        # In one pickle, so that what callbacks share they share there, too.
        return bytes(cloudpickle.dumps((parts, [] if variables is None else variables.sent)))
    except Exception as error:
        name = next(
            (cls.__name__ for cls, attributes in parts if not _can_travel((cls, attributes))), parts[0][0].__name__
        )
        raise TypeError(
            f"Callback {name} can't be sent to the first worker, where callbacks run: {type(error).__name__}: {error}. "
            "It holds a lock, a file or a connection; open that in on_train_begin instead."
        ) from error


def _can_travel(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def open_callbacks(sent: bytes) -> tuple[list[Any], Variables]:
    """Return the callbacks, in the first worker, and the variables that they use."""
    if not sent:
        return [], Variables()
    callbacks = []
    parts, variables = pickle.loads(sent)  # noqa: S301 - sent by the client, as all Dask tasks are
    for cls, attributes in parts:
        callback = cls.__new__(cls)
        callback.__dict__.update({"params": None, "_model": None, **attributes})
        callbacks.append(callback)
    return callbacks, Variables.opened(variables, callbacks)


def states_of(callbacks: Sequence[Any], variables: Variables) -> list[bytes]:
    """Pickle what each callback holds now; empty if that can't be. The last one is that of variables."""
    return _pickled([_held(callback) for callback in callbacks], variables)


def progress_of(callbacks: Sequence[Any]) -> list[CallbackProgress]:
    """Return the progress of each callback, before training begins."""
    return [CallbackProgress(each, _without_progress(each)) for each in callbacks]


def held_by(callbacks: Sequence[CallbackProgress], variables: Variables) -> list[CallbackState]:
    """Return what training has changed in each callback so far, and in the variables."""
    names = [*(type(one.callback).__qualname__ for one in callbacks), _VARIABLES]
    states = _pickled([one.changed() for one in callbacks], variables)
    return [CallbackState(name, state) for name, state in zip(names, states, strict=True)]


def ended_by(callbacks: Sequence[CallbackProgress]) -> CallbackState:
    """Return that callbacks have ended training, with the arguments of each that may have done so."""
    return CallbackState(_ENDED, json.dumps([[name, one.arguments()] for name, one in _may_stop(callbacks)]).encode())


def has_ended(callbacks: Sequence[CallbackProgress], saved: Sequence[CallbackState]) -> bool:
    """Return whether callbacks have ended training that these would end, too: they were passed the same arguments."""
    ended = next((each.state for each in saved if each.name == _ENDED), None)
    if ended is None:
        return False
    waiting = _may_stop(callbacks)
    for name, arguments in json.loads(ended):
        same = next((each for each in waiting if each[0] == name and each[1].has_arguments(arguments)), None)
        if same is None:
            return False
        waiting.remove(same)
    return True


def _may_stop(callbacks: Sequence[CallbackProgress]) -> list[tuple[str, CallbackProgress]]:
    classes = [(type(one.callback), one) for one in callbacks]
    never = [cls.__module__.startswith("keras.") and cls.__name__ in _NEVER_STOP for cls, _ in classes]
    return [(cls.__qualname__, one) for (cls, one), left_out in zip(classes, never, strict=True) if not left_out]


def _pickled(attributes_of_each: Sequence[dict[str, Any]], variables: Variables) -> list[bytes]:
    states, used = [], set[str]()
    for attributes in attributes_of_each:
        try:
            states.append(variables.dumps(without_code(attributes), used))
        except Exception:
            states.append(b"")
    return [*states, pickle.dumps(variables.states(used))]


def matched(
    callbacks: Sequence[Any], saved: Sequence[CallbackState], variables: Variables
) -> tuple[list[bytes], list[str]]:
    """Return for each callback what one of the same class held, the first for the first; and which could not be kept.

    Others than were there then begin anew. The last is that of variables, which are matched by their names.

    Raises
    ------
    CheckpointError
        What one held can't be read here.
    """
    waiting, states, lost = list(saved), [], []
    of_variables = next((each.state for each in saved if each.name == _VARIABLES), b"")
    for callback in callbacks:
        name = type(callback).__qualname__
        own = next((each for each in waiting if each.name == name), None)
        if own is None:
            states.append(b"")
            continue
        waiting.remove(own)
        states.append(own.state)
        if not own.state:
            lost.append(name)
            continue
        try:
            variables.reader(_unpickled(of_variables))(own.state)
        except Exception as error:
            raise CheckpointError(
                f"What callback {name} held can't be read from the checkpoint: {type(error).__name__}: {error}.",
                "It is pickled, and a class or module that it uses has moved or changed since.",
                "Make that importable as it was then, or leave the callback out.",
            ) from error
    return [*states, of_variables], lost


def take_states(
    callbacks: Sequence[Any], states: Sequence[bytes], variables: Variables, *, keep_changed: bool = False
) -> list[str]:
    """Let callbacks hold what others held that were sent, and variables, but those that have changed here meanwhile.

    Parameters
    ----------
    callbacks
        The callbacks, or the progress of each.

    Returns
    -------
    list of str
        The names of these, where they are kept.
    """
    if not states:
        return []
    *of_callbacks, of_variables = states
    known = _unpickled(of_variables)
    read = variables.reader(known)
    for callback, state in zip(callbacks, of_callbacks, strict=False):
        if state:
            take = callback.take if isinstance(callback, CallbackProgress) else vars(callback).update
            take(read(state))
    return variables.take(known, keep_changed=keep_changed)


def _unpickled(states: bytes) -> dict[str, bytes]:
    return dict(pickle.loads(states)) if states else {}  # noqa: S301 - from our own role process, or a checkpoint


def _held(callback: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(callback).items() if name not in _KERAS_OWN}


def _without_progress(callback: Any) -> tuple[str, ...]:
    """Return names of attributes that a callback has from Keras, or sets anew from its arguments."""
    return (*_KERAS_OWN, *(_DERIVED if hasattr(callback, "monitor_op") else ()))
