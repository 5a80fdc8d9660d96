"""The user's callbacks on their way to the first worker, and what they hold on the way back."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from dask_train.errors import CheckpointError

# What Keras sets on a callback; the model stays where it is.
_KERAS_OWN = ("_model", "params")


class Held(NamedTuple):
    """What one callback holds, for those that go on with a checkpoint.

    Attributes
    ----------
    name
        Of its class.
    state
        Pickled; empty where it can't be.
    """

    name: str
    state: bytes


def send_callbacks(callbacks: Sequence[Any]) -> bytes:
    """The callbacks, pickled, without the model that an earlier ``fit`` has set on them.

    Raises
    ------
    TypeError
        One of them holds something that can't be sent; the message names it.
    """
    parts = []
    for callback in callbacks:
        try:
            parts.append(cloudpickle.dumps((type(callback), _held(callback))))
        except Exception as error:
            raise TypeError(
                f"Callback {type(callback).__name__} can't be sent to the first worker, where callbacks run: "
                f"{type(error).__name__}: {error}. It holds a lock, a file or a connection; open that in "
                "on_train_begin instead."
            ) from error
    return pickle.dumps(parts)


def open_callbacks(sent: bytes) -> list[Any]:
    """The callbacks, in the first worker."""
    callbacks = []
    for part in pickle.loads(sent) if sent else []:  # noqa: S301 - sent by the client, as all Dask tasks are
        cls, held = pickle.loads(part)  # noqa: S301
        callback = cls.__new__(cls)
        callback.__dict__.update({"params": None, "_model": None, **held})
        callbacks.append(callback)
    return callbacks


def states_of(callbacks: Sequence[Any]) -> list[bytes]:
    """What each callback holds now, pickled; empty for one that holds what can't be."""
    found = []
    for callback in callbacks:
        try:
            found.append(cloudpickle.dumps(_held(callback)))
        except Exception:
            found.append(b"")
    return found


def held_by(callbacks: Sequence[Any]) -> list[Held]:
    """What each callback holds now."""
    return [Held(type(one).__qualname__, state) for one, state in zip(callbacks, states_of(callbacks), strict=True)]


def matched(callbacks: Sequence[Any], kept: Sequence[Held]) -> tuple[list[bytes], list[str]]:
    """For each callback what one of the same class held, the first for the first; and which could not be kept.

    Others than were there then begin anew.

    Raises
    ------
    CheckpointError
        What one held can't be read here.
    """
    waiting, states, lost = list(kept), [], []
    for callback in callbacks:
        name = type(callback).__qualname__
        held = next((each for each in waiting if each.name == name), None)
        if held is None:
            states.append(b"")
            continue
        waiting.remove(held)
        states.append(held.state)
        if not held.state:
            lost.append(name)
            continue
        try:
            pickle.loads(held.state)  # noqa: S301 - from the place that the user keeps checkpoints in
        except Exception as error:
            raise CheckpointError(
                f"What callback {name} held can't be read from the checkpoint: {type(error).__name__}: {error}.",
                "It is pickled, and a class or module that it uses has moved or changed since.",
                "Make that importable as it was then, or leave the callback out.",
            ) from error
    return states, lost


def take_states(callbacks: Sequence[Any], states: Sequence[bytes]) -> None:
    """Let callbacks hold what others held that were sent."""
    for callback, held in zip(callbacks, states, strict=False):
        if held:
            callback.__dict__.update(pickle.loads(held))  # noqa: S301 - from our own role process


def _held(callback: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(callback).items() if name not in _KERAS_OWN}
