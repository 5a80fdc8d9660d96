"""The exception tree: four parts, and the way through pickle."""

from __future__ import annotations

import copy
import pickle

import cloudpickle
import pytest

import dask_train
from dask_train import errors
from dask_train.errors import DataError, in_words


def _tree(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(child for branch in root.__subclasses__() for child in _tree(branch))]


TREE = _tree(errors.DaskTrainError)


@pytest.mark.parametrize("dumps", [pickle.dumps, lambda error: pickle.dumps(error, protocol=0), cloudpickle.dumps])
@pytest.mark.parametrize("error_type", TREE)
def test_pickle_keeps_every_part(error_type, dumps):
    error = error_type("3 of 4 started.", "One is paused.", "Free memory.")
    error.add_note("seen twice")
    copied = pickle.loads(dumps(error))
    assert type(copied) is error_type
    assert (copied.what, copied.cause, copied.change) == ("3 of 4 started.", "One is paused.", "Free memory.")
    assert (str(copied), copied.__notes__) == ("3 of 4 started. One is paused. Free memory.", ["seen twice"])


@pytest.mark.parametrize("error_type", TREE)
def test_a_copy_has_no_traceback_of_the_first(error_type):
    try:
        raise error_type("Gone.")
    except error_type as raised:
        copied = copy.copy(raised)
    assert (str(copied), copied.__traceback__) == ("Gone.", None)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("What.",), "What."),
        (("What.", "Cause."), "What. Cause."),
        (("What.", "", "Change."), "What. Change."),
        (("What.", "Cause.", "Change."), "What. Cause. Change."),
    ],
)
def test_text_is_the_parts_that_are_there(parts, text):
    assert str(errors.DaskTrainError(*parts)) == text


def test_every_error_is_public_and_drawn():
    for error_type in TREE:
        assert error_type.__name__ in dask_train.__all__
        assert error_type.__name__ in errors.__doc__


def test_an_error_within_a_message_has_no_colours():
    assert errors.in_words(ValueError("\x1b[1mInput 0\x1b[0m of a layer")) == "ValueError: Input 0 of a layer"


def test_errors_show_no_secrets() -> None:
    url = "http://u:hunter2@h"
    error = DataError(f"{url} can't be read.", f"{url} is away.", f"Start {url}.")
    for shown in (str(error), repr(error), error.what, in_words(OSError(url)), str(pickle.loads(pickle.dumps(error)))):
        assert "hunter2" not in shown
        assert "http://***@h" in shown


def test_an_error_whose_text_can_not_be_made_has_a_name() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert in_words(OddError()) == "OddError: its text can't be made"
