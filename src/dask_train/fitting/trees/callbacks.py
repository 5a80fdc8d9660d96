"""Callbacks of boosted trees: what is kept of them with a round, and what those of a call that resumes take over."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MethodType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from dask_train.errors import CheckpointError
from dask_train.trainers.common.callback_progress import CallbackProgress, without_code


class CallbackChanges(NamedTuple):
    """What training has changed in one callback.

    Attributes
    ----------
    name
        Of its class; of a function its own.
    attributes
        Those that differ from what was passed, by name.
    """

    name: str
    attributes: dict[str, Any]


class KeptCallbacks:
    """The callbacks of one rank.

    Where workers of the same call start again, they are those of the round that is continued, whole. In another call
    they are the ones that were passed to it, and each takes over what training had changed in one of its class.

    Parameters
    ----------
    callbacks
        As they are before training begins.
    run
        That of the task, which each call has its own of.
    looks_at
        Attributes by which callbacks of a class choose the score that they look at: one that is to look at another
        score than its predecessor begins anew. Default: there are none.
    leaves_out
        Whether one that can't be pickled is left out of what is kept, and begins anew. Default: it is an error.

    Attributes
    ----------
    callbacks
        Those that run; the same list for good.
    resumed
        Whether they continue those of an earlier call.
    unmatched
        Those that begin anew: there was none of their class, or it looked at another score, or was left out.
    as_before
        Whether the earlier ones are all there, with the arguments of then, so that what they have ended stays ended.
    """

    def __init__(
        self,
        callbacks: Sequence[Any],
        run: str,
        looks_at: Mapping[type[Any], Collection[str]] | None = None,
        *,
        leaves_out: bool = False,
    ) -> None:
        self.callbacks, self._looks_at, self._leaves_out = list(callbacks), looks_at or {}, leaves_out
        self.resumed, self.unmatched, self.as_before = False, list[Any](), True
        self._left_out: list[str] = []  # names of those that begin anew as they were left out
        self._passed, self._run = tuple(callbacks), run
        self._progress = list(map(_progress_of, callbacks))

    def dumps(self, *others: Any) -> bytes:
        """Pickle them, with other values, in one: what they share they share there, too."""
        progress = [
            (_name_of(each), one.arguments(), one.changed())
            for each, one in zip(self.callbacks, self._progress, strict=True)
        ]
        try:
            return bytes(cloudpickle.dumps((self._run, self.callbacks, progress, others)))
        except Exception:
            if not self._leaves_out:
                raise
        callbacks = [each if _can_be_pickled(each) else None for each in self.callbacks]
        kept = [(name, known, changed if _can_be_pickled(changed) else None) for name, known, changed in progress]
        return bytes(cloudpickle.dumps((self._run, callbacks, kept, others)))

    def take(self, content: bytes) -> tuple[Any, ...]:
        """Continue those that were pickled; return the other values.

        Raises
        ------
        CheckpointError
            They can't be read here.
        """
        try:
            run, callbacks, saved, others = pickle.loads(content)  # noqa: S301 - from our own roles, or a checkpoint
        except Exception as error:
            raise CheckpointError(
                f"The callbacks of the checkpoint can't be read: {type(error).__name__}: {error}.",
                "They are pickled. A class or module that they use has moved or changed since, or an earlier version "
                "of dask-train has written them.",
                "Make that importable as it was then, or pass checkpoint= another folder to begin anew.",
            ) from error
        if run == self._run:
            for place, (callback, (name, _, changed)) in enumerate(zip(callbacks, saved, strict=True)):
                if callback is None:
                    self._begin_anew(self.callbacks[place], name)
                    continue
                self.callbacks[place], progress = callback, self._progress[place]
                progress.callback = _holder_of(callback)
                progress.take(changed or {})
        else:
            self._take_progress(saved)
        return tuple(others)

    def changes_of(self, passed: Sequence[Any]) -> list[CallbackChanges]:
        """Return what training has changed in each of the callbacks that were passed."""
        changed = {id(was): one.changed() for was, one in zip(self._passed, self._progress, strict=True)}
        # XGBoost takes one of several that are equal.
        return [CallbackChanges(_name_of(each), changed.get(id(each), {})) for each in passed]

    def tell_of_left_out(self, notice: Callable[[str], None]) -> None:
        """Tell which callbacks begin anew since what they held could not be kept."""
        for name in self._left_out:
            notice(f"Callback {name} begins anew: what it held can't be pickled, so no checkpoint has it.")

    def _begin_anew(self, callback: Any, name: str) -> None:
        self.unmatched.append(callback)
        self._left_out.append(name)

    def _take_progress(self, saved: Sequence[tuple[str, dict[str, str], dict[str, Any] | None]]) -> None:
        self.resumed, waiting = True, list(saved)
        for callback, progress in zip(self.callbacks, self._progress, strict=True):
            own = next((each for each in waiting if each[0] == _name_of(callback)), None)
            if own is None:
                self.unmatched.append(callback)
                continue
            waiting.remove(own)
            name, arguments, changed = own
            self.as_before &= progress.has_arguments(arguments)
            if changed is None:
                self._begin_anew(callback, name)
                continue
            if not progress.has_arguments(self._of_score(callback, arguments)):
                self.unmatched.append(callback)
                continue
            progress.take(_in_own_dicts(progress.callback, without_code(changed)))
        self.as_before &= not waiting

    def _of_score(self, callback: Any, arguments: Mapping[str, str]) -> dict[str, str]:
        """Return those arguments of a callback that choose the score that it looks at."""
        names = {name for kind, own in self._looks_at.items() if isinstance(callback, kind) for name in own}
        return {name: value for name, value in arguments.items() if name in names}


def travelling(changes: Sequence[CallbackChanges], notice: Callable[[str], None]) -> list[CallbackChanges]:
    """Return those changes of callbacks that can be pickled; ``notice`` is called with the names of the others."""
    pickled = [
        each._replace(attributes={name: value for name, value in each.attributes.items() if _can_be_pickled(value)})
        for each in changes
    ]
    left_out = [
        f"{each.name}.{attribute}"
        for each, sent in zip(changes, pickled, strict=True)
        for attribute in each.attributes
        if attribute not in sent.attributes
    ]
    if left_out:
        notice(
            f"Callbacks have changed {', '.join(left_out)} in the first worker's process, and it stays as it was here, "
            "since it can't be pickled. Let them gather numbers, text and arrays in other attributes."
        )
    return pickled


def take_changes(callbacks: Sequence[Any], changes: Sequence[CallbackChanges], model: Any) -> None:
    """Let the user's callbacks hold what training has changed in those of the first rank.

    A dict that was passed is filled, and an attribute that is the user's estimator stays so. With ``workers=0`` these
    may be the very same objects, or share their dicts.
    """
    for callback, (_, attributes) in zip(callbacks, changes, strict=False):
        holder = _holder_of(callback)
        left = {name for name, value in vars(holder).items() if value is model}
        own = _in_own_dicts(holder, {name: value for name, value in attributes.items() if name not in left})
        vars(holder).update(own)  # not by setattr: objects may be frozen


def _in_own_dicts(callback: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for attributes of a callback; in place of a dict its own one, filled, which the user may hold."""
    attributes = {}
    for name, value in values.items():
        own = getattr(callback, name, None)
        if isinstance(own, dict) and isinstance(value, dict) and own is not value:
            own.clear()
            own.update(value)
            attributes[name] = own
        else:
            attributes[name] = value
    return attributes


def _holder_of(callback: Any) -> Any:
    """Return the object whose attributes a callback changes: of a method the object that it is bound to."""
    owner = callback.__self__ if isinstance(callback, MethodType) else None
    return owner if hasattr(owner, "__dict__") and not isinstance(owner, type) else callback


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # of code of the user's
        return False
    return True


def _progress_of(callback: Any) -> CallbackProgress:
    holder = _holder_of(callback)
    # LightGBM sets the order of functions and callable objects by their places in this call.
    return CallbackProgress(holder, left_out=("order",) if holder is callback else ())


def _name_of(callback: Any) -> str:
    """Return the name of its class; of a function its own."""
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))
