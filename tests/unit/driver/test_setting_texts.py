"""Settings of a run as texts for those who compare runs."""

from __future__ import annotations

from functools import partial

from dask_train.driver.setting_texts import MOST_CHARACTERS, MOST_SETTINGS, setting_texts


class Loss:
    """An object whose text says where it lies."""


class Broken:
    """An object that has no text."""

    def __str__(self):
        raise ValueError("none")


def test_values_are_texts_that_two_runs_can_be_compared_by():
    one, other = Loss(), Loss()
    texts = setting_texts({"epochs": 3, "loss": one, "optimizer": partial(Loss, lr=0.1), "build": setting_texts})
    assert texts["epochs"] == "3"
    assert texts["loss"] == setting_texts({"loss": other})["loss"], "another object of the same class"
    assert texts["optimizer"] == "Loss(lr=0.1)"
    assert texts["build"] == "setting_texts"


def test_secrets_are_masked_and_texts_bounded():
    texts = setting_texts({"url": "s3://key:secret@host/rows", "password": "secret", "long": "x" * 1000})
    assert "secret" not in str(texts)
    assert len(texts["long"]) == MOST_CHARACTERS
    assert len(setting_texts({str(number): number for number in range(MOST_SETTINGS + 1)})) == MOST_SETTINGS


def test_a_value_without_a_text_is_left_out():
    assert setting_texts({"epochs": 3, "loss": Broken()}) == {"epochs": "3"}
