"""Private parts of pandas. Made for pandas 3.1."""

from __future__ import annotations

from typing import Any


def registered_option(name: str) -> Any:
    """Return an option with its default, ``defval``; None if this version has none of that name.

    Replaces ``_registered_options``. Without it pandas warns of each deprecated option that is looked at.
    """
    from pandas._config.config import _registered_options

    return _registered_options.get(name)


def read_option(name: str) -> Any:
    """Return the value of an option, without the warning that ``pandas.get_option`` gives of some.

    Replaces ``_get_root``.
    """
    from pandas._config.config import _get_root

    root, last = _get_root(name)
    return root[last]
