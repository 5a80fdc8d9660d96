"""Folds as a search makes them once, and as it tells them from others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.preprocessing import FunctionTransformer

from dask_train.searching.estimators.folds import Folds, Split

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 5))
Y = (X[:, 0] + RANDOM.normal(size=120) > 0).astype(int)


def test_folds_are_told_apart_by_their_rows():
    def text(cv, y=Y):
        return Folds(cv, len(X), X.shape[1:], y).text()

    drawn = ShuffleSplit(2, random_state=0)
    assert text(drawn) == text(ShuffleSplit(2, random_state=0)) != text(ShuffleSplit(2, random_state=1))
    assert text(3) == text(3, Y.copy()) != text(4)
    assert text(3) != text(3, Y[::-1]), "of classifiers they are stratified"
    pairs = list(KFold(3).split(X))
    once = Folds(iter(pairs), len(X), X.shape[1:], Y)
    assert len(once.of(LogisticRegression())) == len(once.of(FunctionTransformer())) == 3, "an iterator lasts"


def test_a_mask_has_a_value_for_each_row():
    mask = np.arange(6) < 4
    split = Split.of(6, mask, ~mask)
    assert (split.train.tolist(), split.test.tolist()) == ([0, 1, 2, 3], [4, 5])
    assert Split.of(6, [0, -1], []).train.tolist() == [0, 5]
    with pytest.raises(ValueError, match=r"cv gives a mask of shape \(5,\), and there are 6 rows"):
        Split.of(6, mask[:5], ~mask)


@pytest.mark.parametrize("rows", [[0.5, 1.5], [[0, 1]], pd.array([True, False, None, True, True, False])])
def test_what_is_neither_a_mask_nor_whole_numbers_is_refused(rows):
    with pytest.raises(ValueError, match=r"cv gives rows as \w+ of shape \(.*\)\. Pass whole numbers"):
        Split.of(6, [0, 1], rows)
