"""What processes with JAX import."""

from __future__ import annotations

JAX_IMPORTS = ("jax", "jax.numpy")
