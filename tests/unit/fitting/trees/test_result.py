"""What a fit of boosted trees leaves with the user."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import lightgbm
import numpy as np
import pytest
import xgboost

from dask_train.data.columns import Columns
from dask_train.data.ledger import Ledger, LedgerLine
from dask_train.driver.result import Attempt, Result
from dask_train.fitting.trees.callbacks import CallbackChanges
from dask_train.fitting.trees.result import grown
from dask_train.fitting.trees.task import EvalSet
from dask_train.trainers.common.outcome import Outcome

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2


def came(estimator, history, *callbacks):
    """What the first role returns."""
    (num_rounds,) = {len(values) for values in history.values()}
    no_steps = {"read": [], "num_rows": 20, "warnings": [], "num_steps": 1, "applied": {}}
    return Outcome(
        header={"estimator": estimator, "callbacks": callbacks, "num_before": 0},
        history=history,
        epoch=list(range(num_rounds)),
        steps=num_rounds,
        all_reduce_s=math.nan,
        waiting_s=math.nan,
        **no_steps,
    )


@pytest.mark.parametrize("kind", [xgboost.XGBClassifier, lightgbm.LGBMClassifier], ids=["model.ubj", "model.txt"])
def test_the_users_own_estimator_is_fitted_and_saved(kind, tmp_path, request):
    settings = {"verbose": -1, "min_child_samples": 2} if kind is lightgbm.LGBMClassifier else {}
    theirs, mine = kind(n_estimators=3, n_jobs=1, **settings).fit(X, Y), kind(n_estimators=3, n_jobs=7, **settings)
    held: dict = {}
    callback, other = SimpleNamespace(eval_result=held, best=1, model=mine), SimpleNamespace()
    changes = CallbackChanges("callback", {"eval_result": {"valid_0": [1]}, "best": 2, "model": theirs})
    run = Result(
        results={"worker": [came(theirs, {"val_logloss": [0.5, 0.4, 0.3]}, changes), None]},
        scores=[],
        ledger=Ledger.of_lines([], lambda _: 0),
        attempts=[Attempt(number=0, started=1.0, ended=2.0, places={"worker/0": "tcp://a:1"})],
        stop_reason="",
        run_id="fit-1",
    )
    result = grown(run, mine, [callback, other])
    assert result.model is mine
    assert mine.n_jobs == 7
    np.testing.assert_array_equal(mine.predict_proba(X), theirs.predict_proba(X))
    assert (held, callback.best) == ({"valid_0": [1]}, 2)
    assert callback.model is mine
    assert result.best_epoch is None
    assert ("best round", "2") in replace(result, best_epoch=1)._values()
    assert f"{kind.__name__}" in repr(result)
    ledger, model, page = result._save(tmp_path)
    assert json.loads(ledger.read_text())["trained"] == 0
    for words in (f"{kind.__name__}, 3 rounds", "Validation logloss 0.3 after round 3", 'id="metric-0-'):
        assert words in page.read_text()
    assert "No scores yet" not in page.read_text()
    (axes,) = result.plot().axes
    assert (axes.get_title(), axes.get_xlabel()) == ("logloss", "round")
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.5, 0.4, 0.3]]
    assert model.name in request.node.name


def test_each_of_several_sets_has_its_own_line_and_none_is_called_training(tmp_path):
    names = {"Held out": "Held out_", "valid_1": "valid_1_", "valid_1_b": "valid_1_b_"}
    evals = [EvalSet(name="own", prefix="", dataset="", columns=Columns())]
    evals += [
        EvalSet(name=name, prefix=prefix, dataset=name, columns=evals[0].columns) for name, prefix in names.items()
    ]
    history = {prefix + "auc": [0.5, 0.6 + place] for place, prefix in enumerate(["", *names.values()])}
    run = Result(
        results={"worker": [came(xgboost.XGBClassifier(), history)]},
        scores=[],
        ledger=Ledger.of_lines([], lambda _: 0),
        attempts=[Attempt(number=0, started=1.0, ended=2.0, places={"worker/0": "tcp://a:1"})],
        stop_reason="",
        run_id="fit-1",
    )
    result = grown(run, xgboost.XGBClassifier(), evals=evals)
    (axes,) = result.plot().axes
    last = {line.get_label(): line.get_ydata()[-1] for line in axes.lines}
    assert (axes.get_title(), last) == ("auc", {"training": 0.6, "Held out": 1.6, "valid_1": 2.6, "valid_1_b": 3.6})
    page = result.report(tmp_path / "run.html").read_text()
    assert "Held out from 0.5 in round 1 to 1.6 in round 2" in page
    assert page.count("training from") == 1
    assert "Valid_1_b auc 3.6 after round 2" in page


def test_rows_that_are_scored_do_not_count():
    line = LedgerLine(role="worker", rank=0, dataset=0, turn=0, epoch=0, read=5, trained=5, repeated=0)
    lines = [line, LedgerLine(role="worker", rank=0, dataset=1, turn=0, epoch=0, read=9, trained=9, repeated=0)]
    run = Result(
        results={"worker": [None]},
        scores=[],
        ledger=Ledger.of_lines(lines, lambda _: 14),
        attempts=[],
        stop_reason="x",
        run_id="r",
    )
    with pytest.warns(UserWarning, match="XGBClassifier has not been fitted: the run was stopped"):
        result = grown(run, xgboost.XGBClassifier())
    assert (result.ledger.trained, result.history, result.epoch) == (5, {}, [])
