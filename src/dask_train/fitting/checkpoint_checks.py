"""What ``checkpoint=`` of ``fit`` may ask for, before anything starts."""

from __future__ import annotations

from dask_train.checkpoint.policy import Checkpoint


def check_best_of_fit(kept: Checkpoint | None, *, validates: bool, ps: int) -> None:
    """See that the score by which the best checkpoint is known is one of the model that is kept, and can come.

    Raises
    ------
    ValueError
        It is not, or can't.
    """
    if kept is None or kept.best is None:
        return
    of_validation = kept.best.startswith("val_")
    if of_validation and not validates:
        raise ValueError(
            f"The best checkpoint is to be known by {kept.best!r}, which nothing computes: pass validation_data or "
            "validation_split."
        )
    if ps:
        raise ValueError(
            f"The best checkpoint is to be known by {kept.best!r}, and with ps={ps} the weights go on while they are "
            "scored, by a scorer as well: none that was kept would have that score. Leave best= out, or pass ps=0."
        )
