"""What ``fit`` refuses of parameter servers and scorers before anything starts."""

from __future__ import annotations

import keras
import pytest

from dask_train.driver.settings import RunSettings
from dask_train.fitting.keras_models import KERAS_MODELS
from dask_train.fitting.model_kind import FitCall
from dask_train.fitting.refusals import (
    check_callbacks_with_servers,
    check_refusals,
    check_served,
    check_servers,
    warn_of_idle_callbacks,
)
from dask_train.fitting.settings import KerasSettings


def check_in_process(ps, scorer):
    settings = KerasSettings(ps=ps, scorer=scorer, workers=0)
    call = FitCall(model=model(3), x=None, y=None, settings=settings, run=RunSettings(), workers=0)
    check_refusals(KERAS_MODELS, call)


@pytest.mark.parametrize(("ps", "scorer", "validates"), [(0, 0, False), (3, 0, True), (0, 1, True), (2, 1, True)])
def test_so_many_there_can_be(ps, scorer, validates):
    check_servers(ps, scorer, validates=validates)


@pytest.mark.parametrize(
    ("ps", "scorer", "validates", "says"),
    [
        (-1, 0, True, "ps is -1; it is a whole number from 0"),
        (True, 0, True, "ps is True"),
        (1.0, 0, True, "ps is 1.0"),
        (0, "one", True, "scorer is 'one'"),
        (0, 2, True, "scorer=2: one scorer validates beside training"),
        (0, 1, False, "scorer=1: one scorer validates beside training"),
    ],
)
def test_others_are_refused(ps, scorer, validates, says):
    with pytest.raises(ValueError, match=says):
        check_servers(ps, scorer, validates=validates)


def test_in_the_users_own_process_there_are_none():
    check_in_process(0, 0)
    for ps, scorer, name in ((2, 0, "ps=2"), (0, 1, "scorer=1")):
        with pytest.raises(ValueError, match=f"{name} with workers=0, which trains in this process"):
            check_in_process(ps, scorer)


def model(*shape: int) -> keras.Model:
    made = keras.Sequential([*([keras.Input(shape)] if shape else []), keras.layers.Dense(2)])
    made.compile("sgd", "mse")
    return made


def test_servers_share_what_weights_there_are():
    check_served(model(3), 0)
    check_served(model(3), 2)
    with pytest.raises(ValueError, match="ps=3 servers share 2 trainable weights of model"):
        check_served(model(3), 3)
    check_served(model(), 0)
    with pytest.raises(ValueError, match=r"has no weights yet\. Build it first, or give it an Input"):
        check_served(model(), 1)


def test_the_users_optimizer_is_not_built_to_look_at_it():
    made = model(3)
    was_built = made.optimizer.built
    check_served(made, 2)
    assert made.optimizer.built == was_built


EARLY = keras.callbacks.EarlyStopping


@pytest.mark.parametrize(
    ("callback", "ps", "scorer"),
    [
        (EARLY("loss"), 0, 1),
        (EARLY("val_loss"), 2, 0),
        (keras.callbacks.ModelCheckpoint("x.keras"), 0, 1),
        (keras.callbacks.SwapEMAWeights(swap_on_epoch=True), 0, 0),
    ],
)
def test_callbacks_that_make_sense_are_taken(callback, ps, scorer):
    check_callbacks_with_servers([callback], ps, scorer)


@pytest.mark.parametrize(
    ("callback", "ps", "scorer", "says"),
    [
        (EARLY("val_loss"), 0, 1, r"EarlyStopping looks at 'val_loss' .* pass stop=dt\.Patience\('val_loss', 3\)"),
        (keras.callbacks.ReduceLROnPlateau("val_loss"), 2, 1, "ReduceLROnPlateau looks at 'val_loss'"),
        (keras.callbacks.ModelCheckpoint("x.keras", save_best_only=True), 0, 1, "ModelCheckpoint looks at 'val_loss'"),
        (
            keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
            1,
            0,
            "SwapEMAWeights .* other workers train on",
        ),
        (keras.callbacks.SwapEMAWeights(swap_on_epoch=True), 0, 1, "SwapEMAWeights .* a scorer does not see them"),
    ],
)
def test_callbacks_that_would_see_other_weights_or_no_score_are_refused(callback, ps, scorer, says):
    with pytest.raises(ValueError, match=says):
        check_callbacks_with_servers([callback], ps, scorer)


def test_a_callback_that_looks_at_a_validation_is_told_of_where_there_is_none():
    stopping = keras.callbacks.EarlyStopping()
    with pytest.warns(UserWarning, match="EarlyStopping looks at 'val_loss', which nothing computes, so it never acts"):
        warn_of_idle_callbacks(
            [keras.callbacks.EarlyStopping("loss"), keras.callbacks.ModelCheckpoint("x.keras"), stopping]
        )
