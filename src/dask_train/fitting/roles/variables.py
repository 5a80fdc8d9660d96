"""The user's variables that callbacks can change: found here, sent along, and brought back from the first worker.

They are lists, dicts, sets and arrays of plain values that callbacks reach through attributes, closures, defaults, and
globals of functions that travel by value; objects of the user's own classes by their attributes; and names that a
function assigns (``nonlocal``, ``global``). The variable itself takes over what its copy has come to hold, so a list of
the script is filled as if callbacks ran in the script.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from types import BuiltinMethodType, CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from dask_train.fitting.roles.pickled_parts import dumps_with_parts, keys_by_id, loads_with_parts
from dask_train.identity.code import IN_PYTHON, module_of
from dask_train.identity.digest import digest
from dask_train.identity.instructions import assigned_names, global_names
from dask_train.identity.sources import Sources

_LISTS, _SETS = (list, deque), (set,)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable.

    Attributes
    ----------
    key
        Its name for people, and a number, by which it is known again.
    holder
        The list, dict, set, array or object; or the function that assigns a name.
    name
        The name that is assigned, of a global or in a closure.
    comes_back
        Whether it holds plain values when it is sent; others are only looked at, so that a loss can be detected.
    """

    key: str
    holder: Any
    name: str = ""
    comes_back: bool = True

    @property
    def content(self) -> list[Any]:
        """What it holds: each value, of dicts and objects each name and value; of an array a digest."""
        holder = self.holder
        if self.name:
            cell = _cell(holder, self.name)
            if cell is not None:
                return _of_cell(cell)
            return [holder.__globals__[self.name]] if self.name in holder.__globals__ else []
        if isinstance(holder, np.ndarray):
            return [digest(holder)]
        pairs = holder if type(holder) in _DICTS else None if _is_container(holder) else vars(holder)
        return list(holder) if pairs is None else [each for pair in list(pairs.items()) for each in pair]

    def copied(self, before: list[Any]) -> Any:
        """Copy what it holds, for :meth:`take`; of an object without the parts that are as before."""
        if self.name:
            return self.content
        if _is_container(self.holder):
            return copy.copy(self.holder)
        holder = object.__new__(type(self.holder))
        same = {id(value) for value in before if not (_is_plain(value) or _is_container(value))}
        vars(holder).update({name: value for name, value in vars(self.holder).items() if id(value) not in same})
        return holder

    def take(self, copied: Any) -> None:
        """Hold what another one held."""
        holder = self.holder
        if self.name:
            cell = _cell(holder, self.name)
            for value in copied:
                if cell is not None:
                    cell.cell_contents = value
                else:
                    holder.__globals__[self.name] = value
        elif isinstance(holder, np.ndarray):
            holder[...] = copied
        elif type(holder) in _LISTS:
            holder.clear()
            holder.extend(copied)
        elif _is_container(holder):
            holder.clear()
            holder.update(copied)
        else:
            vars(holder).update(vars(copied))


