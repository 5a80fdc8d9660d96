"""The parameters of a training for a log, by the names that Keras has for them."""

from __future__ import annotations

from typing import Any

from dask_train.fitting.spec import FitTask

_LOGGED = (
    "epochs",
    "initial_epoch",
    "batch_size",
    "steps_per_epoch",
    "shuffle",
    "seed",
    "validation_batch_size",
    "validation_steps",
    "class_weight",
)


def params_of(model: Any, task: FitTask) -> dict[str, Any]:
    """Return how a compiled model is trained; what is None is left out."""
    optimizer = model.optimizer
    params = {name: getattr(task, name) for name in _LOGGED}
    params |= {"model": model.name, "loss": _named(model.loss)}
    params["num_weights"] = model.count_params() if model.built else None
    params |= {f"optimizer/{name}": value for name, value in optimizer.get_config().items() if _is_plain(value)}
    params["optimizer"] = type(optimizer).__name__
    params["learning_rate"] = _rate(optimizer)
    return {name: value for name, value in params.items() if value is not None}


def params_of_estimator(estimator: Any) -> dict[str, Any]:
    """Return what an estimator is set to, by its own names; what its library chooses is left out."""
    plain = {name: value for name, value in estimator.get_params().items() if _is_plain(value)}
    return {"model": type(estimator).__name__, **plain}


def _rate(optimizer: Any) -> Any:
    """Return the rate where it is a number; of a schedule, its class."""
    rate = optimizer.get_config().get("learning_rate")
    return rate if isinstance(rate, int | float) or rate is None else str(rate.get("class_name", rate))


def _named(loss: Any) -> str | None:
    if loss is None or isinstance(loss, str):
        return loss
    if isinstance(loss, dict):
        return ", ".join(f"{name}: {_named(each)}" for name, each in loss.items())
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__))


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)
