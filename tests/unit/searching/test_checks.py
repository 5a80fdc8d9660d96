"""What a study is asked for."""

from __future__ import annotations

import pandas as pd
import pytest

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.searching.checks import categories_of, check_study


@pytest.mark.parametrize(
    ("asked", "told"),
    [(("up", 0, None), "direction is 'up'"), ((None, -1, None), "seed is -1"), ((None, 0, 0), "timeout_s is 0")],
)
def test_what_can_not_be_is_refused(asked, told):
    check_study(None, 0, None)
    with pytest.raises(ValueError, match=told):
        check_study(*asked)


def test_a_search_that_goes_on_is_compared_by_the_categories_of_its_codes():
    some, turned = (pd.DataFrame({"a": [1.0], "kind": pd.Categorical(["u"], list(values))}) for values in ("uv", "vu"))
    wider = some.astype({"a": "int64"})
    texts = [categories_of(FrameSchema.of(each))["categories"] for each in (some, turned, wider)]
    assert texts[0].startswith("'kind': 'u', 'v' (")
    assert texts[0] == texts[2] != texts[1]
    assert categories_of(None) == categories_of(FrameSchema.of(some[["a"]])) == {}