@dataclass
class Variables:
    """All variables that some callbacks reach.

    Attributes
    ----------
    known
        By their keys.
    before
        What each of them holds at first.
    touched
        Keys of those that have been seen to hold something else since, though they may hold the same again.
    parts
        Of the model that is trained, by keys that are the same where it is trained and here.
    """

    known: dict[str, Variable] = field(default_factory=dict)
    before: dict[str, list[Any]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    parts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, callbacks: Any, parts: Mapping[str, Any] | None = None) -> Variables:
        """Look for the variables of callbacks, where these are sent."""
        return cls.opened(_Search().of(callbacks), parts=parts)

    @classmethod
    def opened(cls, sent: list[Variable], callbacks: Any = (), parts: Mapping[str, Any] | None = None) -> Variables:
        """Collect variables that came with callbacks in one pickle, and those of modules that callbacks use here."""
        variables = [*sent, *_Search(of_modules=True).of(callbacks)]
        known, before = {each.key: each for each in variables}, {each.key: each.content for each in variables}
        return cls(known, before, parts=dict(parts or {}))

    def of_parts(self, parts: Mapping[str, Any]) -> Variables:
        """Return the same variables, with other parts of the model."""
        return replace(self, parts=dict(parts))

    @functools.cached_property
    def _part_keys(self) -> dict[int, str]:
        return keys_by_id(self.parts)  # once, as states are pickled in many steps

    @property
    def sent(self) -> list[Variable]:
        """What travels with the callbacks."""
        return list(self.known.values())

    @property
    def changed(self) -> list[str]:
        """Keys of the variables that hold something else than at first."""
        return [key for key, each in self.known.items() if not _same(self.before[key], each.content)]

    def note(self) -> None:
        """Note which variables have changed."""
        self.touched.update(self.changed)

    def lost(self) -> list[str]:
        """Return the names of those that have changed, and can't come back."""
        return [name_of(key) for key, state in self.states().items() if not state]

    def dumps(self, value: Any, used: set[str] | None = None) -> bytes:
        """Pickle a value in which variables stand for themselves, wherever it is read; note which in ``used``.

        So do parts of the model.
        """
        keys = {id(each.holder): key for key, each in self.known.items() if not each.name and each.comes_back}

        def key_of(each: Any) -> str | None:
            key = keys.get(id(each))
            if key is not None and used is not None:
                used.add(key)
            return key

        return dumps_with_parts(value, self._part_keys, key_of)

    def states(self, used: Set[str] = frozenset()) -> dict[str, bytes]:
        """Return what the changed ones hold, and those that values use, pickled; empty for what can't come back."""
        self.note()
        waiting, states = [*sorted(self.touched), *sorted(used)], {}
        while waiting:
            key = waiting.pop(0)
            if key not in states:
                more: set[str] = set()
                states[key] = self._state(self.known[key], more)
                waiting += sorted(more)
        return states

    def _state(self, variable: Variable, used: set[str]) -> bytes:
        if not variable.comes_back:
            return b""
        try:
            return self.dumps(variable.copied(self.before[variable.key]), used)
        except Exception:
            return b""

    def reader(self, states: Mapping[str, bytes]) -> Callable[[bytes], Any]:
        """Read what :meth:`dumps` has pickled, with the variables of this process; ``states`` for those it lacks."""
        others: dict[str, Any] = {}

        def of_key(key: str) -> Any:
            if key in self.known:
                return self.known[key].holder
            if key not in others:
                others[key] = read(states[key])
            return others[key]

        def read(data: bytes) -> Any:
            return loads_with_parts(data, self.parts, of_key)

        return read

    def take(self, states: Mapping[str, bytes], *, keep_changed: bool = False) -> list[str]:
        """Hold what others held.

        Parameters
        ----------
        keep_changed
            Let alone what has changed here since the callbacks were sent.

        Returns
        -------
        list of str
            The names of those let alone.
        """
        read, changed = self.reader(states), self.changed if keep_changed else []
        mine = [key for key, state in states.items() if state and key in self.known]
        for key in mine:
            if key not in changed:
                self.known[key].take(read(states[key]))
                self.touched.add(key)
        return [name_of(key) for key in mine if key in changed]


def name_of(key: str) -> str:
    """Return a variable's name for people."""
    return key.rpartition("#")[0]


