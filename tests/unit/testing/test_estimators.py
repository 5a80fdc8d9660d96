"""The shipped suite for estimators that take Dask collections: what it finds, here with Dask's threads."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_is_fitted

from dask_train.testing import check_dask_estimator
from dask_train.testing.estimators import CHECKS


def only(*names):
    return {check.__name__: "not of interest" for check in CHECKS if check.__name__ not in names}


class Lazy(RegressorMixin, BaseEstimator):
    """The mean of the first chunk alone, which is what no estimator should learn."""

    def fit(self, X, y):  # noqa: N803
        self.n_features_in_ = X.shape[1]
        self.mean_ = float(np.asarray(y.blocks[0] if hasattr(y, "blocks") else y).mean())
        return self

    def predict(self, X):  # noqa: N803
        check_is_fitted(self)
        return X[:, 0] * 0 + self.mean_

    def score(self, X, y):  # noqa: N803
        return ((self.predict(X) - y) ** 2).mean()


@pytest.mark.parametrize(
    ("estimator", "check", "said"),
    [
        (Ridge(), "check_methods_are_lazy", "something was computed"),
        (Lazy(), "check_fit_on_dask_is_fit_in_memory", "predict"),
        (Lazy(), "check_chunks_make_no_difference", "predict"),
        (Lazy(), "check_score_is_a_number", "it is a Array"),
    ],
    ids=str,
)
def test_what_does_not_hold_is_found(estimator, check, said):
    with pytest.raises(AssertionError, match=said) as caught:
        check_dask_estimator(estimator, expected_failed_checks=only(check))
    assert any(note.startswith(f"{check} of {estimator!r}") for note in caught.value.__notes__)


def test_what_holds_is_told_and_what_is_unknown_refused():
    assert check_dask_estimator(Lazy(), expected_failed_checks=only("check_not_fitted")) == ["check_not_fitted"]
    with pytest.raises(ValueError, match="There is no check check_all; there are check_fit_on_dask"):
        check_dask_estimator(Lazy(), expected_failed_checks={"check_all": "?"})
