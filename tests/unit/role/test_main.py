"""What a process tells of an error that ended it."""

from __future__ import annotations

import sys

import pytest

from dask_train.role.main import told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tensorflow.keras", f"have no tensorflow: install it there, in the environment of {sys.executable}."),
        ("mymodels", "no module 'mymodels': install it there, or send a file of your own with client.upload_file('my"),
    ],
)
def test_a_module_that_is_missing_is_told_with_what_to_do(name: str, text: str) -> None:
    missing = ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert text in told(missing)["error"]
    outer = TypeError("the model can't be rebuilt")
    outer.__cause__ = ValueError("a layer can't be made")
    outer.__cause__.__context__ = missing
    assert text in told(outer)["error"]
    assert "install" not in told(ValueError("no"))["error"]


def test_what_the_framework_says_of_an_error_follows_it() -> None:
    assert told(ValueError("twice!"), "The group is up.")["error"] == "ValueError: twice!. The group is up."
