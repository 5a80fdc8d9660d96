"""Functions, classes and modules by their code.

One that others import is its name and the source of its module (:mod:`dask_train.identity.sources`), or its name alone
where it is of an installed package. One that travels by value, as those of scripts and notebooks do, is its
instructions, and the values that it refers to: closures, defaults, globals.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.identity.instructions import assigned_names, code_digest, global_names, imported_names
from dask_train.identity.parts import ValueParts
from dask_train.identity.sources import Sources

Code = type | types.FunctionType | types.ModuleType
# What Python sets on classes and functions, and where it is defined; some only when they are used: copyreg notes
# `__slotnames__` when an instance is first copied or pickled, and an enumeration of flags notes combinations.
_PYTHONS_OWN = {
    "__dict__",
    "__weakref__",
    "__slotnames__",
    "__module__",
    "__qualname__",
    "__wrapped__",
    "__firstlineno__",
    "__static_attributes__",
    "__annotations_cache__",
    "_abc_impl",
    "_value2member_map_",
}
# Set, to an empty dict, when a class without annotations is asked for them.
_ANNOTATIONS = "__annotations__"
# Of slots, and of what is written in C.
_DESCRIPTORS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: others are Python's own, and of C extensions


def code_parts(value: Any, sources: Sources) -> ValueParts:
    """Return what a function, a class or a module is, wherever it was defined."""
    if isinstance(value, types.ModuleType):
        return _module_parts(value, sources)
    if (module := module_of(value)) is not None:
        source = sources.digest(module)
        return ValueParts("by name", ("" if source else module, value.__qualname__, source))
    if not isinstance(value, type):
        return _function_parts(value, sources)
    return (
        _class_parts(value)
        if value.__flags__ & IN_PYTHON
        else ValueParts("type", (value.__module__, value.__qualname__))
    )


def module_of(value: Any) -> str | None:
    """Return the module that others import a function or class from; None if it travels by value."""
    name = getattr(value, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or name == "__main__" or _goes_by_value(name):
        return None
    imported: Any = module
    for each in value.__qualname__.split("."):
        imported = getattr(imported, each, None)
    return name if imported is value else None


def _goes_by_value(module: str | None) -> bool:
    """Return whether the user has said so, of a module or a package above it."""
    said = cloudpickle.cloudpickle.list_registry_pickle_by_value()
    return any(module == each or str(module).startswith(f"{each}.") for each in said)


def _module_parts(module: types.ModuleType, sources: Sources) -> ValueParts:
    name = module.__name__
    if name in sys.modules and not _goes_by_value(name):
        source = sources.digest(name)
        return ValueParts("module", ("" if source else name, source))
    return ValueParts("module", tuple(each for pair in sorted(_named(vars(module))) for each in pair))


def _named(values: Any) -> list[tuple[str, Any]]:
    return [(name, values[name]) for name in sorted(values) if not name.startswith("__")]


def _class_parts(cls: type) -> ValueParts:
    own = {
        name: value
        for name, value in vars(cls).items()
        if name not in _PYTHONS_OWN and not isinstance(value, _DESCRIPTORS) and not (name == _ANNOTATIONS and not value)
    }
    return ValueParts(
        "class",
        (type(cls), cls.__name__, cls.__bases__, *(each for name in sorted(own) for each in (name, own[name]))),
    )


def _function_parts(function: types.FunctionType, sources: Sources) -> ValueParts:
    code, globals_ = function.__code__, function.__globals__
    # What it assigns is no part of its code, but what it has come to.
    names = sorted(global_names(code) - assigned_names(code))
    used = {name: globals_[name] for name in names if name in globals_}
    imported = sorted(filter(None, map(sources.digest, imported_names(code))))
    return ValueParts(
        "function",
        (
            code_digest(code),
            imported,
            function.__defaults__,
            function.__kwdefaults__,
            function.__closure__,
            function.__annotations__,
            vars(function),
            *(each for pair in used.items() for each in pair),
        ),
    )


def instruction_parts(code: types.CodeType) -> ValueParts:
    """Return a code object by itself."""
    return ValueParts("code", (code_digest(code),))
