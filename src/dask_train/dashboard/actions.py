"""Who may act from the page: readers to whom the dashboard has served it, on its own address.

Dask's dashboard has no passwords, and takes websockets of any origin. So a page of another site that is open in the
same browser can load ours without reading it, and can open a websocket to it. Two things it can neither know nor send:
the name of a session that the server has made up, 261 random bits that only the served page holds, and the page's own
``Origin``. bokeh also lets a reader name the session (``bokeh-session-id``, ``bokeh-token``), or begin one with the
websocket: such readers may look, and do nothing else.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakValueDictionary

import dask

PAGE = "train"
PLOT = "individual-train"
# Of the scheduler's configuration: true, false, or null for a dashboard that listens on loopback alone.
SETTING = "train.dashboard.actions"
REASON = "it was stopped on the dashboard"
# Where a page may be shown within another: https://developer.mozilla.org/docs/Web/HTTP/Headers/Sec-Fetch-Dest
_FRAMES = frozenset({"iframe", "frame", "embed", "object"})


class PageReader:
    """What the reader of one page may do.

    Attributes
    ----------
    may_ask
        Ask a role for its stacks.
    may_stop
        Stop a run.
    """

    def __init__(self, *, may_ask: bool, may_stop: bool) -> None:
        self.may_ask, self.may_stop = may_ask, may_ask and may_stop

    def revoke(self) -> None:
        """Allow nothing from now on."""
        self.may_ask = self.may_stop = False


class Readers:
    """The readers of all open pages, by the names of their sessions."""

    def __init__(self) -> None:
        self._by_session: WeakValueDictionary[str, PageReader] = WeakValueDictionary()

    def admit(self, scheduler: Any, doc: Any) -> PageReader:
        """Decide what the reader of a new document may do; the document's page has to hold what is returned."""
        context = doc.session_context
        request = getattr(context, "request", None)
        is_served = request is not None and _is_served_page(request)
        may_stop = is_served and acts(scheduler) and _is_own_name(request) and not _is_framed(request)
        reader = self._by_session[str(getattr(context, "id", ""))] = PageReader(may_ask=is_served, may_stop=may_stop)
        return reader

    def watch(self, application: Any) -> None:
        """Revoke the reader of a session to which a page of another origin opens a websocket."""
        find_handler = application.find_handler

        def find(request: Any, **options: Any) -> Any:
            if request.headers.get("Upgrade", "").lower() == "websocket" and not _is_same_origin(request):
                self._revoke(request.headers.get("Sec-WebSocket-Protocol", ""))
            return find_handler(request, **options)

        application.find_handler = find

    def _revoke(self, protocols: str) -> None:
        from bokeh.util.token import get_session_id

        _, _, token = protocols.partition(",")  # "bokeh", and the token of a session
        try:
            reader = self._by_session.get(get_session_id(token.strip()))
        except Exception:  # not a token: bokeh refuses it
            return
        if reader is not None:
            reader.revoke()


def _is_served_page(request: Any) -> bool:
    """Return whether a session began with loading the page, and has a name that the server has made up."""
    # ``request.uri`` is what was asked for; ``request.arguments`` are those that a token claims.
    address = urlsplit(request.uri)
    names = [name for name, _ in parse_qsl(address.query, keep_blank_values=True)]
    is_named = any(name.startswith("bokeh-") for name in names) or "Bokeh-Session-Id" in request.headers
    return address.path.rstrip("/").rpartition("/")[2] in (PAGE, PLOT) and not is_named


def _is_same_origin(request: Any) -> bool:
    """Return whether the page that opens a websocket has the address that it opens."""
    # A browser always sends an ``Origin``, and lets no page choose it or the two others. A proxy may tell the address
    # that it was asked for.
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    forwarded = request.headers.get("X-Forwarded-Host", "").split(",")
    hosts = {host.strip().lower() for host in (request.headers.get("Host", ""), *forwarded)}
    return urlsplit(origin).netloc.lower() in hosts - {""}


def _is_own_name(request: Any) -> bool:
    """Whether the address is one that no other site can have given to this host (DNS rebinding), or any may be used."""
    name = urlsplit(f"//{request.host}").hostname or ""
    if dask.config.get(SETTING, default=None) is True or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_framed(request: Any) -> bool:
    """Whether a page of another origin shows ours within itself, where it could lay it under a reader's click."""
    headers = request.headers
    return headers.get("Sec-Fetch-Dest") in _FRAMES and headers.get("Sec-Fetch-Site") != "same-origin"


def acts(scheduler: Any) -> bool:
    """Return what the setting says; what it can't say is no."""
    setting = dask.config.get(SETTING, default=None)
    return setting is True or (setting is None and listens_on_loopback(scheduler))


def listens_on_loopback(scheduler: Any) -> bool:
    """Return whether the scheduler's dashboard is reached from its own host alone."""
    from distributed.comm.utils import get_tcp_server_addresses

    hosts = [address[0] for address in get_tcp_server_addresses(scheduler.http_server)]
    return bool(hosts) and all(ip_address(host.partition("%")[0]).is_loopback for host in hosts)
