"""Where the page hangs in Dask's dashboard: on that of a scheduler in this process, and in what its menus hold."""

from __future__ import annotations

import json
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client

pytest.importorskip("bokeh")

from bokeh.resources import Resources

from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_dashboard, ensure_plugin
from dask_train.dashboard.routes import _find_scripts_beside_the_page, _name_in_menus, add_pages


@pytest.fixture
def dashboard(local_clusters, plugins_by_name):
    """Reads what a scheduler's dashboard serves, in its own thread, once that has the page."""
    with (
        local_clusters() as make,
        make(0, processes=False, scheduler_kwargs={"http_prefix": "/a/proxy"}) as cluster,
        Client(cluster) as client,
    ):
        peer = Peer(client)
        for ensure in (ensure_plugin, ensure_dashboard):
            peer.run(ensure, peer)
        port = cluster.scheduler.http_server.port

        def get(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.read().decode()

        yield get


def test_the_page_is_served_and_named_where_others_are(dashboard):
    page = dashboard("/a/proxy/train")
    for name in ("status", "train"):
        assert f'href="{name}"' in page, "in the navigation bar, which all pages have"
    assert 'src="static/js/bokeh' in page, "as seen from the page, whatever a proxy takes off"
    plots = json.loads(dashboard("/a/proxy/individual-plots.json"))
    assert plots["Individual Train"] == "/individual-train"
    assert len(plots) > 5, "with Dask's own"


@pytest.mark.parametrize("applications", [[], [SimpleNamespace(prefix="/not-bokeh")]])
def test_a_scheduler_without_a_dashboard_is_left_alone(applications):
    scheduler = SimpleNamespace(http_application=SimpleNamespace(applications=applications))
    records: Any = None
    add_pages(scheduler, records)


@pytest.mark.parametrize(
    ("pages", "wanted"),
    [
        (["status", "info", "profile"], ["status", "train", "info", "profile"]),
        (["status", "profile"], ["status", "profile", "train"]),
        ([], ["train"]),
    ],
)
def test_the_page_comes_before_the_information_on_workers(pages, wanted):
    variables = {"pages": pages, "plots": []}
    for _ in range(2):  # a scheduler may be given the plug-in again
        _name_in_menus(variables)
        assert variables["pages"] is pages
        assert pages == wanted


def test_the_plot_is_in_order_and_there_once():
    plots = [{"url": "individual-workers", "name": "Workers"}, {"url": "individual-cpu", "name": "CPU"}]
    for _ in range(2):
        _name_in_menus({"pages": [], "plots": plots})
        assert [plot["name"] for plot in plots] == ["CPU", "Train", "Workers"]
        assert plots[1]["url"] == "individual-train"


def application(resources):
    return SimpleNamespace(resources=lambda *address: Resources(mode="absolute") if address else resources)


def test_scripts_of_the_server_are_named_from_the_page():
    served = application(
        Resources(mode="server", root_url="http://h/a/proxy/", path_versioner=lambda path: path + "?v=1")
    )
    _find_scripts_beside_the_page(served)
    scripts = served.resources().js_files
    assert scripts
    assert all(script.startswith("static/") and script.endswith("?v=1") for script in scripts)
    assert served.resources("http://elsewhere").mode == "absolute", "pages that embed it have an address of their own"


def test_scripts_that_come_from_elsewhere_stay():
    elsewhere = Resources(mode="cdn")
    kept = application(elsewhere)
    _find_scripts_beside_the_page(kept)
    assert kept.resources() is elsewhere
