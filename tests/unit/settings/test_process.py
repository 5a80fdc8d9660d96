"""Settings are taken where a script calls, and hold where something is computed for it."""

from __future__ import annotations

import pickle
import sys
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import sklearn

from dask_train.settings import process
from dask_train.settings.process import Settings, named_in
from dask_train.settings.setting import Setting


def fake(values: dict, *, of_thread: bool = False, default: int = 0) -> dict[str, Setting]:
    """Settings of a library that keeps them in a dict."""
    return {
        name: Setting(
            read=partial(values.__getitem__, name),
            write=partial(values.__setitem__, name),
            default=default,
            of_thread=of_thread,
        )
        for name in values
    }


@pytest.fixture
def library(monkeypatch):
    """Makes a library's settings be these."""

    def make(settings: dict[str, Setting]) -> None:
        monkeypatch.setattr(process, "LIBRARIES", ("json",))
        monkeypatch.setattr(process, "_settings_of", lambda _: settings)
        monkeypatch.setattr(process, "_AFTER_IMPORT", {"json": partial(process._apply_to, "json")})

    return make


def test_what_differs_from_defaults_is_taken_and_the_rest_put_back(library):
    values = {"x": 0, "y": 3}
    library(fake(values))
    taken = Settings.here()
    assert taken.changed == {"json": {"y": 3}}
    values.update(x=7, y=0)
    pickle.loads(pickle.dumps(taken)).apply()
    assert values == {"x": 0, "y": 3}
    Settings(changed={"json": {}}).apply()
    assert values == {"x": 0, "y": 0}


def test_libraries_that_are_not_imported_are_neither_imported_nor_touched(monkeypatch):
    monkeypatch.delitem(sys.modules, "xgboost", raising=False)
    assert "xgboost" not in Settings.here().changed
    assert "xgboost" not in sys.modules


def test_a_library_that_is_imported_later_gets_the_last_ones(library, tmp_path, monkeypatch):
    values = {"x": 0}
    library(fake(values))
    (tmp_path / "one_to_wait_for.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(process, "LIBRARIES", ("one_to_wait_for",))
    monkeypatch.setattr(process, "_AFTER_IMPORT", {"one_to_wait_for": partial(process._apply_to, "one_to_wait_for")})
    for x in (1, 2):
        Settings(changed={"one_to_wait_for": {"x": x}}).apply()
    assert values == {"x": 0}
    import one_to_wait_for  # noqa: F401

    assert values == {"x": 2}
    del sys.modules["one_to_wait_for"]


def test_a_setting_that_this_version_does_not_have_is_an_error(library):
    library(fake({"x": 0}))
    with pytest.raises(ValueError, match=r"json's setting 'y' is 5 in the client.*none of that name. Install"):
        Settings(changed={"json": {"y": 5}}).apply()


def test_a_task_has_them_and_leaves_what_was_there(library):
    values = {"x": 4}
    library(fake(values))
    settings = Settings(changed={"json": {"x": 1}})
    with settings.in_task(alone=True):
        assert values == {"x": 1}
    assert values == {"x": 4}
    with settings.in_task(alone=None):
        assert values == {"x": 4}


def test_a_task_imports_what_has_settings_and_nothing_else(library, tmp_path, monkeypatch):
    values = {"x": 0}
    library(fake(values))
    for name in ("one_for_a_task", "another_for_a_task"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with Settings(changed={"one_for_a_task": {"x": 1}, "another_for_a_task": {}}).in_task(alone=True):
        assert values == {"x": 1}, "before a function imports it"
    assert "another_for_a_task" not in sys.modules
    del sys.modules["one_for_a_task"]
    with Settings(changed={"not_there_for_a_task": {"x": 1}}).in_task(alone=True):
        assert values == {"x": 0}


def test_a_task_has_what_a_thread_of_the_script_has_set_for_itself():
    with jax.enable_x64(True):
        settings = Settings.here("jax")
    assert settings.changed == {"jax": {"jax_enable_x64": True}}
    with settings.in_task(alone=None):
        assert jax.numpy.ones(1).dtype == "float64"
        with Settings(changed={"jax": {}}).in_task(alone=None):
            assert jax.numpy.ones(1).dtype == "float32"
    assert jax.numpy.ones(1).dtype == "float32"


def test_a_task_beside_others_touches_nothing_that_they_share(library):
    values = {"x": 4}
    library(fake(values))
    with (
        pytest.raises(ValueError, match=r"json's setting 'x' was 1 .* and is 4 in this Dask worker.*client\.run"),
        Settings(changed={"json": {"x": 1}}).in_task(alone=False),
    ):
        pass
    assert values == {"x": 4}
    values["x"] = 1
    with Settings(changed={"json": {"x": 1}}).in_task(alone=False):
        pass


def test_a_task_sets_nothing_that_can_not_be_put_back(library):
    values = {"x": 4}
    library({"x": replace(fake(values)["x"], is_final=lambda value, before: value > before)})
    with Settings(changed={"json": {"x": 3}}).in_task(alone=True):
        assert values == {"x": 3}
    with (
        pytest.raises(ValueError, match=r"json's setting 'x' was 5 .* is 4 in this Dask worker.*can't be put back"),
        Settings(changed={"json": {"x": 5}}).in_task(alone=True),
    ):
        pass
    assert values == {"x": 4}


@pytest.mark.parametrize("alone", [True, False, None])
def test_a_task_has_settings_of_its_thread_in_any_case(alone):
    with sklearn.config_context(assume_finite=True), np.errstate(over="raise"):
        settings = Settings.here("sklearn", "numpy")
    seen = []

    def work() -> None:
        for context in (settings.in_task(alone=alone), Settings().in_task(alone=alone)):
            with context:
                seen.append((sklearn.get_config()["assume_finite"], np.geterr()["over"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, "raise"), (False, "warn")]


def test_equal_settings_have_equal_differences_whatever_is_imported():
    assert Settings().differences() == Settings(changed={"sklearn": {}}).differences() == []
    ones = [Settings(changed=changed) for changed in ({"a": {"x": 1, "y": 2}, "b": {}}, {"a": {"y": 2, "x": 1}})]
    assert ones[0].differences() == ones[1].differences() == [("a", "x", "1"), ("a", "y", "2")]


def test_libraries_that_a_function_uses_are_seen(monkeypatch):
    assert named_in(b"...torch.nn...", None) == ["torch"]
    monkeypatch.setitem(sys.modules, "home", SimpleNamespace(sk=sklearn, one=1))
    assert named_in(b"", SimpleNamespace(__module__="home")) == ["sklearn"]
    assert named_in(b"", 3) == []
