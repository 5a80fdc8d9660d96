"""Ports that are held for servers of a role process before they start."""

from __future__ import annotations

import socket


def hold_port(port: int = 0) -> socket.socket:
    """Return a socket that holds a free port for a server of this process, such as TensorFlow's.

    It is bound but does not listen, with SO_REUSEPORT, so that a server that sets the same option can bind the port
    while no other process is given it (socket(7): a port chosen by the kernel is never one that is already bound). As
    TensorFlow's server does, it takes all interfaces: a port that is free on one may be in use on another.

    Parameters
    ----------
    port
        One that is held already, to hold it once more; the kernel's choice by default.
    """
    holder = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if holder.family == socket.AF_INET6:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    holder.bind(("", port))
    return holder


def address_of(host: str, holder: socket.socket) -> str:
    """``host:port`` of what will listen where this socket holds the port."""
    return f"{f'[{host}]' if ':' in host else host}:{holder.getsockname()[1]}"
