"""Fits of several threads each have their own rows, and leave libraries as they were."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import lightgbm
import numpy as np
import pytest
import xgboost

import dask_train as dt
from dask_train.fitting.trees.replaced import replaced_in_thread

X = np.random.default_rng(0).normal(size=(300, 4))
SMALL, LARGE = X[:, 0], 100 * X[:, 1]
LIBRARIES = pytest.mark.parametrize(
    ("made", "names"),
    [
        (xgboost.XGBRegressor, ("QuantileDMatrix", "train")),
        (lambda **more: lightgbm.LGBMRegressor(verbosity=-1, **more), ("Dataset", "train")),
    ],
    ids=["xgboost", "lightgbm"],
)


def squares(y_true, y_pred):
    return y_pred - y_true, np.ones_like(y_pred)


@LIBRARIES
def test_a_fit_that_ends_before_one_that_began_later_in_another_thread(made, names):
    module = xgboost.sklearn if made is xgboost.XGBRegressor else lightgbm.sklearn
    originals = [getattr(module, name) for name in names]
    began, ended = threading.Event(), threading.Event()
    others: list = []

    def later(y_true, y_pred):
        began.set()
        assert ended.wait(30)
        return squares(y_true, y_pred)

    def first(y_true, y_pred):
        if not others:
            others.append(pool.submit(dt.fit, made(n_estimators=3, objective=later), X, LARGE, workers=0, verbose=0))
            assert began.wait(30)
            native = pool.submit(made(n_estimators=3, objective=squares).fit, X, LARGE)
            others.append(native.result(30))
            others.append(made(n_estimators=3, objective=squares).fit(X, LARGE))
        return squares(y_true, y_pred)

    wanted = {
        name: made(n_estimators=3, objective=squares).fit(X, y).predict(X)
        for name, y in {"small": SMALL, "large": LARGE}.items()
    }
    with ThreadPoolExecutor(2) as pool:
        try:
            model = dt.fit(made(n_estimators=3, objective=first), X, SMALL, workers=0, verbose=0).model
        finally:
            ended.set()
        last, *native = others
        np.testing.assert_array_equal(model.predict(X), wanted["small"])
        for each in (last.result(30).model, *native):
            np.testing.assert_array_equal(each.predict(X), wanted["large"])
    assert [getattr(module, name) for name in names] == originals


def test_what_others_put_in_place_meanwhile_stays():
    module = ModuleType("some_library")
    module.one = original = lambda: "its own"
    with replaced_in_thread(module, one=lambda: "ours"):
        below = module.one
        assert module.one() == "ours"
        module.one = lambda: "theirs"
    assert module.one() == "theirs"
    module.one = below  # as they found it
    assert module.one() == "its own"
    with replaced_in_thread(module, one=lambda: "ours again"):
        assert module.one() == "ours again"
        with pytest.raises(ZeroDivisionError), replaced_in_thread(module, one=lambda: 1 / 0):
            module.one()
        assert module.one() == "ours again"
    assert module.one is original
