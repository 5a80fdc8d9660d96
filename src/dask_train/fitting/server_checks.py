"""What ``fit`` refuses of parameter servers and scorers before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def check_servers(ps: Any, scorer: Any, *, validates: bool) -> None:
    """Check how many parameter servers and scorers there can be.

    Raises
    ------
    ValueError
        There can't be that many.
    """
    for name, value in (("ps", ps), ("scorer", scorer)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}; it is a whole number from 0.")
    if scorer and not (validates and scorer == 1):
        raise ValueError(
            f"scorer={scorer!r}: one scorer validates beside training. Pass scorer=1 with validation_data, or leave it "
            "out."
        )


def check_served(model: Any, ps: int) -> None:
    """Check that ``ps`` parameter servers can share a model.

    :func:`~dask_train.fitting.checks.check_rows` has built it, where it could.

    Raises
    ------
    ValueError
        They can't.
    """
    from dask_train.fitting.roles.shards import check_sharing
    from dask_train.keras_models.state import held_optimizers, is_built

    if not ps:
        return
    if not is_built(model):
        raise ValueError(f"Model {model.name!r} has no weights yet. Build it first, or give it an Input, to use ps.")
    if len(model.trainable_variables) < ps:
        raise ValueError(
            f"ps={ps} servers share {len(model.trainable_variables)} trainable weights of model {model.name!r}: some "
            "would have none. Use a smaller ps, or 0."
        )
    for optimizer, _ in held_optimizers(model) if ps > 1 else ():
        check_sharing(_like(optimizer, model.trainable_variables))


def _like(optimizer: Any, variables: Sequence[Any]) -> Any:
    """Return an optimizer that is built: that one, or one like it."""
    if optimizer.built:
        return optimizer
    twin = type(optimizer).from_config(optimizer.get_config())
    twin.build(list(variables))
    return twin


def check_callbacks_with_servers(callbacks: Sequence[Any], ps: int, scorer: int) -> None:
    """Callbacks that make sense where others train on while they act, or validate elsewhere.

    Raises
    ------
    ValueError
        One does not.
    """
    import keras

    for callback in callbacks if ps or scorer else ():
        name = type(callback).__name__
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            raise ValueError(
                f"Callback {name} puts moving averages in place of the weights for a while, and "
                + (
                    "with parameter servers other workers train on meanwhile. "
                    if ps
                    else "a scorer does not see them. "
                )
                + "Leave it out: with use_ema=True training ends with the averages; or train with ps=0, scorer=0."
            )
        if scorer and (monitor := _monitored(callback)).startswith("val_"):
            raise ValueError(
                f"Callback {name} looks at {monitor!r} when an epoch ends, and a scorer finds it later, while training "
                f"continues. Leave scorer out; or, to stop, pass stop=dt.Patience({monitor!r}, 3) in its place."
            )


def _monitored(callback: Any) -> str:
    """Return which log one of Keras' own callbacks decides by, if any."""
    from keras.callbacks import EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

    decides = isinstance(callback, EarlyStopping | ReduceLROnPlateau)
    decides = decides or (isinstance(callback, ModelCheckpoint) and callback.save_best_only)
    return str(callback.monitor) if decides else ""
