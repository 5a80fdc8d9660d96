"""A digest of any value that travels, the same in each process: of numbers, text, arrays, objects and code.

Pickles are no identity: they tell which equal objects are one, hold random names of classes and addresses, and name
classes whose code may have changed. Here the value is walked as a pickler does it, and what it consists of is hashed.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.identity.code import Code, code_parts, instruction_parts
from dask_train.identity.parts import ValueParts, number_parts
from dask_train.identity.sources import Sources
from dask_train.identity.special import special_parts

_PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"",
    type(...): lambda _: b"",
    type(NotImplemented): lambda _: b"",
    bool: lambda value: b"1" if value else b"0",
    int: lambda value: format(value, "x").encode(),
    float: lambda value: value.hex().encode(),
    complex: lambda value: f"{value.real.hex()},{value.imag.hex()}".encode(),
    str: lambda value: value.encode("utf-8", "surrogatepass"),
    bytes: lambda value: value,
    bytearray: bytes,
}
# How often walks may lead back to sets whose elements they are of.
MOST_AROUND = 10_000


def digest(*values: Any, with_modes: bool = False, names: Mapping[int, str] | None = None) -> str:
    """Compute a digest of values, which is the same in each process.

    Parameters
    ----------
    *values
        Whatever cloudpickle takes. The order of dicts counts, as Python keeps it; that of sets and of attributes does
        not. Functions and classes count with their code: see :mod:`dask_train.identity.code`.
    with_modes
        Whether it counts in which mode torch modules are, of training or evaluation. Default: no, since prediction and
        training set it.
    names
        By the ``id`` of each object that counts by a name, and not by what it holds. Default: none.

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    TypeError
        A value can't be taken apart, such as a lock. It could not be pickled either. Or sets lead back to themselves in
        very many ways.
    """
    return _Walk(Sources(), with_modes=with_modes, names=names).of(values).hex()


def code_digest(value: Any) -> str:
    """Compute a digest of a function's code: of all functions, classes and constants that it refers to.

    Objects, arrays, lists and dicts count by their types alone: what a function fills or reads is no part of its code,
    and need not be such that it could be pickled.
    """
    return _CodeWalk(Sources()).of(value).hex()


class _Walk:
    """One walk over values; an object that is met again counts as that object, so that cycles end."""

    def __init__(self, sources: Sources, *, with_modes: bool = False, names: Mapping[int, str] | None = None) -> None:
        self._sources, self._with_modes, self._names = sources, with_modes, names or {}
        self._sets: dict[int, int] = {}  # those whose elements are being walked: id -> how many it lies in
        self._num_around = 0  # how often a walk has led back to one of them

    def of(self, value: Any) -> bytes:
        hasher = hashlib.blake2b(digest_size=16)
        numbers: dict[int, int] = {}
        alive: list[Any] = []  # so that no id is used twice
        waiting = [value]  # not by recursion: linked objects may be deeper than Python's stack
        while waiting:
            value = waiting.pop()
            if (name := self._names.get(id(value))) is not None:
                value = ValueParts("named", (name,))
            if (write := _PLAIN.get(type(value))) is not None:
                data = write(value)
                hasher.update(f"{type(value).__name__} {len(data)}:".encode())
                hasher.update(data)
                continue
            if not _is_value(value):
                if id(value) in numbers:
                    hasher.update(f"again {numbers[id(value)]}:".encode())
                    continue
                numbers[id(value)] = len(numbers)
                alive.append(value)
            parts = value if isinstance(value, ValueParts) else self._parts(value)
            hasher.update(f"{parts.kind} {len(parts.content)}:".encode())
            if parts.data is not None:
                hasher.update(f"data {parts.data.nbytes}:".encode())
                hasher.update(parts.data)
            waiting.extend(reversed(parts.content))
        return hasher.digest()

    def _parts(self, value: Any) -> ValueParts:  # noqa: PLR0911 - one of each kind
        kind = type(value)
        if kind in (list, tuple):
            return ValueParts(kind.__name__, tuple(value))
        if kind is dict:
            return ValueParts("dict", tuple(each for pair in value.items() for each in pair))
        if kind in (set, frozenset):
            return self._set_parts(value)
        if isinstance(value, np.ndarray | np.generic | np.dtype) and kind.__module__.partition(".")[0] == "numpy":
            return number_parts(value)
        if isinstance(value, Code):
            return code_parts(value, self._sources)
        if isinstance(value, types.CodeType):
            return instruction_parts(value)
        if isinstance(value, types.CellType):
            return _cell_parts(value)
        special = special_parts(value, with_modes=self._with_modes)
        return _object_parts(value, self._sources) if special is None else special

    def _set_parts(self, value: set[Any] | frozenset[Any]) -> ValueParts:
        """Return the digests of elements, each of a walk of its own, which ends at a set that it leads back to.

        Raises
        ------
        TypeError
            There are too many ways back to a set: where all objects refer to each other, as many as they have orders.
        """
        if (place := self._sets.get(id(value))) is not None:
            self._num_around += 1
            if self._num_around > MOST_AROUND:
                raise TypeError(
                    f"Sets lead back to themselves in more than {MOST_AROUND:,} ways, and as sets have no order, each "
                    "way is walked to tell whether two values are equal. Use lists or dicts where many objects refer "
                    "to each other."
                )
            return ValueParts("set around", (place,))
        self._sets[id(value)] = len(self._sets)
        try:
            return ValueParts(type(value).__name__, tuple(sorted(map(self.of, value))))
        finally:
            del self._sets[id(value)]


class _CodeWalk(_Walk):
    """A walk over code, which leaves out what objects hold."""

    def _parts(self, value: Any) -> ValueParts:
        if isinstance(value, (tuple, Code, types.CodeType, types.CellType, staticmethod, classmethod, property)):
            return super()._parts(value)
        if isinstance(value, functools.partial):
            return ValueParts("partial", (value.func, value.args, *sorted(value.keywords)))
        if isinstance(value, types.MethodType):
            return ValueParts("method", (value.__func__, type(value.__self__)))
        return ValueParts("some", (type(value),))


def _is_value(value: Any) -> bool:
    """Return whether it makes no difference if two equal ones are one."""
    return isinstance(value, tuple | frozenset | np.generic | np.dtype) or (
        isinstance(value, np.ndarray) and not value.dtype.hasobject
    )


def _cell_parts(cell: types.CellType) -> ValueParts:
    try:
        return ValueParts("cell", (cell.cell_contents,))
    except ValueError:  # nothing has been put into it yet
        return ValueParts("cell", ())


def _object_parts(value: Any, sources: Sources) -> ValueParts:
    """Return the identity of an object from the parts of its pickle."""
    reduced = _reduced(value)
    if isinstance(reduced, str):  # a name in a module, such as a function's with functools.cache
        module = getattr(value, "__module__", None) or type(value).__module__
        source = sources.digest(module)
        return ValueParts("global", ("" if source else module, reduced, source))
    function, arguments, state, items, pairs, setter = (*reduced, *[None] * 4)[:6]
    return ValueParts(
        "object",
        (
            function,
            arguments,
            _state_parts(state),
            None if items is None else list(items),
            None if pairs is None else dict(pairs),
            setter,
        ),
    )


def _reduced(value: Any) -> Any:
    reducer = cloudpickle.Pickler.dispatch_table.get(type(value)) or copyreg.dispatch_table.get(type(value))
    try:
        return value.__reduce_ex__(4) if reducer is None else reducer(value)
    except Exception as error:
        raise TypeError(
            f"A {type(value).__module__}.{type(value).__qualname__} can't be pickled: {type(error).__name__}: {error}. "
            "Keep locks, files and connections out of the model, and open them where they are used."
        ) from error


def _state_parts(state: Any) -> Any:
    """Return the attributes of an object in the order of their names, which says nothing."""
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):  # those in slots besides
        return ValueParts("slots", tuple(map(_state_parts, state)))
    if type(state) is dict and all(isinstance(name, str) for name in state):
        return ValueParts("state", tuple(each for name in sorted(state) for each in (name, state[name])))
    return state
