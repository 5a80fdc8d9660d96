"""Who may stop a run from the page: by default readers on the scheduler's own host, and nobody from elsewhere."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import dask

PAGE = "train"
PLOT = "individual-train"
# Of the scheduler's configuration: true, false, or null for a dashboard that listens on loopback alone.
SETTING = "train.dashboard.actions"
REASON = "it was stopped on the dashboard"


def may_act(scheduler: Any, doc: Any) -> bool:
    """Whether a reader may stop runs.

    Dask's dashboard takes websockets of any origin, so a page of another site that is open in the same browser could
    begin a session of its own. It can't read ours: a session counts that began with loading the page.
    """
    request = getattr(doc.session_context, "request", None)
    path = getattr(request, "path", "") if request is not None else ""
    return path.rstrip("/").rpartition("/")[2] in (PAGE, PLOT) and acts(scheduler)


def acts(scheduler: Any) -> bool:
    """What the setting says; what it can't say is no."""
    setting = dask.config.get(SETTING, default=None)
    return setting is True or (setting is None and listens_on_loopback(scheduler))


def listens_on_loopback(scheduler: Any) -> bool:
    """Whether the scheduler's dashboard is reached from its own host alone."""
    from distributed.comm.utils import get_tcp_server_addresses

    hosts = [address[0] for address in get_tcp_server_addresses(scheduler.http_server)]
    return bool(hosts) and all(ip_address(host.partition("%")[0]).is_loopback for host in hosts)
