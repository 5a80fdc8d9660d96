"""Options of pandas that change numbers or dtypes; not how frames are shown, read or drawn.

``compute.use_numexpr`` is not a script's setting: Dask sets it where it imports pandas.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from dask_train.compat.pandas import read_option, registered_option
from dask_train.settings.setting import Setting

_NAMES = (
    "compute.use_bottleneck",
    "compute.use_numba",
    "future.distinguish_nan_and_na",
    "future.infer_freq_returns_offset",
    "future.infer_string",
    "future.no_silent_downcasting",
    "future.python_scalars",
    "mode.copy_on_write",
    "mode.string_storage",
)


def settings() -> dict[str, Setting]:
    """Return the options that this version of pandas has."""
    settings_by_name = {}
    for name in _NAMES:
        if (option := registered_option(name)) is not None:
            settings_by_name[name] = Setting(
                read=partial(read_option, name), write=partial(_write, name), default=option.defval
            )
    return settings_by_name


def _write(name: str, value: Any) -> None:
    pd.set_option(name, value)
