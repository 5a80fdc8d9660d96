"""Settings whose fields name their checks, and the signatures that are made of them."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import numpy as np
import pytest

import dask_train
from dask_train import arguments
from dask_train.arguments import (
    CheckedSettings,
    check_counts,
    check_flags,
    checked_by,
    converted_by,
    flag,
    fraction,
    keywords_of,
    nearest,
    nearest_argument,
    one_of,
    positive_int,
    takes,
    unlisted,
    whole_number,
)


def check_colour(colour: Any) -> None:
    if colour == "grey":
        raise ValueError(f"colour is {colour!r}; it is a bright one.")


@dataclass(frozen=True, kw_only=True)
class Settings(CheckedSettings):
    rows: Any
    epochs: int = positive_int(1)
    batch_size: int | None = positive_int(None)
    workers: int | None = whole_number(None, least=0)
    seed: int = whole_number(0)
    split: float = fraction(0.0)
    wait: bool = flag(True)
    shuffle: Any = one_of(True, False, "partition", default=True)
    colour: str = checked_by(check_colour, "red")
    names: list[str] = converted_by(lambda names: list(names or ()), None)
    runs_on_host: int = unlisted(1)


@pytest.mark.parametrize(
    ("name", "values", "error", "told"),
    [
        ("epochs", [0, -1, True, 1.0, "2", None], ValueError, "it is a whole number of at least 1."),
        ("epochs", [np.int64(2)], ValueError, r"at least 1\. Pass int\(epochs\)\."),
        ("epochs", [np.int64(0)], ValueError, r"at least 1\.$"),
        ("batch_size", [0, "2"], ValueError, "it is a whole number of at least 1."),
        ("workers", [-1, False, 0.0], ValueError, "it is a whole number of at least 0."),
        ("seed", [True, 1.5, "1", None], ValueError, r"it is a whole number\.$"),
        ("split", [1, 1.5, -0.1, True, "0.2", float("nan"), None], ValueError, "it is a fraction between 0 and 1."),
        ("wait", [1, "no", None, np.array([True])], TypeError, "it is True or False."),
        ("shuffle", [1, 0, "batch", None, np.zeros(2)], ValueError, "it is True, False or 'partition'."),
        ("colour", ["grey"], ValueError, "it is a bright one"),
    ],
)
def test_a_wrong_argument_is_named_with_what_it_may_be(name, values, error, told):
    for value in values:
        with pytest.raises(error, match=f"{name} is .*{told}"):
            Settings(rows=3, **{name: value})


def test_settings_hold_what_was_passed_or_what_was_made_of_it_and_do_not_change():
    settings = Settings(rows=3, epochs=2, workers=0, seed=-1, split=0.5, wait=np.bool_(False), shuffle="partition")
    assert (settings.epochs, settings.batch_size, settings.workers, settings.seed) == (2, None, 0, -1)
    assert (settings.names, replace(settings, names="ab").names) == ([], ["a", "b"])
    assert not settings.wait
    with pytest.raises(FrozenInstanceError):
        settings.epochs = 3
    with pytest.raises(ValueError, match="epochs is 0"):
        replace(settings, epochs=0)


def test_settings_are_made_of_those_arguments_that_are_theirs():
    given = {"rows": 3, "epochs": 5, "model": "another's"}
    assert Settings.of(given, epochs=7) == Settings(rows=3, epochs=7)


def test_a_function_of_settings_lists_them_in_its_signature():
    @takes(Settings, without=("seed",))
    def fit(model: Any, x: Any = None, **given: Any) -> int:
        return len(given)

    listed = inspect.signature(fit).parameters
    assert [*listed][:5] == ["model", "x", "rows", "epochs", "batch_size"]
    assert {"seed", "runs_on_host", "given"}.isdisjoint(listed)
    assert listed["rows"].default is inspect.Parameter.empty
    assert (listed["epochs"].default, listed["epochs"].annotation) == (1, "int")
    assert fit("a model", epochs=3) == 1


def test_a_field_of_several_settings_has_the_default_of_the_first():
    @dataclass(frozen=True, kw_only=True)
    class Others(CheckedSettings):
        epochs: int = positive_int(9)
        rounds: int = positive_int(2)

    defaults = {one.name: one.default for one in keywords_of(Others, Settings)}
    assert (defaults["epochs"], defaults["rounds"], defaults["split"]) == (9, 2, 0.0)


def test_a_name_that_is_nearly_known_is_guessed():
    assert nearest("worker", ["epochs", "workers"]) == " Did you mean 'workers'?"
    assert nearest("cvv", ["epochs", "workers"]) == ""
    assert nearest(3, ["epochs"]) == ""


@pytest.mark.parametrize(
    ("verb", "name", "told"),
    [
        ("fit", "n_jobs", " Use workers=."),
        ("fit", "num_workers", " Use workers=."),
        ("fit", "device", " Use gpus=1."),
        ("fit", "n_epochs", " Use epochs=."),
        ("fit", "max_epochs", " Use epochs=."),
        ("fit", "val_data", " Use validation_data=."),
        ("fit", "lr", " Use optimizer=partial(torch.optim.Adam, lr=1e-3)."),
        ("fit", "early_stopping_rounds", " Use stop=dt.Patience('val_loss', 3)."),
        ("fit", "n_trials", " Use dt.search(build, ..., trials=20)."),
        ("train", "lr", " Use functools.partial(function, lr=1e-3)."),
        ("train", "workers", " Use roles={'worker': 4}."),
        ("train", "batch_size", " Use session.batches(epochs=..., batch_size=...) in the function."),
        ("search", "n_trials", " Use trials=."),
        ("search", "n_jobs", " Use concurrency=."),
        ("search", "param_grid", " Use params=."),
        ("search", "max_epochs", " Use epochs=."),
        ("predict_to", "verbose", " Use progress=."),
        ("evaluate", "target", " Use label=."),
        ("fit", "param_grid", " Use dt.search(estimator, ..., params=...)."),
        ("predict", "n_jobs", " Use client=Client(n_workers=4)."),
        ("predict", "proba", " Use method='predict_proba'."),
        ("predict_to", "device", " Use Dask workers that have a GPU."),
        ("evaluate", "n_jobs", " Use workers=."),
        ("evaluate", "device", " Use Dask workers that have a GPU."),
        ("predict", "lr", ""),
    ],
)
def test_names_of_other_libraries_are_told_what_to_use(verb, name, told):
    known = inspect.signature(getattr(dask_train, verb)).parameters
    assert nearest_argument(name, known) == told
    assert name not in known


def test_arguments_are_checked_by_themselves_as_well():
    check_counts(trials=3, concurrency=None)
    check_flags(wait=False)
    with pytest.raises(ValueError, match="concurrency is 0; it is a whole number of at least 1"):
        check_counts(trials=3, concurrency=0)
    with pytest.raises(TypeError, match="wait is 1; it is True or False"):
        check_flags(wait=1)
    assert arguments.__doc__


# What users of Keras, scikit-learn, Ray or Optuna type.
TYPED = ("n_jobs", "n_trials", "num_workers", "device", "lr", "max_epochs", "val_data")


@pytest.mark.parametrize("verb", ["fit", "train", "search"])
@pytest.mark.parametrize("name", TYPED)
def test_names_that_people_type_have_an_answer(verb, name):
    known = inspect.signature(getattr(dask_train, verb)).parameters
    assert name not in known
    assert nearest_argument(name, known).startswith(" Use ")
