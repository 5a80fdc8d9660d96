"""Whether frameworks see the GPUs of a machine; asked where there are some.

Travels by value as :mod:`~dask_train.doctor.health_probe` does, so it imports the standard library alone. Each
framework is asked in a process of its own that ends at once: a process that looks for devices with CUDA opens them, and
takes memory.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys

# Programs that print whether a framework would compute on a GPU, by the module that has to be there.
_QUESTIONS = {
    "torch": "import torch; print(torch.cuda.is_available())",
    "jax": "import jax; print(jax.default_backend() != 'cpu')",
    "tensorflow": "import tensorflow as tf; print(bool(tf.config.list_physical_devices('GPU')))",
    "keras": "import keras; at = str(keras.ops.ones(1).device).lower(); print('cuda' in at or 'gpu' in at)",
}
# JAX would take most of a device's memory, which others use.
_SPARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}


async def see(timeout_s: float) -> dict[str, str]:
    """Tell by framework why it uses no GPU in a process like this one; ``""`` where it does.

    Frameworks that are not installed are left out. Each is imported anew, which takes seconds.
    """
    installed = [name for name in _QUESTIONS if importlib.util.find_spec(name) is not None]
    answers = await asyncio.gather(*(asyncio.to_thread(_ask, name, timeout_s) for name in installed))
    return dict(zip(installed, answers, strict=True))


def _ask(name: str, timeout_s: float) -> str:
    environment = {**os.environ, **_SPARING}
    program = [sys.executable, "-c", _QUESTIONS[name]]
    try:
        answer = subprocess.run(
            program, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"it gave no answer within {timeout_s:g} s"
    except OSError as error:
        return str(error)
    words = answer.stdout.split()
    if answer.returncode == 0 and words:
        return "" if words[-1] == "True" else "it finds none"
    return (answer.stderr.strip().splitlines() or [f"its process ended with status {answer.returncode}"])[-1][:200]
