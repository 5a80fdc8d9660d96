"""What a process tells at its end: of an error, or a result."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from dask_train.data.letterbox import Letterbox
from dask_train.data.parcel import LARGE_BYTES
from dask_train.role.main import error_fields, last_word_of


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tensorflow.keras", f"have no tensorflow: install it there, in the environment of {sys.executable}."),
        ("mymodels", "no module 'mymodels': install it there, or send a file of your own with client.upload_file('my"),
    ],
)
def test_a_module_that_is_missing_is_told_with_what_to_do(name: str, text: str) -> None:
    missing = ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert text in error_fields(missing)["error"]
    outer = TypeError("the model can't be rebuilt")
    outer.__cause__ = ValueError("a layer can't be made")
    outer.__cause__.__context__ = missing
    assert text in error_fields(outer)["error"]
    assert "install" not in error_fields(ValueError("no"))["error"]


def test_what_the_framework_says_of_an_error_follows_it() -> None:
    assert error_fields(ValueError("twice!"), "The group is up.")["error"] == "ValueError: twice!. The group is up."


def test_of_a_long_error_the_middle_is_left_out() -> None:
    text = error_fields(ValueError("Layer 'd' failed. " + "x" * 9000 + " indices[1] = 3 is not in [0, 2)"))["error"]
    assert len(text) < 4100
    assert text.startswith("ValueError: Layer 'd' failed.")
    assert text.endswith("indices[1] = 3 is not in [0, 2).")


def test_large_arrays_of_a_result_are_left_with_the_client() -> None:
    result, letterbox = {"large": np.arange(LARGE_BYTES), "small": np.arange(4)}, Letterbox()
    word = last_word_of(result, letterbox.place)
    assert ([size for _, size in word.left], len(word.result) < 1000) == ([8 * LARGE_BYTES], True)
    found = pickle.loads(word.result, buffers=letterbox.views(word.left))
    assert all((found[name] == each).all() for name, each in result.items())
    found["large"][:] = 0
    found["small"][:] = 0  # a user may change what comes


def test_without_a_letterbox_a_result_is_told_whole() -> None:
    gone = Letterbox()
    gone.close()
    for letterbox in (None, gone.place):
        word = last_word_of(np.arange(LARGE_BYTES), letterbox)
        assert word.left == ()
        assert (pickle.loads(word.result) == np.arange(LARGE_BYTES)).all()
