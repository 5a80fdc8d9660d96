"""Who may stop a run from the page."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import dask
import pytest
from tornado.httpserver import HTTPServer
from tornado.web import Application

from dask_train.dashboard.actions import PAGE, SETTING, acts, may_act

HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # noqa: S104


def asked(question, *addresses):
    """What is said of a scheduler whose dashboard listens on these addresses."""

    async def ask():
        server = HTTPServer(Application())
        try:
            for address in addresses:
                server.listen(0, address)
            return question(SimpleNamespace(http_server=server))
        finally:
            server.stop()

    return asyncio.run(ask())


def test_by_default_those_on_the_schedulers_own_host():
    assert asked(acts, HERE)
    assert not asked(acts, EVERYWHERE)
    assert not asked(acts, HERE, EVERYWHERE)


@pytest.mark.parametrize(("setting", "acts_"), [(True, True), (False, False), ("maybe", False)])
def test_the_setting_decides_where_there_is_one(setting, acts_):
    with dask.config.set({SETTING: setting}):
        assert [asked(acts, address) for address in (HERE, EVERYWHERE)] == [acts_, acts_]


@pytest.mark.parametrize(
    ("path", "may"),
    [
        (f"/{PAGE}", True),
        ("/a/proxy/individual-train", True),
        (f"/{PAGE}/ws", False),
        (f"/{PAGE}/autoload.js", False),
        (None, False),
    ],
)
def test_a_session_counts_that_began_with_loading_the_page(path, may):
    doc = SimpleNamespace(session_context=SimpleNamespace(request=path and SimpleNamespace(path=path)))
    assert asked(lambda scheduler: may_act(scheduler, doc), HERE) is may
