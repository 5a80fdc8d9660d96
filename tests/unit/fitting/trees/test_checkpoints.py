"""Which checkpoint fits: by parameters of the estimator, and by the data."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from alone import Alone, Rows, described, origins_of

from dask_train.data.columns import SourceColumn
from dask_train.fitting.trees.role import check_same, configuration_of
from dask_train.fitting.trees.task import TreesTask

PLAN = described(2, labels=None)
FITS = {"max_depth": "3", "rows": "1,000"}
SESSION = Alone(Rows((np.zeros((1000, 2)),)))


def task(*, columns=PLAN, **params):
    estimator = SimpleNamespace(get_params=lambda: params)
    return TreesTask(library="xgboost", estimator=estimator, columns=columns)


def test_the_same_fit_goes_on():
    check_same(FITS, dict(FITS))


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({**FITS, "max_depth": "4"}, "max_depth='3' there and '4' here"),
        ({"rows": "1,000"}, "max_depth='3' there and None here"),
        ({**FITS, "gamma": "1"}, "gamma=None there and '1' here"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_with_what_differs(now, told):
    with pytest.raises(ValueError, match=f"is of another fit: {told}. Go on"):
        check_same(FITS, now)


def test_of_another_library_s_estimator_some_differences_are_named():
    with pytest.raises(ValueError, match=r"gamma0='0' there and None here, .* gamma5='0' there .*, and 2 more\. Go on"):
        check_same({f"gamma{number}": "0" for number in range(8)}, {})


def test_a_fit_is_known_by_its_data_and_by_parameters_that_are_not_free():
    given = task(max_depth=3, n_estimators=100, objective=lambda y, margin: (y, margin))
    found = configuration_of(given, SESSION, free={"n_estimators"})
    assert found == {"max_depth": "3", "rows": "1,000", "features": "2"}


def test_features_are_known_by_their_names_where_they_have_some():
    plan = described(2, origins=origins_of(pd.DataFrame({"a": [1], "b": [2]})))
    assert configuration_of(task(columns=plan), SESSION, free=set())["features"] == "('a', 'b')"


def test_few_categories_are_told_and_of_many_a_difference_at_the_end_is_noticed():
    def categories(*known):
        origins = [SourceColumn(name="a", dtype=each and pd.CategoricalDtype(each)) for each in known]
        plan = described(2, origins=origins)
        return configuration_of(task(columns=plan), SESSION, free=set())["categories"]

    assert categories(None, ("x", "y")) == "[None, ['x', 'y']]"
    one, other = (categories(range(1000), (last,)) for last in "ab")
    assert one != other
    assert max(len(one), len(other)) < 120
