"""The ledger: an account of rows, from the batches that roles have taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_train.data.account import Stretch


@dataclass(frozen=True, kw_only=True)
class Line:
    """Rows of one role process in one epoch, over all its attempts.

    Attributes
    ----------
    role, rank
        Whose.
    dataset
        The role's own data is 0; published ones are numbered as the role opened them.
    turn, epoch
        Which call of ``batches()``, and which epoch of it.
    read
        Rows that it was given.
    trained
        Rows of the batches that it came back from (it asked for the next one, or left the loop), each counted once.
    repeated
        Rows of those that an earlier attempt had come back from, too.
    """

    role: str
    rank: int
    dataset: int
    turn: int
    epoch: int
    read: int
    trained: int
    repeated: int


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """An account of the rows of a run.

    Attributes
    ----------
    lines
        One for each role process and epoch.
    read, trained, repeated
        Rows of all lines; see :class:`Line`.
    dropped
        Rows of the epochs that were begun which nobody has trained on: where a run is stopped in mid-epoch, or a role
        breaks off its loop. For every epoch that was begun, ``trained + dropped`` is the data set's number of rows.
    """

    lines: tuple[Line, ...] = field(repr=False)
    read: int
    trained: int
    repeated: int
    dropped: int

    @classmethod
    def of_lines(cls, lines: Iterable[Line], num_rows: Callable[[Line], int]) -> Ledger:
        """The ledger of these lines; ``num_rows`` tells the rows of the data set that a line speaks of."""
        lines = tuple(lines)
        left: dict[tuple[str, int, int, int], int] = {}
        for line in lines:
            key = (line.role, line.dataset, line.turn, line.epoch)
            left[key] = left.get(key, num_rows(line)) - line.trained
        return cls(
            lines=lines,
            read=sum(line.read for line in lines),
            trained=sum(line.trained for line in lines),
            repeated=sum(line.repeated for line in lines),
            dropped=sum(left.values()),
        )

    @property
    def table(self) -> Any:
        """The lines as a ``pandas.DataFrame``; pandas has to be installed."""
        import pandas as pd

        names = list(Line.__dataclass_fields__)
        return pd.DataFrame([[getattr(line, name) for name in names] for line in self.lines], columns=names)


def share_rows(num_rows: int, batch_size: int, rank: int, size: int, first: int, stop: int) -> int:
    """Rows that a rank has of the global batches ``first`` to ``stop`` (excluded); as the order cuts them."""

    def of(rows: int) -> int:
        return (rank + 1) * rows // size - rank * rows // size

    whole = num_rows // batch_size
    rows = max(0, min(stop, whole) - first) * of(batch_size)
    return rows + (of(num_rows % batch_size) if first <= whole < stop else 0)


def balance(
    accounts: Mapping[tuple[str, int], Iterable[Iterable[Stretch]]],
    counts: Mapping[str, int],
    num_rows: Mapping[tuple[str, int], int],
) -> Ledger:
    """The ledger of a run.

    Parameters
    ----------
    accounts
        By role and rank, the stretches of each attempt.
    counts
        How many there are of each role.
    num_rows
        Rows of each data set: of a role's own by ``(role, 0)``, of a published one by ``("", number)``.
    """
    lines = []
    for (role, rank), attempts in accounts.items():
        by_epoch: dict[tuple[int, int, int], list[Stretch]] = {}
        for stretches in attempts:
            for stretch in stretches:
                by_epoch.setdefault((stretch.dataset, stretch.turn, stretch.epoch), []).append(stretch)
        for (dataset, _, _), found in sorted(by_epoch.items()):
            lines.append(_line(found, role, rank, counts[role], num_rows[role if dataset == 0 else "", dataset]))
    return Ledger.of_lines(lines, lambda line: num_rows[line.role if line.dataset == 0 else "", line.dataset])


def _line(found: list[Stretch], role: str, rank: int, size: int, total: int) -> Line:
    """Attempts may overlap, where a role began again before the batch at which the earlier one was lost."""

    def rows(stretch: Stretch, first: int, stop: int) -> int:
        return share_rows(total, stretch.batch_size, rank, size, first, stop)

    read = sum(rows(each, each.first, each.first + each.taken) for each in found)
    with_repeats = sum(rows(each, each.first, each.first + each.done) for each in found)
    once, reached = 0, 0
    for each in sorted(found, key=lambda stretch: stretch.first):
        stop = each.first + each.done
        once += rows(each, max(each.first, reached), max(stop, reached))
        reached = max(reached, stop)
    first = found[0]
    return Line(
        role=role,
        rank=rank,
        dataset=first.dataset,
        turn=first.turn,
        epoch=first.epoch,
        read=read,
        trained=once,
        repeated=with_repeats - once,
    )
