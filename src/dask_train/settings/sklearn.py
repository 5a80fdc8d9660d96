"""scikit-learn's configuration, of which each thread has its own; not how estimators are shown."""

from __future__ import annotations

from functools import partial
from typing import Any

import sklearn

from dask_train.settings.setting import Setting

_DEFAULTS = {
    "array_api_dispatch": False,
    "assume_finite": False,
    "enable_cython_pairwise_dist": True,
    "enable_metadata_routing": False,
    "pairwise_dist_chunk_size": 256,
    "skip_parameter_validation": False,
    "sparse_interface": "spmatrix",
    "transform_output": "default",
    "working_memory": 1024,
}
_SHOWN = frozenset({"display", "print_changed_only"})


def settings() -> dict[str, Setting]:
    """Return what ``sklearn.get_config`` has."""
    return {
        name: Setting(
            read=partial(_read, name),
            write=partial(_write, name),
            default=_DEFAULTS.get(name),
            of_thread=True,
        )
        for name in sklearn.get_config()
        if name not in _SHOWN
    }


def _read(name: str) -> Any:
    return sklearn.get_config()[name]


def _write(name: str, value: Any) -> None:
    sklearn.set_config(**{name: value})
