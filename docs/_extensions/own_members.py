"""Members of classes that the reference shows: those that dask-train defines, wherever in its own tree."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def skip_those_of_others(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what comes from exceptions, tuples, scikit-learn and Keras: their own pages tell of it."""
    function = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
    module = getattr(function, "__module__", None)
    if not callable(function) or module is None or module.startswith("dask_train"):
        return None
    return True


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("autodoc-skip-member", skip_those_of_others)
    return {"parallel_read_safe": True}
