"""Scores of candidates as ``cv_results_`` has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.searching.estimators.prefixes import FoldScore
from dask_train.searching.estimators.table import results_table


def table(values: list[list[float]], params: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Of candidates with these scores on each fold, of whom one that is None has failed."""
    scores = {
        (candidate, fold): FoldScore(candidate=candidate, scores={"s": value}, fit_s=1.0 + fold, score_s=0.5)
        if value is not None
        else FoldScore(candidate=candidate, error="it raised")
        for candidate, row in enumerate(values)
        for fold, value in enumerate(row)
    }
    return results_table(params or [{"x": 1}] * len(values), scores, len(values[0]), ["s"])


def test_means_and_folds_are_in_the_order_of_the_candidates():
    found = table([[1.0, 3.0], [4.0, 4.0], [None, 9.0]])
    assert found["split0_test_s"].tolist()[:2] == [1.0, 4.0]
    assert found["split1_test_s"].tolist() == [3.0, 4.0, 9.0]
    assert found["mean_test_s"].tolist()[:2] == [2.0, 4.0]
    assert math.isnan(found["mean_test_s"][2]), "one that failed on a fold has no mean"
    assert found["std_test_s"].tolist()[:2] == [1.0, 0.0]
    assert found["mean_fit_time"].tolist() == [1.5, 1.5, 2.0], "of folds that ended"
    assert np.isnan(table([[None, None]])["mean_fit_time"]).all()
    assert found["rank_test_s"].tolist() == [2, 1, 3]
    assert found["rank_test_s"].dtype == np.int32


@given(st.lists(st.one_of(st.none(), st.floats(-1e100, 1e100), st.just(-1e100)), min_size=1, max_size=8))
def test_those_that_failed_come_last_whatever_the_others_have(values):
    """Also where scores are so large that one less is the same number, as of squared errors of large targets."""
    ranks = table([[value] for value in values])["rank_test_s"].tolist()
    known = [value for value in values if value is not None]
    assert ranks == [len(known) + 1 if value is None else 1 + sum(other > value for other in known) for value in values]


def test_a_parameter_is_masked_where_a_candidate_leaves_it_as_it_is():
    params = [{"a": 1, "b": "x"}, {"b": None}, {"a": 2.5, "b": [1, 2]}]
    found = table([[1.0]] * 3, params)
    assert found["params"] == params
    assert (found["param_a"].tolist(), found["param_a"].dtype) == ([1.0, None, 2.5], np.float64)
    assert (found["param_b"].tolist(), found["param_b"].dtype) == (["x", None, [1, 2]], object)
    assert not found["param_b"].mask.any()


@pytest.mark.parametrize(("values", "dtype"), [([1, 2], np.int64), ([True, False], bool), ([1, "a"], object)])
def test_a_parameters_dtype_is_that_of_its_values(values, dtype):
    assert table([[1.0]] * 2, [{"a": value} for value in values])["param_a"].dtype == dtype
