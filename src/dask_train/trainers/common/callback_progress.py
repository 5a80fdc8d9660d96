"""The progress of a callback, apart from its arguments, so that a call that resumes can pass other arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import FunctionType
from typing import Any

from dask_train.identity.code import module_of
from dask_train.identity.digest import digest


class CallbackProgress:
    """Tell which attributes of a callback training has changed: counters, best scores, and the like.

    The others are arguments: a call that resumes has its own. An attribute that was changed once belongs to the
    progress for good, though it may come to hold again what it held at first.

    Parameters
    ----------
    callback
        As it is before training begins.
    left_out
        Names of attributes that are neither progress nor arguments. Default: none.
    parts
        Of the model, by keys: training changes what they hold, and not what the callback was passed. Default: none.

    Examples
    --------
    >>> progress = CallbackProgress(callback)  # before training begins
    >>> kept = progress.changed()  # for a checkpoint
    >>> CallbackProgress(callback_of_another_call).take(kept)
    """

    def __init__(self, callback: Any, left_out: Collection[str] = (), parts: Mapping[str, Any] | None = None) -> None:
        self.callback, self._left_out = callback, frozenset(left_out)
        self._parts = dict(parts or {})  # kept, so that no other object gets the id of one
        self._names = {id(part): key for key, part in self._parts.items()}
        self._began = {name: self._digest(value) for name, value in self._attributes().items()}
        self._changed: set[str] = set()

    def note(self) -> None:
        """Note which attributes differ from those at the beginning; those that can't be compared count as changed."""
        for name, value in self._attributes().items():
            if name not in self._changed:
                began = self._began.get(name)
                if began is None or began != self._digest(value):
                    self._changed.add(name)

    def changed(self) -> dict[str, Any]:
        """Return the attributes that training has changed so far, as they are now; not copied."""
        self.note()
        return {name: value for name, value in self._attributes().items() if name in self._changed}

    def take(self, changed: Mapping[str, Any]) -> None:
        """Let the callback continue the progress of another one, as its :meth:`changed` has returned it."""
        vars(self.callback).update(changed)
        self._changed.update(changed)

    def arguments(self) -> dict[str, str]:
        """Return a digest of each attribute that training has not changed, which is the same in other processes."""
        self.note()
        return {name: value for name, value in self._began.items() if value is not None and name not in self._changed}

    def has_arguments(self, arguments: Mapping[str, str]) -> bool:
        """Return whether the callback was passed with the :meth:`arguments` of another one."""
        return all(self._began.get(name) == value for name, value in arguments.items())

    def _attributes(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self.callback).items() if name not in self._left_out}

    def _digest(self, value: Any) -> str | None:
        try:
            return digest(value, names=self._names)
        except Exception:  # such as of a lock, or of an object whose own method for pickle fails
            return None


def without_code(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out functions that travel by value: a checkpoint must not bring back code of then."""
    return {
        name: value
        for name, value in attributes.items()
        if not (isinstance(value, FunctionType) and module_of(value) is None)
    }
