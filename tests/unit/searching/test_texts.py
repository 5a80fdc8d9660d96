"""Values as text, by which what goes on is compared with what was begun."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.stats import uniform
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dask_train.searching.texts import code_text, text_of


def test_text_is_the_same_in_each_process():
    def own():
        """Not told by its address."""

    assert text_of(make_pipeline(FunctionTransformer(own))).count("0x") == 0
    assert text_of(own).startswith(f"{__name__}.test_text_is_the_same_in_each_process.<locals>.own #")
    assert text_of(own) == text_of(own)
    assert text_of(np.linalg.norm) == "numpy.linalg.norm", "installed packages are known by their names"
    assert text_of({"C": np.logspace(0, 1, 3)}) == text_of({"C": np.logspace(0, 1, 3)})
    assert text_of({"C": np.logspace(0, 1, 3)}) != text_of({"C": np.logspace(0, 2, 3)})
    assert text_of({"b", "a"}) == "['a', 'b']"


def test_text_tells_what_has_no_text_of_its_own():
    assert text_of(uniform(0, 1)) != text_of(uniform(0, 2)), "both are <rv_continuous_frozen object>"
    assert text_of(uniform(0, 1)) == text_of(uniform(0, 1))
    assert text_of(iter([1, 2])).startswith("<list_iterator object"), "what can't be pickled is told by its text"


def tensor(rows):
    return pytest.importorskip("torch").tensor(rows)


@pytest.mark.parametrize("made", [pd.Series, pd.DataFrame, tensor, csr_array, list, np.asarray])
def test_text_tells_values_that_a_long_object_does_not_show(made):
    rows = np.arange(10_000.0).reshape(-1, 1)
    other = rows.copy()
    other[5000] += 1
    if made is pd.Series:
        rows, other = rows[:, 0], other[:, 0]
    assert text_of(made(rows)) == text_of(made(rows.copy())) != text_of(made(other))


def test_text_of_random_numbers_is_that_of_their_state():
    assert text_of(np.random.RandomState(1)) == text_of(np.random.RandomState(1)) != text_of(np.random.RandomState(2))
    assert text_of(np.random.default_rng(1)) == text_of(np.random.default_rng(1)) != text_of(np.random.default_rng(2))


def test_text_tells_that_code_has_changed():
    def changed(factor):
        class Own(BaseEstimator):
            def fit(self, x, y):
                return self

            def predict(self, x):
                return x * factor

        return text_of(Own()), text_of(FunctionTransformer(lambda x: x * factor))

    assert changed(1) == changed(1)
    assert changed(1)[0] != changed(2)[0]
    assert changed(1)[1] != changed(2)[1]


def test_the_text_of_a_function_tells_its_code_and_not_what_it_fills():
    def changed(factor, filled):
        def build(trial):
            filled.append(trial)
            return factor

        return code_text(build)

    assert changed(1, []).startswith(
        "test_the_text_of_a_function_tells_its_code_and_not_what_it_fills.<locals>.changed"
    )
    assert changed(1, []) == changed(1, [object()]) != changed(2, [])
