"""Gradients that travel between hosts in fewer bits, where that was asked for; imports no framework."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_train.collectives import ProcessGroup
    from dask_train.role.session import Session

BFLOAT16 = "bfloat16"
# Gradients of these are summed in float32.
_ROUNDED = frozenset({"float32", "float16", "bfloat16"})


def check_dtypes(wire: str | None, dtypes: Iterable[tuple[str, str]]) -> None:
    """Check that what is trained has dtypes whose gradients can be rounded.

    Parameters
    ----------
    wire
        As of :func:`dask_train.fit`.
    dtypes
        Names and dtypes of what is trained.

    Raises
    ------
    ValueError
        One has another dtype.
    """
    for name, dtype in dtypes if wire is not None else ():
        if dtype not in _ROUNDED:
            raise ValueError(
                f"wire={wire!r} rounds gradients of float32 and shorter dtypes, and {name!r} is {dtype}, which has "
                "more digits for a reason. Leave wire= out, or train the model in float32."
            )


def tell_of_wire(wire: str | None, session: Session, group: ProcessGroup, what: str = "Gradients") -> None:
    """Have the run's result say that ``what`` was rounded; the first rank tells it."""
    if wire is None or group.rank:
        return
    if group.num_hosts > 1:
        session.notice(
            f"{what} travelled between the {group.num_hosts} hosts in bfloat16 and were added in float32 "
            f"(wire={wire!r}): the model is not that of one process to rounding of float32."
        )
    else:
        session.notice(f"wire={wire!r} has changed nothing: all workers are on one host, where nothing is rounded.")
