"""Private parts of Optuna. Made for Optuna 4 and 5."""

from __future__ import annotations

from typing import Any


def take_up_trial(study: Any, trial: Any) -> Any:
    """Return a trial that a study knows and has not ended, as one to report to.

    Replaces ``FrozenTrial._trial_id``, which ``Trial`` is made with. Without it trials of a checkpoint begin anew.
    """
    from optuna.trial import Trial

    return Trial(study, trial._trial_id)


def num_grid_points(sampler: Any) -> int | None:
    """Return how many points a ``GridSampler`` has; None of other samplers.

    Replaces ``_n_min_trials``. Without it a search over a grid tries points twice.
    """
    from optuna.samplers import GridSampler

    return getattr(sampler, "_n_min_trials", None) if isinstance(sampler, GridSampler) else None
