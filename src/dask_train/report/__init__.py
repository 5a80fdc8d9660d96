"""Ways to look at a run: the live line while it goes, the page and the pictures that it leaves.

This room owns what people see and the values it is drawn from. It doesn't know where those values come from: it
imports no Dask, no framework and none of the rooms that make a run.
"""

from dask_train.report.html import write_report
from dask_train.report.live import LiveLine, Progress
from dask_train.report.pictures import save_pictures
from dask_train.report.record import RoleTimeline, RunRecord, Score, Span

__all__ = ["RunRecord", "RoleTimeline", "Score", "Span", "write_report", "save_pictures", "LiveLine", "Progress"]
