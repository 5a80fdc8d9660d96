"""Private parts of what Keras makes of ``compile``: losses, metrics, and the steps of its trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compile_loss(model: Any) -> Any:
    """Return the one loss that Keras has made of all that were compiled; None without one.

    Replaces ``_compile_loss``. Without it nothing tells whether a model compares predictions with targets.
    """
    return model._compile_loss


def compile_metrics(model: Any) -> Any:
    """Return the one metric that Keras has made of all that were compiled; None without one.

    Replaces ``_compile_metrics``; ``Model.metrics`` has them after the first step only.
    """
    return model._compile_metrics


def losses_passed(model: Any) -> dict[str, Any]:
    """Return ``loss`` and ``loss_weights`` as ``compile`` was given them; empty without a loss.

    Replaces ``CompileLoss._user_loss``. Without it a model that was compiled twice travels with its last config alone.
    """
    loss = compile_loss(model)
    return {} if loss is None else {"loss": loss._user_loss, "loss_weights": loss._user_loss_weights}


def metrics_passed(model: Any) -> dict[str, Any]:
    """Return ``metrics`` and ``weighted_metrics`` as ``compile`` was given them; empty without any.

    Replaces ``CompileMetrics._user_metrics``. Without it names of scores are known after the first step only.
    """
    own = compile_metrics(model)
    return {} if own is None else {"metrics": own._user_metrics, "weighted_metrics": own._user_weighted_metrics}


def inner_metrics(metric: Any) -> list[Any]:
    """Return the metrics that a metric is made of.

    Replaces ``Metric._metrics``. Without it counts of a metric within another one are not summed over workers.
    """
    return list(getattr(metric, "_metrics", None) or getattr(metric, "metrics", None) or [])


def function_of(metric: Any) -> Any:
    """Return the function of which a ``MeanMetricWrapper`` takes the mean.

    Replaces ``_fn``. Without it each metric is given the rows of all workers.
    """
    return metric._fn


def arguments_of(wrapper: Any, *default: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that a loss or metric passes to its function at each call; ``default`` where it has none.

    Replaces ``_fn_kwargs``, of which configs leave some out (``axis``, ``delta``). Without it a loss that is made again
    computes something else.
    """
    arguments: dict[str, Any] = getattr(wrapper, "_fn_kwargs", *default)
    return arguments


def compute_loss(model: Any, **batch: Any) -> Any:
    """Compute a model's loss as its steps do.

    Replaces ``_compute_loss``, which passes ``training`` to a custom ``compute_loss`` if it takes it.
    """
    return model._compute_loss(**batch)


def build_symbolically(model: Any, batch: Any, *, again: bool = False) -> None:
    """Build a model, its loss and its metrics by the shapes of a batch; nothing is computed.

    Replaces ``_symbolic_build``. Without it variables of metrics are made within the first step, on some workers only.

    Parameters
    ----------
    again
        Whether also while it is fitted, when an instance takes itself as built already.
    """
    if again:
        type(model)._symbolic_build(model, data_batch=batch)
    else:
        model._symbolic_build(data_batch=batch)


def initial_epoch_set(model: Any) -> int | None:
    """Return the epoch from which a callback asks Keras to start; None if none does.

    Replaces ``_initial_epoch``, which ``BackupAndRestore`` sets. Without it one worker would skip epochs, silently.
    """
    epoch: int | None = model._initial_epoch
    return epoch


def is_validated(model: Any, epoch: int, every: Any) -> bool:
    """Return whether Keras validates after that epoch, by ``validation_freq``.

    Replaces ``_should_eval``. Without it a scorer would validate other epochs than Keras.
    """
    return bool(model._should_eval(epoch, every))


def replace_is_validated(model: Any, answer: Callable[..., bool]) -> None:
    """Let Keras ask ``answer`` whether it validates after an epoch, in this model alone; see :func:`is_validated`."""
    model._should_eval = answer
