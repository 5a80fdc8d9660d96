"""What ``fit`` shows while it waits."""

from __future__ import annotations

import pytest

from dask_train.fitting.shown import display_of
from dask_train.report.fit_progress import EpochLines, FitDisplay


@pytest.mark.parametrize(
    ("verbose", "progress", "kind"),
    [
        (2, True, EpochLines),
        (2, False, FitDisplay),
        (2, None, FitDisplay),
        (1, True, FitDisplay),
        (0, False, FitDisplay),
        ("auto", None, FitDisplay),
    ],
)
def test_lines_are_for_who_asked_for_them_and_are_shown(verbose, progress, kind):
    assert isinstance(display_of(verbose, 3, progress), kind)
