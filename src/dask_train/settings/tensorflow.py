"""TensorFlow's settings, as far as they change numbers or whether an error is raised; its seeds are those of a run."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from dask_train.compat.tensorflow import is_op_determinism_enabled
from dask_train.settings.setting import Setting

_ALWAYS_TOLD = frozenset({"disable_meta_optimizer", "disable_model_pruning"})


def settings() -> dict[str, Setting]:
    """Return determinism, TF32, placement, and what its graph optimizer does."""
    experimental, optimizer = tf.config.experimental, tf.config.optimizer
    return {
        "op_determinism": Setting(
            read=is_op_determinism_enabled,
            write=_set_determinism,
            default=False,
            is_final=lambda value, _: bool(value),
        ),
        "tensor_float_32": Setting(
            read=experimental.tensor_float_32_execution_enabled,
            write=experimental.enable_tensor_float_32_execution,
            default=True,
        ),
        "soft_device_placement": Setting(
            read=tf.config.get_soft_device_placement, write=tf.config.set_soft_device_placement, default=True
        ),
        "jit": Setting(read=optimizer.get_jit, write=optimizer.set_jit, default=""),
        "optimizer_options": Setting(
            read=_options, write=_set_options, default={}, is_final=lambda value, before: bool(set(value) - set(before))
        ),
    }


def _set_determinism(value: bool) -> None:
    if not value and "TF_DETERMINISTIC_OPS" in os.environ:
        return  # the Dask worker's environment asks for it, which makes no number wrong
    if not value:
        raise RuntimeError("TensorFlow's op determinism can't be put back once it is on; begin another process.")
    tf.config.experimental.enable_op_determinism()


def _options() -> dict[str, Any]:
    """Return the options that were set; two are returned in any case."""
    options: dict[str, Any] = tf.config.optimizer.get_experimental_options()
    return {name: value for name, value in options.items() if value or name not in _ALWAYS_TOLD}


def _set_options(value: dict[str, Any]) -> None:
    if left := set(_options()) - set(value):
        raise RuntimeError(f"TensorFlow's optimizer options {sorted(left)} can't be put back; begin another process.")
    tf.config.optimizer.set_experimental_options(value)
