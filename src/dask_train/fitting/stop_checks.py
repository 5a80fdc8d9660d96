"""What a rule to stop by may look at, as far as it is known before anything starts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dask_train.arguments import nearest
from dask_train.compat.keras.compiled import metrics_passed
from dask_train.run.stop_rule import EPOCH, StopRule
from dask_train.trainers.common.score_names import score_name


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
    given = [score_name(prefix + name) for prefix in (("", "val_") if validates else ("",)) for name in sorted(known)]
    if unknown := sorted(names - set(given)):
        raise ValueError(
            f"stop looks at {', '.join(unknown)}, and the model's scores are {', '.join(given)}."
            f"{nearest(unknown[0], given)}"
        )


def scores_of_model(model: Any, callbacks: Collection[Any]) -> set[str] | None:
    """Return the names in a Keras model's logs; None if they show when it trains."""
    import keras

    from dask_train.fitting.roles.models import is_own

    own = any(is_own(model, name) for name in ("train_step", "compute_metrics", "compute_loss"))
    if (
        callbacks
        or own
        or len(getattr(model, "outputs", None) or ()) != 1
        or any(layer.metrics for layer in model.layers)
    ):
        return None
    given = metrics_passed(model)
    metrics = [each for each in keras.tree.flatten(list(given.values())) if each is not None]
    if any(isinstance(each, type) or _may_give_several(each) for each in metrics):
        return None
    names = [
        each if isinstance(each, str) else getattr(each, "name", getattr(each, "__name__", "")) for each in metrics
    ]
    return {"loss", *names} if all(names) and len(set(names)) == len(names) else None


def _may_give_several(metric: Any) -> bool:
    """Return whether the result of a metric may be a dict, by keys of its own; Keras' own metrics give a number."""
    import keras

    return isinstance(metric, keras.Metric) and not type(metric).__module__.startswith("keras.")
