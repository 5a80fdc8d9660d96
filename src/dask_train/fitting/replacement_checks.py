"""What ``fit`` refuses of Keras models whose lost workers are to be replaced in place, before anything starts."""

from __future__ import annotations

from typing import Any

from dask_train.run.bounds import WorkerBounds

_OWN = ("train_step", "compute_metrics")


def check_replaced(model: Any, ps: int, scorer: int, follows: WorkerBounds | None = None) -> None:
    """Check that a lost worker of a Keras model can be replaced while the others wait.

    Parameters
    ----------
    model : keras.Model
        Compiled.
    ps, scorer
        How many parameter servers and scorers there are.
    follows
        Bounds of the number of workers, where that is what asks for it. Default: ``recovery`` does.

    Raises
    ------
    ValueError
        It can't.
    """
    import keras

    from dask_train.fitting.roles.models import is_own

    asked, change = "recovery='in_place'", "Leave recovery= out: then all start again, from the last checkpoint."
    if follows is not None:
        asked, change = f"workers={tuple(follows)}", "Pass a single number of workers."
    for name, value in (("ps", ps), ("scorer", scorer)):
        if value:
            raise ValueError(
                f"{asked} is for workers that sum in every step and validate themselves, and "
                f"{name}={value} was passed. {change}"
            )
    if keras.backend.backend() == "jax":
        raise ValueError(f"{asked} is for Keras on TensorFlow and torch, and this is JAX. {change}")
    if own := [name for name in _OWN if is_own(model, name)]:
        raise ValueError(
            f"{asked} needs Keras' own {' and '.join(_OWN)}, and model {model.name!r} has a {own[0]} of "
            f"its own, which may apply gradients more than once. {change}"
        )
