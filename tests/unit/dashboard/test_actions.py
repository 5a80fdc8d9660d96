"""Who may stop a run from the page."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import dask
import pytest
from tornado.httpserver import HTTPServer
from tornado.web import Application

from dask_train.dashboard.actions import PAGE, SETTING, Readers, acts

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


OWN = {"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}  # a link from anywhere, such as a notebook


def admitted(readers=None, uri=f"/{PAGE}", *, headers=OWN, host="127.0.0.1:8787", session="s", setting=None):
    """The reader of a document that was asked for like this, of a dashboard on loopback."""
    request = uri and SimpleNamespace(uri=uri, headers=headers, host=host)
    doc = SimpleNamespace(session_context=SimpleNamespace(request=request, id=session))
    with dask.config.set({SETTING: setting}):
        return asked(lambda scheduler: (readers or Readers()).admit(scheduler, doc), HERE)


@pytest.mark.parametrize(
    ("uri", "may"),
    [
        (f"/{PAGE}", True),
        (f"/{PAGE}/?theme=dark", True),
        ("/a/proxy/individual-train", True),
        (f"/{PAGE}?bokeh-session-id=mine", False),
        (f"/{PAGE}?%62okeh-session-id=mine", False),
        (f"/{PAGE}?bokeh-token=e30", False),
        (f"/{PAGE}/ws", False),
        (f"/{PAGE}/autoload.js", False),
        (f"/{PAGE}/ws?/{PAGE}", False),
        (None, False),
    ],
)
def test_a_session_counts_that_began_with_loading_the_page_under_a_name_of_the_servers(uri, may):
    reader = admitted(uri=uri)
    assert (reader.may_ask, reader.may_stop) == (may, may)


def test_a_session_named_in_a_header_does_not_count():
    assert not admitted(headers={"Bokeh-Session-Id": "mine"}).may_ask


@pytest.mark.parametrize(
    ("host", "setting", "may"),
    [
        ("localhost:8787", None, True),
        ("[::1]:8787", None, True),
        ("a.localhost", None, True),
        ("evil.example:8787", None, False),  # a name whose address its owner has changed to 127.0.0.1
        ("hub.example", True, True),
        ("", None, False),
    ],
)
def test_runs_are_stopped_at_an_address_of_the_schedulers_own(host, setting, may):
    assert admitted(host=host, setting=setting).may_stop is may


@pytest.mark.parametrize(("site", "may"), [("cross-site", False), ("same-site", False), ("same-origin", True)])
def test_a_page_within_another_origins_has_no_button(site, may):
    reader = admitted(headers={"Sec-Fetch-Dest": "iframe", "Sec-Fetch-Site": site})
    assert (reader.may_ask, reader.may_stop) == (True, may)


@pytest.mark.parametrize(
    ("told", "may"),
    [
        ({"Origin": "http://127.0.0.1:8787"}, True),
        ({"Origin": "https://Hub.example", "X-Forwarded-Host": "hub.example"}, True),
        ({}, True),  # not a browser
        ({"Origin": "http://127.0.0.1:8000"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://evil.example"}, False),
    ],
)
def test_a_websocket_of_another_origin_ends_what_a_session_may_do(told, may):
    bokeh_token = pytest.importorskip("bokeh.util.token")
    readers, found = Readers(), []
    application = SimpleNamespace(find_handler=lambda request, **_: found.append(request))
    readers.watch(application)
    reader, other = admitted(readers), admitted(readers, session="other")
    protocols = f"bokeh, {bokeh_token.generate_jwt_token('s', signed=False)}"
    headers = {"Upgrade": "websocket", "Host": "127.0.0.1:8787", "Sec-WebSocket-Protocol": protocols, **told}
    application.find_handler(SimpleNamespace(headers=headers))
    assert (reader.may_ask, reader.may_stop) == (may, may)
    assert other.may_stop
    assert len(found) == 1


def test_a_websocket_without_a_token_is_left_to_bokeh():
    pytest.importorskip("bokeh")
    readers, application = Readers(), SimpleNamespace(find_handler=lambda _: "refused")
    readers.watch(application)
    for protocols in ("", "bokeh", "bokeh, %%%", "bokeh, e30"):
        headers = {"Upgrade": "websocket", "Origin": "http://evil.example", "Sec-WebSocket-Protocol": protocols}
        assert application.find_handler(SimpleNamespace(headers=headers)) == "refused"
