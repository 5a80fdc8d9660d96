"""What is set in the environment for a time."""

from __future__ import annotations

import os

import pytest

from dask_train.frameworks.environment import environment_restored


def test_all_is_as_it_was_also_after_an_error(monkeypatch):
    for name in ("DT_CHANGED", "DT_GONE"):
        monkeypatch.setenv(name, "before")
    monkeypatch.delenv("DT_NEW", raising=False)
    before = dict(os.environ)

    def fails():
        with environment_restored():
            os.environ |= {"DT_NEW": "x", "DT_CHANGED": ""}
            del os.environ["DT_GONE"]
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert dict(os.environ) == before
