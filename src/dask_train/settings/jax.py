"""JAX's configuration, as far as it changes numbers or whether an error is raised."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from dask_train.settings.setting import Setting

_DEFAULTS: dict[str, Any] = {
    "jax_allow_f16_reductions": True,
    "jax_debug_infs": False,
    "jax_debug_nans": False,
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_disable_jit": False,
    "jax_enable_custom_prng": False,
    "jax_enable_x64": False,
    "jax_legacy_prng_key": "allow",
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_random_seed_offset": 0,
    "jax_threefry_partitionable": True,
}


def settings() -> dict[str, Setting]:
    """Return those that this version of JAX has; within ``with jax.enable_x64(True):``, what holds there."""
    return {
        name: Setting(
            read=partial(_read, name), write=partial(jax.config.update, name), default=default, within=_within(name)
        )
        for name, default in _DEFAULTS.items()
        if hasattr(jax.config, name)
    }


def _read(name: str) -> Any:
    value = getattr(jax.config, name)
    return getattr(value, "value", value)  # some are members of an Enum


def _within(name: str) -> Any:
    """Return JAX's context of that setting; None where it has none. Older versions have that of x64 elsewhere."""
    short = name.removeprefix("jax_")
    context = getattr(jax, short, None)
    return getattr(jax.experimental, short, None) if context is None else context
