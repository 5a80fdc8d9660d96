"""What ``search`` returns: the best trial and its model, and what is said where there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

optuna = pytest.importorskip("optuna")

from dask_train.collections.schema.frame_schema import FrameSchema  # noqa: E402
from dask_train.errors import DaskTrainError  # noqa: E402 - where there is Optuna
from dask_train.fitting.schemas import schema_for  # noqa: E402
from dask_train.predicting.saved_models import opened_model  # noqa: E402
from dask_train.searching import result as result_module  # noqa: E402
from dask_train.searching.result import SearchResult  # noqa: E402


def found(*values: float | None, best: tuple[int, float, Any] | None = None, schema: Any = None) -> SearchResult:
    """Of trials with these values, those with None have failed."""
    study = optuna.create_study(direction="maximize", study_name="mine")
    for number, value in enumerate(values):
        distributions = {"x": optuna.distributions.FloatDistribution(0, 10)}
        state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=value,
                params={"x": float(number)},
                distributions=distributions,
                user_attrs={"error": "it raised"} if value is None else {},
            )
        )
    return SearchResult(SimpleNamespace(study=study, best=best, schema=schema))  # type: ignore[arg-type]


def test_the_best_is_that_of_the_study():
    it = found(1.0, None, 3.0, 2.0, best=(2, 3.0, "its model"))
    assert (it.best_trial.number, it.best_value, it.best_params) == (2, 3.0, {"x": 2.0})
    assert [trial.number for trial in it.trials] == [0, 1, 2, 3]


def test_values_by_trial_are_its_history_and_are_drawn():
    it = found(1.0, None, 3.0, 2.0, best=(2, 3.0, "its model"))
    assert it.history == {"value": [1.0, 3.0, 2.0], "best_value": [1.0, 3.0, 3.0]}
    (axes,) = it.plot().axes
    assert [line.get_label() for line in axes.lines] == ["trials", "best so far"]
    assert (axes.get_title(), axes.get_xlabel()) == ("value", "trial")
    with pytest.raises(
        AttributeError, match=r"SearchResult has no attribute 'ledger': a search has a run for each tri"
    ):
        it.ledger  # noqa: B018
    for theirs, ours in (
        ("best_params_", "best_params"),
        ("best_score_", "best_value"),
        ("best_estimator", "best_model"),
    ):
        with pytest.raises(AttributeError, match=f"has no attribute '{theirs}': use '{ours}'"):
            getattr(it, theirs)
    assert not hasattr(it, "anything")


def test_of_equals_the_best_is_the_one_whose_model_is_here(monkeypatch):
    monkeypatch.setattr(result_module, "whole", lambda parts: f"whole of {parts}")
    it = found(3.0, 1.0, 3.0, best=(2, 3.0, "parts"))
    assert it.best_trial.number == 2
    assert it.best_model == "whole of parts"
    assert it.best_params == {"x": 2.0}, "parameters are those of that model"


def test_the_best_model_is_put_together_once(monkeypatch):
    monkeypatch.setattr(result_module, "whole", lambda _: object())
    it = found(1.0, best=(0, 1.0, "parts"))
    assert it.best_model is it.best_model
    assert it.model is it.best_model


class Model:
    """Can be remembered, as a Keras model can."""


def test_the_best_model_knows_the_schema_that_it_was_fitted_with(monkeypatch, tmp_path):
    monkeypatch.setattr(result_module, "whole", lambda _: Model())
    schema = FrameSchema.of(pd.DataFrame({"colour": pd.Categorical(["red"])}))
    it = found(1.0, best=(0, 1.0, "parts"), schema=schema)
    assert schema_for(it.best_model) is it.schema is schema
    it.save(tmp_path / "best")
    assert opened_model(tmp_path / "best", None)[1] == schema


@pytest.mark.parametrize("best", [None, (1, 1.0, "parts")])
def test_a_model_that_an_earlier_call_has_trained_is_not_taken_for_the_best(best):
    it = found(3.0, 1.0, best=best)
    with pytest.raises(DaskTrainError, match=r"The model of the best trial, 0, is not here"):
        _ = it.best_model
    assert it.best_value == 3.0


@pytest.mark.parametrize("values", [(), (None, None)])
def test_where_no_trial_is_complete_that_is_said(values):
    it = found(*values)
    for name in ("best_trial", "best_params", "best_value", "best_model"):
        with pytest.raises(DaskTrainError, match=r"No trial of study 'mine' is complete"):
            getattr(it, name)
    assert "mine" in repr(it), "it can be shown all the same"


def test_it_shows_complete_trials_first_and_why_others_failed():
    text = found(None, 0.5, best=(1, 0.5, "parts"))._repr_html_()
    assert text.rindex("complete") < text.rindex("fail")
    assert "it raised" in text
    assert "0.5" in text


def test_a_study_without_a_name_is_not_given_one():
    assert repr(found(1.0)).startswith("<SearchResult mine>")
    it = SearchResult(SimpleNamespace(study=optuna.create_study(), best=None, schema=None))  # type: ignore[arg-type]
    assert repr(it).startswith("<SearchResult>")
