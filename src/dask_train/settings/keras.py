"""Keras' configuration: float types, epsilon and the place of channels; its backend is in the environment."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import keras

from dask_train.compat.keras.internals import global_state
from dask_train.settings.setting import Setting


def settings() -> dict[str, Setting]:
    """Return what layers, losses and metrics ask for when they are made or called."""
    config = keras.config
    return {
        "floatx": Setting(read=config.floatx, write=config.set_floatx, default="float32"),
        "epsilon": Setting(read=config.epsilon, write=config.set_epsilon, default=1e-7),
        "image_data_format": Setting(
            read=config.image_data_format, write=config.set_image_data_format, default="channels_last"
        ),
        "dtype_policy": Setting(read=_policy, write=_set_policy, default=None, of_thread=True),
        "flash_attention": Setting(
            read=partial(global_state.get_global_attribute, "flash_attention"),
            write=partial(global_state.set_global_attribute, "flash_attention"),
            default=None,
            of_thread=True,
        ),
    }


def _policy() -> str | None:
    """Return the policy as JSON; None for the one that goes with ``floatx``.

    ``keras.config.dtype_policy()`` would fix it permanently if it was not asked for yet.
    """
    policy = global_state.get_global_attribute("dtype_policy")
    if policy is None or (type(policy) is keras.DTypePolicy and policy.name == keras.config.floatx()):
        return None
    return json.dumps(keras.dtype_policies.serialize(policy))


def _set_policy(value: str | None) -> None:
    policy: Any = None if value is None else keras.dtype_policies.deserialize(json.loads(value))
    global_state.set_global_attribute("dtype_policy", policy)
