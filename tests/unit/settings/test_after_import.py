"""Calls that wait for a module."""

from __future__ import annotations

import importlib
import sys
from functools import partial

import pytest

from dask_train.settings.after_import import call_after_import


@pytest.fixture
def a_module(tmp_path, monkeypatch):
    """Makes modules that can be imported; none stays."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    made = []

    def make(name, source="VALUE = 1\n"):
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        made.append(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


def test_at_once_where_it_is_imported():
    calls = []
    finders = list(sys.meta_path)
    call_after_import("json", lambda: calls.append(1))
    assert (calls, sys.meta_path) == ([1], finders)


def test_when_it_is_imported_and_complete(a_module):
    calls = []
    a_module("one_to_wait_for")
    call_after_import("one_to_wait_for", lambda: calls.append(sys.modules["one_to_wait_for"].VALUE))
    assert calls == []
    import one_to_wait_for  # noqa: F401

    assert calls == [1]
    importlib.import_module("one_to_wait_for")
    assert calls == [1]


def test_each_function_once(a_module):
    calls = []
    a_module("one_to_wait_for")
    for then in [one := partial(calls.append, 1), one, partial(calls.append, 2)]:
        call_after_import("one_to_wait_for", then)
    importlib.import_module("one_to_wait_for")
    assert sorted(calls) == [1, 2]


def test_several_modules_one_of_which_imports_the_other(a_module):
    calls = []
    a_module("one_to_wait_for", "import two_to_wait_for\n")
    a_module("two_to_wait_for")
    for name in ("one_to_wait_for", "two_to_wait_for"):
        call_after_import(name, lambda name=name: calls.append(name))
    importlib.import_module("one_to_wait_for")
    assert calls == ["two_to_wait_for", "one_to_wait_for"]


def test_other_modules_and_those_that_are_not_there(a_module):
    calls = []
    a_module("another")
    call_after_import("never_there", lambda: calls.append(1))
    importlib.import_module("another")
    with pytest.raises(ModuleNotFoundError, match="never_there"):
        importlib.import_module("never_there")
    assert calls == []


def test_a_module_that_fails_to_import_is_waited_for_again(a_module, monkeypatch):
    calls = []
    a_module("one_to_wait_for", "import os\nassert 'TEST_IMPORT' in os.environ\n")
    call_after_import("one_to_wait_for", lambda: calls.append(1))
    with pytest.raises(AssertionError):
        importlib.import_module("one_to_wait_for")
    assert calls == []
    monkeypatch.setenv("TEST_IMPORT", "1")
    importlib.import_module("one_to_wait_for")
    assert calls == [1]
