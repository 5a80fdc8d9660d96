"""Keras models predict, and are evaluated, on each backend as by Keras' own loops; a backend is one a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dask_train.predicting.server.keras_backends import backend_of

# Keras' own, where it makes an array of a variable of these backends.
IGNORED = "ignore:__array__ implementation:DeprecationWarning"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.nightly)])
def test_what_holds_on_tensorflow_holds_there(backend: str) -> None:
    here = Path(__file__).parent
    files = [str(here / f"test_{name}.py") for name in ("keras_model", "keras_evaluation")]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", IGNORED, *files],
        cwd=here.parents[3],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5000:]


def test_other_backends_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Keras runs on 'openvino' here, .* on tensorflow, torch, jax. Set KERAS"):
        backend_of("openvino")
