"""Private parts of pandas."""

from __future__ import annotations

import warnings

import pytest

from dask_train.compat.pandas import read_option, registered_option

pd = pytest.importorskip("pandas")


def test_options_and_their_defaults():
    assert registered_option("display.max_rows").defval == 60
    assert registered_option("no.such.option") is None
    with pd.option_context("display.max_rows", 7):
        assert read_option("display.max_rows") == 7


def test_an_option_that_is_deprecated_is_read_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_option("mode.copy_on_write") in (True, False, "warn")
