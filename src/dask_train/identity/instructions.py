"""The instructions of functions, without what differs from one place in a file to another."""

from __future__ import annotations

import dis
import functools
import hashlib
from types import CodeType
from typing import Any


@functools.lru_cache(1 << 14)
def code_digest(code: CodeType) -> str:
    """Return a digest of what a function does: no file name, no line numbers. It holds for one version of Python."""
    return hashlib.sha256(repr(instructions(code)).encode("utf-8", "surrogatepass")).hexdigest()


def instructions(code: CodeType) -> tuple[Any, ...]:
    """Instructions, constants and names, as plain values."""
    return (
        code.co_code,
        tuple(map(_constant, code.co_consts)),
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        code.co_exceptiontable,
    )


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return code_digest(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):  # in the order of addresses or of hashes, which differ
        return "frozenset", sorted(repr(_constant(each)) for each in value)
    return type(value).__name__, repr(value)


@functools.lru_cache(1 << 14)
def global_names(code: CodeType) -> frozenset[str]:
    """Return the names that a function, or one within it, looks up in its module."""
    return _arguments(code, ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"))


@functools.lru_cache(1 << 14)
def assigned_names(code: CodeType) -> frozenset[str]:
    """Return the names around a function that it, or one within it, assigns: globals, and variables of its closure."""
    closed = _arguments(code, ("STORE_DEREF",)) & {*code.co_freevars}
    return _arguments(code, ("STORE_GLOBAL",)) | closed


@functools.lru_cache(1 << 14)
def imported_names(code: CodeType) -> frozenset[str]:
    """Return the modules that a function, or one within it, imports."""
    return _arguments(code, ("IMPORT_NAME",))


def _arguments(code: CodeType, operations: tuple[str, ...]) -> frozenset[str]:
    arguments = {each.argval for each in dis.get_instructions(code) if each.opname in operations}
    within = [_arguments(each, operations) for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(arguments).union(*within)
