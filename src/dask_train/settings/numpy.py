"""What NumPy does about floating-point errors; how it prints arrays changes no number."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from dask_train.settings.setting import Setting

_KINDS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def settings() -> dict[str, Setting]:
    """Return ``numpy.seterr`` by kind of error, and the function of ``numpy.seterrcall``."""
    kinds = {
        kind: Setting(read=partial(_read, kind), write=partial(_write, kind), default=default, of_thread=True)
        for kind, default in _KINDS.items()
    }
    # First: "call" is refused where there is no function.
    return {"errcall": Setting(read=_function, write=_set_function, default=None, of_thread=True), **kinds}


def _read(kind: str) -> str:
    return str(np.geterr()[kind])  # type: ignore[literal-required]


def _write(kind: str, value: Any) -> None:
    np.seterr(**{kind: value})


def _function() -> bytes | None:
    """Return the function as a pickle, which travels with code that can't be imported."""
    function = np.geterrcall()
    if function is None or not {"call", "log"} & set(np.geterr().values()):
        return None
    try:
        return bytes(cloudpickle.dumps(function))
    except Exception as error:
        raise ValueError(
            f"numpy.seterrcall is set to {function!r}, which can't be pickled ({type(error).__name__}: {error}), and "
            "so can't be called in other processes. Pass a plain function, or 'warn' or 'raise' to numpy.seterr."
        ) from error


def _set_function(value: bytes | None) -> None:
    np.seterrcall(None if value is None else pickle.loads(value))  # noqa: S301 - the client's, as all Dask tasks are
