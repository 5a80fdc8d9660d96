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


class WireNotice:
    """Has the run's result say whether numbers were rounded; the first rank tells it.

    A run on one host may get to several with another number of workers, or where a lost one is replaced. So the notice
    that nothing was rounded comes when training ends.

    Parameters
    ----------
    wire
        As of :func:`dask_train.fit`.
    session, group
        Of the rank.
    what
        Which numbers travel. Default: gradients.
    """

    def __init__(self, wire: str | None, session: Session, group: ProcessGroup, what: str = "Gradients") -> None:
        self._wire, self._session, self._group, self._what = wire, session, group, what
        self._tells, self._num_told = wire is not None and group.rank == 0, 1  # hosts
        self._tell_of_hosts()

    def training_ends(self) -> None:
        """Note in the run's result what it does not say yet."""
        self._tell_of_hosts()
        if self._tells and self._group.most_hosts == 1:
            self._session.notice(
                f"wire={self._wire!r} has changed nothing: all workers are on one host, where nothing is rounded."
            )

    def _tell_of_hosts(self) -> None:
        if self._tells and (num := self._group.most_hosts) > self._num_told:
            self._num_told = num
            self._session.notice(
                f"{self._what} travelled between the {num} hosts in bfloat16 and were added in float32 "
                f"(wire={self._wire!r}): the model is not that of one process to rounding of float32."
            )
