"""Tables of the page."""

from __future__ import annotations

import pytest

pytest.importorskip("bokeh")

from dask_train.dashboard.widgets import MOST_ROWS_SEEN, ScrolledTable, set_data


def test_a_table_grows_with_its_rows_up_to_a_height():
    table, heights = ScrolledTable(("run", "time")), []
    for count in (0, 1, 2, MOST_ROWS_SEEN, 5 * MOST_ROWS_SEEN):
        assert table.show({"run": ["r"] * count, "time": [1.0] * count}) == count
        heights.append(table.root.children[0].height)
    assert heights == sorted(heights)
    assert heights[0] == heights[1] < heights[2]
    assert heights[3] == heights[4]


def test_what_is_the_same_is_not_sent_again():
    table, sent = ScrolledTable(("run",)), []
    table.source.on_change("data", lambda attr, old, new: sent.append(new))
    for run in ("r", "r", "s"):
        set_data(table.source, {"run": [run]})
    assert len(sent) == 2
