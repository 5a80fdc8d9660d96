"""XGBoost's global configuration, of which each thread has its own; not how many threads a process takes."""

from __future__ import annotations

from functools import partial
from typing import Any

import xgboost

from dask_train.settings.setting import Setting

_DEFAULTS = {"verbosity": 1, "use_rmm": False, "use_cuda_async_pool": False}
# A role or task has its share of the cores.
_OF_PROCESS = frozenset({"nthread"})


def settings() -> dict[str, Setting]:
    """Return what ``xgboost.get_config`` has."""
    return {
        name: Setting(
            read=partial(_read, name), write=partial(_write, name), default=_DEFAULTS.get(name), of_thread=True
        )
        for name in xgboost.get_config()
        if name not in _OF_PROCESS
    }


def _read(name: str) -> Any:
    return xgboost.get_config()[name]


def _write(name: str, value: Any) -> None:
    xgboost.set_config(**{name: value})
