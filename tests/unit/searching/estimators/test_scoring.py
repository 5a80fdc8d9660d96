"""Which score counts, and what scores are given."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression

from dask_train.searching.estimators.scoring import counting, scoring_of


def test_one_of_several_scores_counts():
    assert counting(True, ["score"]) == "score"
    assert counting(False, ["a", "b"]) is None
    with pytest.raises(ValueError, match="refit=True: of several scores, name the one that counts: a, b"):
        counting(True, ["a", "b"])


def test_scores_by_name_need_the_last_step_alone():
    assert scoring_of(LogisticRegression(), ["accuracy"], has_weights=False).of_last_step
    assert not scoring_of(LogisticRegression(), lambda *_: 0.0, has_weights=False).of_last_step
    with pytest.raises(ValueError, match="scoring names no score"):
        scoring_of(LogisticRegression(), [], has_weights=False)


@pytest.mark.parametrize("scoring", ["accurracy", ["r2", "accurracy"], {"mine": "accurracy"}])
def test_a_score_that_there_is_not_is_told_with_the_nearest(scoring):
    with pytest.raises(ValueError, match=r"'accurracy', which is no score of scikit-learn\. Did you mean 'accuracy'\?"):
        scoring_of(LogisticRegression(), scoring, has_weights=False)
