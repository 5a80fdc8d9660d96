"""Private parts of TensorFlow. Made for TensorFlow 2.21."""

from __future__ import annotations

from typing import Any


def registered_gradients() -> dict[str, Any]:
    """Return the table itself of custom gradients of this process; empty if there is none.

    Replaces ``gradient_registry._registry``, from which nothing can be taken out in public. Without it each graph of a
    step, and every variable in it, stays for as long as the process lives.
    """
    from tensorflow.python.framework import ops

    table: dict[str, Any] = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    return table


def is_op_determinism_enabled() -> bool:
    """Return whether operations are deterministic, which TensorFlow lets one set but not read.

    Replaces ``tensorflow.python.framework.config.is_op_determinism_enabled``. Without it a client's setting does not
    come along.
    """
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())


def unique_id(variable: Any) -> Any:
    """Return TensorFlow's own key of a variable; the ``id`` of anything else.

    Replaces ``_unique_id``. Without it a variable and Keras' wrapper of it are two.
    """
    return getattr(variable, "_unique_id", id(variable))


def handle_name(variable: Any) -> str | None:
    """Return the name of a TensorFlow variable's handle, by which optimizers see it; None of other backends' variables.

    Replaces ``_handle_name``. Without it variables that are made again have other names there.
    """
    return getattr(variable, "_handle_name", None)


def set_handle_name(variable: Any, name: str) -> None:
    """Give a TensorFlow variable's handle a name; other backends' variables have none."""
    if hasattr(variable, "_handle_name"):
        variable._handle_name = name
