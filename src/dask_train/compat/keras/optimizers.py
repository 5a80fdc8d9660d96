"""Private parts of Keras' optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def step_count(optimizer: Any) -> Any:
    """Return the variable that counts calls of an optimizer.

    Replaces ``_iterations``; ``iterations`` is divided where gradients are accumulated. Without it steps without
    gradients are not counted.
    """
    return optimizer._iterations


def learning_rate_of(optimizer: Any, *default: Any) -> Any:
    """Return the variable or schedule of an optimizer's learning rate; ``default`` where it has none.

    Replaces ``_learning_rate``; ``learning_rate`` is the number of a schedule's current step. Without it a rate that a
    callback changes stays that of one worker.
    """
    return getattr(optimizer, "_learning_rate", *default)


def trained_variables(optimizer: Any) -> list[Any]:
    """Return the variables that an optimizer was built on, in the order of what it keeps of each.

    Replaces ``_trainable_variables``. Without it gradients can't be distinguished by their place.
    """
    variables: list[Any] = optimizer._trainable_variables
    return variables


def apply_nothing(optimizer: Any) -> None:
    """Let an optimizer do what it does at each step for all weights, without any gradient: averages and counters.

    Replaces ``_backend_apply_gradients``, since ``apply`` returns at once without gradients. Without it workers whose
    rows give no gradients fall behind.
    """
    optimizer._backend_apply_gradients([], [])
    count = step_count(optimizer)
    count.assign(count + 1)


def known_gradients(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return gradients that there are, and their variables, as an optimizer would apply them.

    Replaces ``_check_variables_are_known`` and ``_filter_empty_gradients``. Without them parameter servers are sent
    gradients that Keras refuses.
    """
    optimizer._check_variables_are_known(variables)
    gradients, variables = optimizer._filter_empty_gradients(gradients, variables)
    return list(gradients), list(variables)


def key_of(optimizer: Any, variable: Any) -> Any:
    """Return the key by which an optimizer keeps what it has of a variable.

    Replaces ``_var_key``. Without it parameter servers can't divide an optimizer's state by weights.
    """
    return optimizer._var_key(variable)


def is_spared_weight_decay(optimizer: Any, variable: Any) -> bool:
    """Return whether that variable is to be spared weight decay, which Keras 3.16 knows of built optimizers only.

    Replaces ``_is_excluded_from_weight_decay`` and ``_use_weight_decay``. Without them decay that was excluded comes
    back in an optimizer that is made again.
    """
    if not optimizer.built and hasattr(optimizer, "_is_excluded_from_weight_decay"):
        return bool(optimizer._is_excluded_from_weight_decay(variable))
    return not optimizer._use_weight_decay(variable)
