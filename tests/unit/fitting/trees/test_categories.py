"""Models that take the codes of a frame's categories get none whose values nobody knows."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from alone import described, origins_of

import dask_train as dt
from dask_train.fitting.trees.categories import check_going_on, finds_categories

CODES = np.arange(60) % 3
FRAME = pd.DataFrame({"kind": pd.Categorical.from_codes(CODES, ["u", "v", "w"]), "a": 0.0})
TURNED = FRAME.assign(kind=FRAME["kind"].cat.reorder_categories(["w", "v", "u"]))
SETTINGS: dict[str, Any] = {"n_estimators": 3, "enable_categorical": True, "n_jobs": 1}


def of_codes() -> xgboost.XGBRegressor:
    rows = FRAME.assign(kind=CODES * 1.0).to_numpy()
    return xgboost.XGBRegressor(feature_types=["c", "float"], **SETTINGS).fit(rows, CODES)


def of_frame() -> xgboost.XGBRegressor:
    return xgboost.XGBRegressor(**SETTINGS).fit(FRAME, CODES)


def test_a_booster_of_codes_is_asked_with_a_schema_alone() -> None:
    """XGBoost itself takes the codes of any frame, silently."""
    model = of_codes()
    table = dd.from_pandas(TURNED.assign(y=CODES), npartitions=2)
    names: dict[str, Any] = {"features": ["kind", "a"]}
    for each in (model, model.get_booster()):
        assert not finds_categories(each)
        with pytest.raises(ValueError, match=r"Column 'kind' of x holds categories.*schema=dt.FrameSchema.of\(frame\)"):
            dt.predict(each, table, **names)
        found = dt.predict(each, table, **names, schema=dt.FrameSchema.of(FRAME)).compute(scheduler="threads")
        np.testing.assert_allclose(found, model.predict(FRAME))
    with pytest.raises(ValueError, match="Column 'kind' of x holds categories"):
        dt.evaluate(model, table, label="y")
    with pytest.raises(ValueError, match="Column 'kind' of x holds categories"):
        dt.evaluate(model.get_booster(), table, label="y", metrics={"mean": lambda y, found: float(y.mean())})
    assert dt.predict(model, FRAME.assign(kind=CODES)).compute(scheduler="threads") is not None


@pytest.mark.skipif(not hasattr(xgboost.Booster, "get_categories"), reason="XGBoost before 3.1 keeps no categories")
def test_a_booster_of_a_frame_finds_values() -> None:
    model = of_frame()
    assert finds_categories(model)
    assert finds_categories(model.get_booster())
    found = dt.predict(model, dd.from_pandas(TURNED, npartitions=2)).compute(scheduler="threads")
    np.testing.assert_allclose(found, model.predict(FRAME))


def test_models_of_others_find_them() -> None:
    assert finds_categories(lightgbm.LGBMRegressor())
    assert finds_categories(xgboost.XGBRegressor())
    assert finds_categories(len)


def test_a_booster_of_codes_is_not_gone_on_with(tmp_path: Any) -> None:
    model = of_codes()
    model.save_model(tmp_path / "model.ubj")
    plan = described(2, origins=origins_of(FRAME[["kind", "a"]]))
    for start in (model, model.get_booster(), str(tmp_path / "model.ubj")):
        with pytest.raises(ValueError, match=r"xgb_model= knows none: the same codes .* Fit such a model anew"):
            check_going_on("xgboost", start, None, plan)
    check_going_on("xgboost", model, dt.FrameSchema.of(FRAME), plan)
    check_going_on("xgboost", None, None, plan)
    check_going_on("lightgbm", model, None, plan)
