"""How a rank that waits for others leaves its wait, where one of them is lost and will be replaced."""

from __future__ import annotations


class PeerLostError(Exception):
    """Another rank is lost, and will not come to where this one waits."""
