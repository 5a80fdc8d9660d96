"""Functions, classes and modules by their code."""

from __future__ import annotations

import abc
import copy
import enum
import functools
import importlib
import sys
import types

import cloudpickle
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from dask_train.identity.code import module_of
from dask_train.identity.digest import digest

NET = """
import functools

from {dependency} import scale

class Net:
    def call(self, x):
        return scale(x)

def call(x):
    return Net().call(x)

@functools.cache
def cached(x):
    return scale(x)
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)

    def write(factor, comment=""):
        (tmp_path / "own_layers.py").write_text(f"{comment}\ndef scale(x):\n    return x * {factor}\n")
        (tmp_path / "own_nets.py").write_text(NET.format(dependency="own_layers"))
        importlib.invalidate_caches()
        for name in ("own_layers", "own_nets"):
            sys.modules.pop(name, None)
        return importlib.import_module("own_nets")

    yield write
    for name in ("own_layers", "own_nets"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "uses",
    [
        lambda nets: nets.Net,
        lambda nets: nets.Net(),
        lambda nets: nets.Net().call,
        lambda nets: nets.call,
        lambda nets: nets.cached,
        lambda nets: nets,
        lambda nets: functools.partial(nets.call, 1),
        lambda nets: lambda: nets.call,
        lambda _: importing,
    ],
)
def test_code_of_modules_counts_with_what_it_imports(modules, uses):
    one = digest(uses(modules(1)))
    assert one == digest(uses(modules(1, comment="# Why")))
    assert one != digest(uses(modules(2)))


def importing():
    import own_nets

    return own_nets.call


def by_value(source, **names):
    """A function of a source, as of a script or a cell of a notebook."""
    names["__name__"] = "__main__"
    exec(source, names)  # noqa: S102
    return names["f"]


def test_globals_closures_and_defaults_of_code_by_value_count():
    source = "def g(x): return x * FACTOR\ndef f(x): return g(x)"
    assert digest(by_value(source, FACTOR=1)) == digest(by_value(source, FACTOR=1, unused=2))
    assert digest(by_value(source, FACTOR=1)) != digest(by_value(source, FACTOR=2))
    defaults = [by_value(f"def f(x, y={number}): return y") for number in (1, 2)]
    assert digest(defaults[0]) != digest(defaults[1])
    closures = [by_value(f"def h(z):\n    return lambda x: z\nf = h({number})") for number in (1, 2)]
    assert digest(closures[0]) != digest(closures[1])
    assert digest(by_value("def f(n): return f(n - 1) if n else n"))


def test_classes_by_value_count_with_their_parents_and_attributes():
    source = "class A:\n    {0}\n    def a(self): return {1}\nclass f(A):\n    @property\n    def b(self): return {2}"
    texts = [("k = 1", 1, 1), ("k = 2", 1, 1), ("k = 1", 2, 1), ("k = 1", 1, 2)]
    found = [digest(by_value(source.format(*text))) for text in texts]
    assert len(set(found)) == 4
    assert found[0] == digest(by_value(source.format(*texts[0])))


def used(cls):
    """Let Python note on a class what it notes at the first use."""
    assert not cls.__annotations__
    if issubclass(cls, enum.Enum):
        return cls(3), ~cls(1)
    return copy.copy(cls()), cloudpickle.dumps(cls()), isinstance(1, cls)


def test_classes_count_alike_before_and_after_their_first_use():
    class Plain:
        def fit(self): ...

    class Abstract(abc.ABC):  # noqa: B024 - what registers its subclasses
        rate = 0.5

    class Flags(enum.Flag):
        FIRST = 1
        SECOND = 2

    for cls in (Plain, Abstract, Flags, type("Estimator", (Ridge,), {})):
        before, names = digest(cls), {*vars(cls)}
        used(cls)
        assert {*vars(cls)} > names
        assert digest(cls) == before, cls


def test_what_others_import_and_what_travels_by_value():
    assert module_of(Ridge) == "sklearn.linear_model._ridge"
    assert module_of(np.mean) == "numpy"
    assert module_of(by_value("def f(): pass")) is None
    assert module_of(lambda: 1) is None
    helper = sys.modules[module_of.__module__]
    cloudpickle.register_pickle_by_value(helper)
    try:
        assert module_of(module_of) is None, "the user has said so"
    finally:
        cloudpickle.unregister_pickle_by_value(helper)
    assert module_of(module_of) == helper.__name__


def test_modules_made_by_hand_count_by_their_values():
    def made(value):
        module = types.ModuleType("made_by_hand")
        module.value = value
        return module

    assert digest(made(1)) == digest(made(1)) != digest(made(2))


def test_types_of_python_itself_and_of_c_extensions():
    found = [dict, type(None), types.MappingProxyType, types.FunctionType, np.ndarray, functools.lru_cache, len]
    assert len({digest(each) for each in found}) == len(found)