class _Search:
    """A walk over what callbacks refer to, in the same order for the same callbacks.

    Parameters
    ----------
    of_modules
        Whether to give what callbacks reach in the user's modules, which each process imports for itself, and nothing
        else.
    """

    def __init__(self, *, of_modules: bool = False) -> None:
        self._of_modules = of_modules
        self._found: list[Variable] = []
        self._seen: dict[int, Any] = {}
        self._sources = Sources()
        self._waiting: deque[tuple[Any, str, bool]] = deque()

    def of(self, callbacks: Any) -> list[Variable]:
        for callback in callbacks:
            cls = type(callback)
            self._seen[id(callback)] = callback
            self._wait(vars(callback), cls.__name__, but=("_model", "params"))  # which come back as a whole
            self._waiting.append((cls, cls.__name__, False))
        while self._waiting:
            value, name, in_module = self._waiting.popleft()
            if id(value) not in self._seen and not isinstance(value, _PLAIN):
                self._seen[id(value)] = value
                self._look(value, name, in_module)
        return self._found

    def _add(self, holder: Any, name: str, in_module: bool, assigned: str = "") -> None:
        if in_module == self._of_modules:
            comes_back = not in_module and (not _is_container(holder) or _is_plain(holder))
            self._found.append(Variable(f"{name}#{len(self._found)}", holder, assigned, comes_back))

    def _look(self, value: Any, name: str, in_module: bool) -> None:
        if _is_container(value):
            self._add(value, name, in_module)
            within = value.values() if type(value) in _DICTS else () if isinstance(value, np.ndarray) else value
            self._waiting += [(one, f"{name}[...]", in_module) for one in within if not isinstance(one, _PLAIN)]
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, type):
            module = module_of(value)
            if value.__flags__ & IN_PYTHON and (module is None or self._sources.is_yours(module)):
                self._wait(vars(value), value.__name__, in_module=module is not None)
                self._waiting += [(base, base.__name__, False) for base in value.__bases__]
        elif within := _PARTS.get(type(value)):
            self._waiting += [(one, name, in_module) for one in within(value) if not isinstance(one, _PLAIN)]
        elif self._is_of_the_user(type(value)):
            self._add(value, name, in_module)
            self._wait(vars(value), name, in_module=in_module)
            self._waiting.append((type(value), type(value).__name__, False))

    def _function(self, function: FunctionType) -> None:
        module = module_of(function)
        if module is not None and not self._sources.is_yours(module):
            return
        code, values, in_module = function.__code__, function.__globals__, module is not None
        prefix = f"{module}." if in_module else ""
        for name in sorted(assigned_names(code)):
            self._add(function, prefix + name, in_module, assigned=name)
        named = [(values[name], prefix + name, in_module) for name in sorted(global_names(code)) if name in values]
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        closed = [(one, name, in_module) for name, cell in cells for one in _of_cell(cell)]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._waiting += [*named, *closed]
        self._waiting += [(one, f"a default of {function.__name__}", in_module) for one in defaults]
        self._wait(vars(function), function.__name__, in_module=in_module)

    def _wait(self, values: Mapping[str, Any], owner: str, *, in_module: bool = False, but: Any = ()) -> None:
        items = list(values.items())
        self._waiting += [(one, f"{owner}.{name}", in_module) for name, one in items if name not in but]

    def _is_of_the_user(self, cls: Any) -> bool:
        """Whether it is a class of the user's whose objects pickle by their attributes, and no framework's parts."""
        plainly = cls.__reduce_ex__ is object.__reduce_ex__ and cls.__reduce__ is object.__reduce__
        if not plainly or "__dict__" not in dir(cls) or hasattr(cls, "__setstate__"):
            return False
        if getattr(cls, "__getstate__", None) is not getattr(object, "__getstate__", None):
            return False
        return all(base is object or self._is_own(base) for base in cls.__mro__)

    def _is_own(self, cls: type) -> bool:
        return bool(cls.__flags__ & IN_PYTHON) and (module_of(cls) is None or self._sources.is_yours(cls.__module__))


# What else may refer to a variable.
_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    tuple: lambda value: value,
    MethodType: lambda value: (value.__func__, value.__self__),
    BuiltinMethodType: lambda value: (value.__self__,),
    functools.partial: lambda value: (value.func, *value.args, *value.keywords.values()),
    staticmethod: lambda value: (value.__func__,),
    classmethod: lambda value: (value.__func__,),
    property: lambda value: (value.fget, value.fset, value.fdel),
}


def _cell(function: FunctionType, name: str) -> CellType | None:
    """Return the cell of a closure; None for a global. cloudpickle makes a new one for each function."""
    names = function.__code__.co_freevars
    return (function.__closure__ or ())[names.index(name)] if name in names else None


def _of_cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing has been put into it yet
        return []


def _is_container(value: Any) -> bool:
    is_numbers = type(value) is np.ndarray and not value.dtype.hasobject and value.flags.writeable
    return type(value) in (*_LISTS, *_SETS, *_DICTS) or is_numbers


def _is_plain(value: Any, depth: int = 20) -> bool:
    """Whether a value has nothing but numbers, text and arrays, in lists and dicts of any depth up to a limit."""
    if isinstance(value, _PLAIN) or type(value) is np.ndarray:
        return True
    if type(value) in (*_LISTS, *_SETS, *_DICTS, tuple) and depth:
        within = [*value, *value.values()] if type(value) in _DICTS else value
        return all(_is_plain(one, depth - 1) for one in within)
    return False


def _same(one: list[Any], other: list[Any]) -> bool:
    if len(one) != len(other):
        return False
    return all(
        a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and a == b) for a, b in zip(one, other, strict=True)
    )
