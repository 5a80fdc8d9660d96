"""The sources of your modules: those that are neither installed packages nor Python's own.

Other processes import such a module from its file, so the file counts as it is now; comments, blank lines and the
folder in which it lies do not. Where this process has imported an older version, that version counts as well.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import site
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from dask_train.identity.instructions import code_digest

_INSTALLED = {"site-packages", "dist-packages"}
# What an editable checkout of dask-train does to a model is not the model's code.
_OURS = __name__.partition(".")[0]


class Sources:
    """Digests of modules, each with the modules of yours that it imports; files are read once."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}
        self._own: dict[str, _Source] = {}

    def digest(self, name: str) -> str:
        """Return a digest of a module's source and of all modules of yours that it imports, in functions, too.

        Empty for installed modules. Imports by computed names (``importlib.import_module``) are not seen.
        """
        digests = {each: source.digest + source.outdated for each, source in self.reached([name]).items()}
        if not digests:
            return ""
        return hashlib.sha256("".join([digests.pop(name), *sorted(digests.values())]).encode()).hexdigest()

    def reached(self, names: Iterable[str]) -> dict[str, _Source]:
        """Return those of the modules that are yours, and all modules of yours that they import, by name."""
        sources: dict[str, _Source] = {}
        waiting = list(names)
        while waiting:
            each = waiting.pop()
            if each not in sources and self.is_yours(each):
                sources[each] = self._own_source(each)
                waiting += sources[each].imports
        return sources

    def is_yours(self, name: str) -> bool:
        """Return whether a module is from a file outside of Python and its installed packages."""
        return self._spec(name) is not None

    def _spec(self, name: str) -> ModuleSpec | None:
        if name not in self._specs:
            above = name.rpartition(".")[0]
            spec = None if above and self._is_installed(above) else _spec_of(name)
            self._specs[name] = spec if spec is not None and _is_outside(spec) else None
        return self._specs[name]

    def _is_installed(self, package: str) -> bool:
        spec = _spec_of(package)
        return spec is None or (spec.has_location and not _is_outside(spec))

    def _own_source(self, name: str) -> _Source:
        if name not in self._own:
            spec = self._spec(name)
            assert spec is not None
            data = _read(spec)
            digest, imports = _parsed(data)
            package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
            names = [each for level, module, of in imports for each in _absolute(package, level, module, of)]
            parents = [name.rpartition(".")[0]] if "." in name else []
            self._own[name] = _Source(name, spec, data, digest, names + parents)
        return self._own[name]


class _Source(NamedTuple):
    """A module alone: its file, and the names that it imports."""

    name: str
    spec: ModuleSpec
    data: bytes
    digest: str
    imports: list[str]

    @property
    def outdated(self) -> str:
        """A digest of what this process has loaded and the file no longer has; empty if there is nothing."""
        return _outdated(self.name, self.spec, self.data)


def file_digests(names: Iterable[str]) -> dict[str, str]:
    """Return digests of the files of modules of yours, and of all modules of yours that they import, by name.

    Those of two processes can be compared where both have the same version of Python.
    """
    return {name: source.digest for name, source in Sources().reached(names).items() if source.data}


def _spec_of(name: str) -> ModuleSpec | None:
    """Return where a module is from, or would be imported from; nothing is imported."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(spec, ModuleSpec):
        return spec
    if name in sys.modules or not name:  # made by hand, or a script
        return None
    parent, _, _ = name.rpartition(".")
    try:
        if not parent:
            return importlib.util.find_spec(name)
        above = _spec_of(parent)
        path = None if above is None else above.submodule_search_locations
        return None if path is None else PathFinder.find_spec(name, path)
    except (ImportError, ValueError, AttributeError):
        return None


def _is_outside(spec: ModuleSpec) -> bool:
    if not spec.has_location or spec.origin is None or spec.name.partition(".")[0] == _OURS:
        return False
    path = Path(spec.origin)
    if _INSTALLED & {*path.parts} or any(path.is_relative_to(folder) for folder in _pythons_own()):
        return False
    is_package = spec.submodule_search_locations is not None
    return not _holds_packages(path.parents[spec.name.count(".") + is_package])


@functools.cache
def _holds_packages(folder: Path) -> bool:
    """Return whether packages are installed there, as by `pip install --target`."""
    return any(folder.glob("*.dist-info"))


@functools.cache
def _pythons_own() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple({*folders, *(str(Path(path).resolve()) for path in folders), site.getusersitepackages()})


def _read(spec: ModuleSpec) -> bytes:
    try:
        return bytes(spec.loader.get_data(spec.origin))  # type: ignore[union-attr]
    except (OSError, AttributeError):  # it is gone, or its importer does not tell
        return b""


@functools.lru_cache(4096)
def _parsed(data: bytes) -> tuple[str, tuple[tuple[int, str, tuple[str, ...]], ...]]:
    """Return a digest of a source, and its imports; of what is no Python source, its bytes."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the user's code, which imports show
            tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return hashlib.sha256(data).hexdigest(), ()
    text = ast.dump(tree)  # without line numbers
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), tuple(_imports(tree))


def _imports(tree: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)


def _absolute(package: str, level: int, module: str, names: tuple[str, ...]) -> list[str]:
    """Return all modules that an import may mean; ``from a import b`` may mean ``a.b``."""
    if level:
        above = package.split(".")[: len(package.split(".")) - level + 1]
        module = ".".join([*above, *([module] if module else [])])
    return [module, *(f"{module}.{name}" for name in names)]


def _outdated(name: str, spec: ModuleSpec, data: bytes) -> str:
    """Return a digest of the functions that this process has loaded and the file has no longer, if any."""
    module = sys.modules.get(name)
    current = _codes(data)
    if module is None or current is None:
        return ""
    loaded = {
        code_digest(function.__code__)
        for function in _functions(module)
        if function.__code__.co_filename == getattr(module, "__file__", spec.origin)
    }
    old = sorted(loaded - current)
    return hashlib.sha256("".join(old).encode()).hexdigest() if old else ""


@functools.lru_cache(4096)
def _codes(data: bytes) -> frozenset[str] | None:
    """Digests of all functions in a source; None if it is none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            waiting = [compile(data, "", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return None
    digests = set()
    while waiting:
        code = waiting.pop()
        digests.add(code_digest(code))
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(digests)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Functions of a module, and methods of its classes."""
    waiting: list[Any] = list(vars(module).values())
    seen = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, type) and value.__module__ == module.__name__ and value not in seen:
            seen.add(value)
            waiting += vars(value).values()
        elif isinstance(value, property):
            waiting += [value.fget, value.fset, value.fdel]
        elif isinstance(value, staticmethod | classmethod):
            waiting.append(value.__func__)
        elif isinstance(value, FunctionType):
            yield value
            waiting.append(vars(value).get("__wrapped__"))
