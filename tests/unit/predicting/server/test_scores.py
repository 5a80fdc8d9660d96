"""Scores from sums are those of scikit-learn over all rows at once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score

from dask_train.predicting.server.scores import ACCURACY, R2, added, results, scored

RNG = np.random.default_rng(3)
CUTS = (0, 1, 1, 40, 97, 100)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("what", [ACCURACY, R2])
def test_uneven_parts_and_empty_ones_add_up(what: str, weighted: bool) -> None:
    if what == R2:
        truth = 1e6 + RNG.normal(size=(100, 2))  # large means, small deviations
        found = truth + RNG.normal(size=(100, 2)) / 3
    else:
        truth, found = (RNG.integers(0, 3, 100) for _ in range(2))
    weights = RNG.random(100) if weighted else None
    parts = [
        scored(what, truth[a:b], found[a:b], None if weights is None else weights[a:b])
        for a, b in itertools.pairwise(CUTS)
    ]
    score = {ACCURACY: accuracy_score, R2: r2_score}[what]
    assert results(what, added([added(parts[:2]), added(parts[2:])])) == pytest.approx(
        {what: score(truth, found, sample_weight=weights)},
        abs=1e-9,  # of float64 a mean of 1e6 leaves 1e-10 of a deviation of 1
    )


def test_no_rows_have_no_score() -> None:
    with pytest.raises(ValueError, match="no rows to evaluate on"):
        results(R2, added([None, None]))


@pytest.mark.parametrize("text", [np.array(["u", "v"]), np.array(["u", "v"], object), np.array([b"u", b"v"])])
def test_text_is_never_equal_to_a_number(text: np.ndarray) -> None:
    numbers = np.array([0, 1])
    for truth, found in ((text, numbers), (numbers, text)):
        with pytest.raises(ValueError, match=r"text is never equal to a number\. Pass labels as fit had them"):
            scored(ACCURACY, truth, found, None)
    assert results(ACCURACY, scored(ACCURACY, text, text, None)) == {"accuracy": 1.0}


def test_one_row_has_no_variance_and_a_warning() -> None:
    one = np.ones(1)
    with pytest.warns(UserWarning, match="not defined of less than two rows"):
        assert np.isnan(results(R2, scored(R2, one, one, None))[R2])
    assert results(R2, added([scored(R2, one, one, None), scored(R2, 2 * one, 2 * one, 0 * one)])) == {R2: 1.0}


def test_weights_and_predictions_that_make_no_score() -> None:
    two = np.arange(2.0)
    with pytest.raises(ValueError, match="All weights are 0"):
        results(R2, added([scored(R2, two, two, 0 * two), scored(R2, two, two, 0 * two)]))
    with pytest.raises(ValueError, match="sample_weight has values below 0"):
        scored(R2, two, two, -two)
    with pytest.raises(ValueError, match="predicts NaN or infinite numbers"):
        scored(R2, two, np.array([np.nan, 1.0]), None)
