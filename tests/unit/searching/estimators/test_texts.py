"""Values as text, by which what goes on is compared with what was begun."""

from __future__ import annotations

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dask_train.searching.estimators.texts import text_of


def test_text_is_the_same_in_each_process():
    def own():
        """Not told by its address."""

    assert text_of(make_pipeline(FunctionTransformer(own))).count("0x") == 0
    assert text_of(own) == f"{__name__}.test_text_is_the_same_in_each_process.<locals>.own"
    assert text_of({"C": np.logspace(0, 1, 3)}) == text_of({"C": np.logspace(0, 1, 3)})
    assert text_of({"C": np.logspace(0, 1, 3)}) != text_of({"C": np.logspace(0, 2, 3)})
    assert text_of({"b", "a"}) == "['a', 'b']"
