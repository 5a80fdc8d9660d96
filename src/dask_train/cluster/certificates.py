"""The certificates of a cluster that has TLS."""

from __future__ import annotations

from typing import Any


def certificates(dask_end: Any, role: str) -> dict[str, str] | None:
    """Return the certificates of a client or Dask worker: paths, or PEM text; None if the cluster has no TLS.

    Parameters
    ----------
    dask_end
        A ``Client`` or a ``Worker``.
    role
        ``"client"`` or ``"worker"``.
    """
    address = dask_end.scheduler.address if role == "client" else dask_end.address
    if not address.startswith("tls://"):
        return None
    for each in (role, "worker"):  # a Dask worker's own client has those of the Dask worker
        config = dask_end.security.get_tls_config_for_role(each)
        if config.get("cert"):
            break
    return {name: value for name, value in config.items() if value}
