"""What a study is asked for."""

from __future__ import annotations

import pytest

from dask_train.searching.checks import check_study


@pytest.mark.parametrize(
    ("asked", "told"),
    [(("up", 0, None), "direction is 'up'"), ((None, -1, None), "seed is -1"), ((None, 0, 0), "timeout_s is 0")],
)
def test_what_can_not_be_is_refused(asked, told):
    check_study(None, 0, None)
    with pytest.raises(ValueError, match=told):
        check_study(*asked)
