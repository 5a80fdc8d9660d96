"""Ways to look at a run: the lines while it goes, and the page that it leaves.

This room owns what people see and the values it is drawn from. It doesn't know where those values come from: it
imports no Dask, no framework and none of the rooms that make a run.
"""

from dask_train.report.html import write_report
from dask_train.report.record import Metric, RoleTimeline, RunRecord, Score, Span

__all__ = ["RunRecord", "RoleTimeline", "Score", "Metric", "Span", "write_report"]
