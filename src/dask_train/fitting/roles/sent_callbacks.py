"""The user's callbacks on their way to the first worker, and what they hold on the way back."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from dask_train.errors import CheckpointError
from dask_train.fitting.roles.pickled_parts import dumps_with_parts, keys_by_id
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

    What else refers to the model, or to a part of it, refers to that of the first worker there.

    Raises
    ------
    TypeError
        One of them holds something that can't be sent; the message names it.
    """
    if not callbacks:
        return b""
    variables = variables or Variables()
    attributes_of_each = [(type(callback), _held(callback)) for callback in callbacks]
    try:
        # In one pickle, so that what callbacks share they share there, too.
        return _dumps((attributes_of_each, variables.sent, list(variables.parts)), variables.parts)
    except Exception as error:
        names = [cls.__name__ for cls, _ in attributes_of_each]
        can_travel = [_can_travel(each, variables.parts) for each in attributes_of_each]
        name = names[can_travel.index(False) if False in can_travel else 0]
        text = f"Callback {name} can't be sent to the first worker, where callbacks run"
        if isinstance(error, _SharedLayerError):
            raise TypeError(f"{text}: {error}") from error
        raise TypeError(
            f"{text}: {type(error).__name__}: {error}. "
            "It holds a lock, a file or a connection; open that in on_train_begin instead."
        ) from error


class _SharedLayerError(TypeError):
    """A callback holds another model, which has a layer of the one that is trained."""


def _dumps(value: Any, parts: dict[str, Any]) -> bytes:
    if not parts:
        return bytes(cloudpickle.dumps(value))
    from dask_train.keras_models.parts import trained_within

    def check(each: Any) -> None:
        if (layer := trained_within(each, parts)) is not None:
            raise _SharedLayerError(
                f"it holds the model {each.name!r}, which has the layer {layer.name!r} of the model that is trained, "
                "and would get a copy of it, which training does not change. Make that model in on_train_begin, of "
                "the layers of self.model."
            )

    return dumps_with_parts(value, keys_by_id(parts), check)


def _can_travel(value: Any, parts: dict[str, Any]) -> bool:
    try:
        _dumps(value, parts)
    except Exception:
        return False
    return True


def open_callbacks(sent: bytes, parts: Mapping[str, Any] | None = None) -> tuple[list[Any], Variables]:
    """Return the callbacks, in the first worker, and the variables that they use.

    Parameters
    ----------
    sent
        By the client.
    parts
        Of the model that is trained here, by keys.
    """
    if not sent:
        return [], Variables()
    callbacks, parts = [], dict(parts or {})
    attributes_of_each, variables, keys = Variables(parts=parts).reader({})(sent)
    for cls, attributes in attributes_of_each:
        callback = cls.__new__(cls)
        callback.__dict__.update({"params": None, "_model": None, **attributes})
        callbacks.append(callback)
    # Without others, which could not be read where the callbacks come from.
    return callbacks, Variables.opened(variables, callbacks, {key: parts[key] for key in keys if key in parts})


def states_of(callbacks: Sequence[Any], variables: Variables) -> list[bytes]:
    """Pickle what each callback holds now; empty if that can't be. The last one is that of variables."""
    return _pickled([_held(callback) for callback in callbacks], variables)


def progress_of(callbacks: Sequence[Any], parts: Mapping[str, Any] | None = None) -> list[CallbackProgress]:
    """Return the progress of each callback, before training begins; ``parts`` are those of the model, by keys."""
    return [CallbackProgress(each, _without_progress(each), parts) for each in callbacks]


def held_by(callbacks: Sequence[CallbackProgress], variables: Variables) -> list[CallbackState]:
    """Return what training has changed in each callback so far, and in the variables."""
    names = [*(type(one.callback).__qualname__ for one in callbacks), _VARIABLES]
    states = _pickled([_without_copies(one.changed(), variables.parts) for one in callbacks], variables)
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


def _without_copies(attributes: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Leave out models that have layers of the one that is trained: of a checkpoint they would have copies.

    Callbacks that continue have made them of their own model when training began.
    """
    if not parts:
        return attributes
    from dask_train.keras_models.parts import holds_trained

    return {name: value for name, value in attributes.items() if not holds_trained(value, parts)}


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
