"""Where the page hangs in Dask's dashboard: its addresses, the navigation bar, JupyterLab's list of plots."""

from __future__ import annotations

from typing import Any

from .actions import PAGE, PLOT, Readers
from .page import page_document, plot_document
from .records import Records


def add_pages(scheduler: Any, records: Records) -> None:
    """Serve ``/train`` and ``/individual-train`` from the scheduler's dashboard, if it has one.

    They get an application of their own next to the dashboard's, under the same prefix. The dashboard closes it with
    its others when the scheduler ends.
    """
    from bokeh.server.tornado import BokehTornado

    dashboards = [app for app in scheduler.http_application.applications if isinstance(app, BokehTornado)]
    if not dashboards:  # it was switched off, or bokeh is too old for Dask
        return
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables
    from tornado.ioloop import IOLoop

    prefix, readers = dashboards[0].prefix, Readers()

    def page(_scheduler: Any, extra: Any, doc: Any) -> None:
        page_document(records, readers, extra, doc)

    def plot(_scheduler: Any, _extra: Any, doc: Any) -> None:
        plot_document(records, readers, doc)

    variables = template_variables(scheduler)
    application = BokehApplication(
        {f"/{PAGE}": page, f"/{PLOT}": plot}, scheduler, prefix=prefix, template_variables=variables
    )
    _find_scripts_beside_the_page(application)
    readers.watch(application)
    scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    _name_in_menus(variables)
    _name_in_jupyterlab(scheduler, prefix)


def _find_scripts_beside_the_page(application: Any) -> None:
    """Name bokeh's scripts as seen from the page, which all proxies leave as it is."""
    # bokeh names them by the prefix. A browser does not find them there when a proxy takes another part of the path
    # off, as JupyterHub's does.
    from bokeh.resources import Resources

    resources = application.resources
    own = resources()
    if not own.mode.startswith("server"):  # a setting of bokeh's: they come from elsewhere
        return
    beside = Resources(mode=own.mode, root_url="", path_versioner=own.path_versioner)
    application.resources = lambda *address: resources(*address) if address else beside  # one is of pages that embed it


def _name_in_menus(variables: dict[str, Any]) -> None:
    """Into the navigation bar of every page: they all hold this one list."""
    pages, plots = variables["pages"], variables["plots"]
    if PAGE not in pages:
        pages.insert(pages.index("info") if "info" in pages else len(pages), PAGE)
    if all(plot["url"] != PLOT for plot in plots):
        plots.append({"url": PLOT, "name": "Train"})
        plots.sort(key=lambda plot: plot["name"])


def _name_in_jupyterlab(scheduler: Any, prefix: str | None) -> None:
    """Into what JupyterLab's extension offers, which distributed takes from its own application alone."""
    from distributed.http.scheduler.info import IndividualPlots

    class Plots(IndividualPlots):
        def write(self, chunk: Any) -> None:
            super().write({**chunk, "Individual Train": f"/{PLOT}"} if isinstance(chunk, dict) else chunk)

    path = f"{(prefix or '').rstrip('/')}/individual-plots.json"
    scheduler.http_application.add_handlers(r".*", [(path, Plots, {"dask_server": scheduler, "extra": {}})])
