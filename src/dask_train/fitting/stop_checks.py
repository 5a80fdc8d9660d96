"""What rules to stop by, callbacks and the best checkpoint look at, as far as it is known before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dask_train.arguments import nearest
from dask_train.checkpoint.policy import Checkpoint
from dask_train.compat.keras.compiled import metrics_passed
from dask_train.run.stop_rule import EPOCH, StopRule
from dask_train.trainers.common.score_names import score_name

# What Keras' own callbacks add to logs; there is none of validation.
_RATE = "learning_rate"


def check_stop_names(
    rule: StopRule | None, *, validates: bool, known: Collection[str] | None = None, unit: str = EPOCH
) -> None:
    """Check that the scores can come that a rule to stop by looks at.

    Parameters
    ----------
    unit
        What is counted, which is known besides scores.
    known
        All that the model gives, without those of validation; None if that shows after an epoch only.

    Raises
    ------
    ValueError
        One is of validation, and nothing is validated; or the model does not give it.
    """
    names = set() if rule is None else rule.names - {unit}
    of_validation = sorted(name for name in names if name.startswith("val_"))
    if of_validation and not validates:
        raise ValueError(
            f"stop looks at {', '.join(of_validation)}, which nothing computes: pass validation_data or "
            "validation_split."
        )
    if known is None:
        return
    score_names = list(map(score_name, names_logged(known, validates=validates)))
    if unknown := sorted(names - set(score_names)):
        raise ValueError(
            f"stop looks at {', '.join(unknown)}, and the model's scores are {', '.join(score_names)}."
            f"{nearest(unknown[0], score_names)}"
        )


def check_monitored(callbacks: Sequence[Any], known: Collection[str] | None, *, validates: bool) -> None:
    """Check that the logs can come by which Keras' own callbacks decide.

    Parameters
    ----------
    callbacks
        Of Keras.
    known
        As of :func:`check_stop_names`.

    Raises
    ------
    ValueError
        The model does not give one. What nothing validates is no error, as in Keras, which warns of it.
    """
    log_names = names_logged(known or (), validates=validates)
    for callback in callbacks if known is not None else ():
        name = monitored(callback)
        if name and name not in log_names and (validates or not name.startswith("val_")):
            raise ValueError(
                f"Callback {type(callback).__name__} has monitor={name!r}, and the model's logs are "
                f"{', '.join(log_names)}.{nearest(name, log_names)} Pass one of these as monitor=."
            )


def check_best_name(checkpoint: Checkpoint | None, known: Collection[str] | None, *, validates: bool) -> None:
    """Check that the score can come by which the best checkpoint is known.

    Parameters
    ----------
    checkpoint
        What ``checkpoint=`` was given; None for no checkpoints.
    known
        As of :func:`check_stop_names`.

    Raises
    ------
    ValueError
        The model does not give it.
    """
    if checkpoint is None or checkpoint.best is None or known is None:
        return
    if checkpoint.best not in (score_names := names_logged(known, validates=validates)):
        raise ValueError(
            f"The best checkpoint is to be known by {checkpoint.best!r}, and the model's scores are "
            f"{', '.join(score_names)}.{nearest(checkpoint.best, score_names)} "
            "Name one of these in dt.Checkpoint(best=...)."
        )


def scores_of_model(model: Any, callbacks: Collection[Any]) -> set[str] | None:
    """Return the names in a Keras model's logs; None if they show when it trains."""
    import keras

    from dask_train.fitting.roles.models import is_own

    own = any(is_own(model, name) for name in ("train_step", "compute_metrics", "compute_loss"))
    if (
        own
        or any(map(_may_add_logs, callbacks))
        or len(getattr(model, "outputs", None) or ()) != 1
        or any(layer.metrics for layer in model.layers)
    ):
        return None
    passed_metrics = metrics_passed(model)
    metrics = [each for each in keras.tree.flatten(list(passed_metrics.values())) if each is not None]
    if any(isinstance(each, type) or _may_give_several(each) for each in metrics):
        return None
    names = [
        each if isinstance(each, str) else getattr(each, "name", getattr(each, "__name__", "")) for each in metrics
    ]
    if not all(names) or len(set(names)) < len(names):
        return None
    return {"loss", *names, *([_RATE] if any(map(_tells_rate, callbacks)) else [])}


def check_one_number(
    model: Any, rule: StopRule | None, checkpoint: Checkpoint | None, callbacks: Sequence[Any]
) -> None:
    """Check that the scores of a compiled Keras model that are compared are single numbers.

    Parameters
    ----------
    rule, checkpoint
        What ``stop=`` and ``checkpoint=`` were given; None without one.
    callbacks
        Of Keras.

    Raises
    ------
    ValueError
        One has a number for each class.
    """
    compared = dict.fromkeys([] if rule is None else sorted(rule.names), "stop looks at it")
    if checkpoint is not None and checkpoint.best is not None:
        compared.setdefault(checkpoint.best, "the best checkpoint is to be known by it")
    for callback in callbacks:
        compared.setdefault(monitored(callback), f"callback {type(callback).__name__} monitors it")
    for name, argument in of_several_classes(model).items():
        for compared_name in {name, f"val_{name}"} & compared.keys():
            raise ValueError(
                f"{compared_name} has a number for each class, and {compared[compared_name]}, which takes one number. "
                f"Pass {argument} to that metric."
            )


def of_several_classes(model: Any) -> dict[str, str]:
    """Return the names of scores that are known to have a number for each class, and what argument makes it one.

    That of a single class is one number.
    """
    from keras import metrics, tree

    outputs: list[Any] = getattr(model, "outputs", None) or []
    if len(outputs) != 1 or not outputs[0].shape or outputs[0].shape[-1] == 1:
        return {}
    several: dict[str, str] = {}
    for each in tree.flatten(list(metrics_passed(model).values())):
        result = getattr(type(each), "result", None)
        if result is metrics.FBetaScore.result and each.average is None:
            several[each.name] = "average='macro'"
        elif result is metrics.R2Score.result and each.class_aggregation is None:
            several[each.name] = "class_aggregation='uniform_average'"
    return several


def names_logged(known: Collection[str], *, validates: bool) -> list[str]:
    """Return the names in logs of an epoch: ``known`` ones, and where ``validates`` those of validation."""
    of_validation = [f"val_{name}" for name in sorted(known) if name != _RATE] if validates else []
    return [*sorted(known), *of_validation]


def _may_add_logs(callback: Any) -> bool:
    """Return whether a callback may put logs of its own among those of an epoch."""
    import keras

    return isinstance(callback, keras.callbacks.LambdaCallback) or not type(callback).__module__.startswith("keras.")


def _tells_rate(callback: Any) -> bool:
    import keras

    return isinstance(callback, keras.callbacks.ReduceLROnPlateau | keras.callbacks.LearningRateScheduler)


def _may_give_several(metric: Any) -> bool:
    """Return whether the result of a metric may be a dict, by keys of its own; Keras' own metrics give numbers."""
    import keras

    return isinstance(metric, keras.Metric) and not type(metric).__module__.startswith("keras.")


def monitored(callback: Any) -> str:
    """Return which log one of Keras' own callbacks decides by, if any."""
    from keras.callbacks import EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

    decides = isinstance(callback, EarlyStopping | ReduceLROnPlateau)
    decides = decides or (isinstance(callback, ModelCheckpoint) and callback.save_best_only)
    return str(callback.monitor) if decides else ""
