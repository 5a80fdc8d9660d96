"""The ledger: an account of rows, from the batches that roles have taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dask_train.cards import Card, CardMixin, CardTable
from dask_train.data.account import WHOLE, BatchRange
from dask_train.data.order import block_of


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """Rows of one role process in one epoch, over all its attempts.

    Attributes
    ----------
    role, rank
        Whose.
    dataset
        The role's own data is 0; published ones are numbered as the role opened them.
    turn, epoch
        Which call of ``batches()`` or ``partitions()``, and which epoch of it. A call that begins where the last one
        has left off, as one per epoch, counts as that one.
    read
        Rows that it was given.
    trained
        Rows of the batches that it came back from (it asked for the next one, or left the loop), each counted once;
        and of those that it left out because they are in the checkpoint that it resumed from.
    repeated
        Rows of those that an earlier attempt had come back from, too. An attempt that was lost with its Dask worker
        is not counted: the account of its rows was lost as well.
    """

    role: str
    rank: int
    dataset: int
    turn: int
    epoch: int
    read: int
    trained: int
    repeated: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Ledger(CardMixin):
    """An account of the rows of a run.

    Attributes
    ----------
    lines
        One for each role process and epoch.
    read, trained, repeated
        Rows of all lines; see :class:`LedgerLine`.
    dropped
        Rows of the epochs that were begun on which no role has trained: if a run is stopped in mid-epoch, or a role
        breaks off its loop. For every epoch that was begun, ``trained + dropped`` is the data set's number of rows.
    skipped
        Files that can't be decoded, and are no rows of any epoch: see ``on_error`` of :func:`dask_train.files`.
    """

    lines: tuple[LedgerLine, ...] = field(repr=False)
    read: int
    trained: int
    repeated: int
    dropped: int
    skipped: int = 0

    @classmethod
    def of_lines(cls, lines: Iterable[LedgerLine], num_rows: Callable[[LedgerLine], int]) -> Ledger:
        """Add up the lines of a ledger.

        Parameters
        ----------
        lines
            Of all roles, ranks and epochs.
        num_rows
            Gives the rows of the data set that a line speaks of.
        """
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

    def _card(self) -> Card:
        names = ("read", "trained", "repeated", "dropped", *(["skipped"] if self.skipped else []))
        columns = ("role", "rank", "dataset", "turn", "epoch", "read", "trained", "repeated")
        rows = [[_cell(getattr(line, name)) for name in columns] for line in self.lines]
        return Card(
            kind="Ledger",
            facts=[(name, f"{getattr(self, name):,}") for name in names],
            tables=[CardTable(columns=columns, rows=rows, title="rows by role and epoch")] if rows else [],
            one_line=True,
        )

    @property
    def table(self) -> Any:
        """The lines as a ``pandas.DataFrame``; pandas has to be installed."""
        import pandas as pd

        names = list(LedgerLine.__dataclass_fields__)
        return pd.DataFrame([[getattr(line, name) for name in names] for line in self.lines], columns=names)


def _cell(value: str | int) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def share_rows(num_rows: int, batch_size: int, rank: int, size: int, first: int, stop: int, num_shares: int = 0) -> int:
    """Return rows that a rank has of the global batches ``first`` to ``stop`` (excluded); as the order cuts them."""
    if batch_size == WHOLE:
        return stop - first

    parts = num_shares or size
    block = block_of(rank, size, parts)

    def of(rows: int) -> int:
        return block.stop * rows // parts - block.start * rows // parts

    whole = num_rows // batch_size
    rows = max(0, min(stop, whole) - first) * of(batch_size)
    return rows + (of(num_rows % batch_size) if first <= whole < stop else 0)


def balance(
    accounts: Mapping[tuple[str, int], Iterable[Iterable[BatchRange]]],
    counts: Mapping[str, int],
    num_rows: Mapping[tuple[str, int], int],
    covered: Mapping[tuple[str, int], Iterable[BatchRange]] | None = None,
) -> Ledger:
    """Return the ledger of a run.

    Parameters
    ----------
    accounts
        By role and rank, the stretches of each attempt.
    counts
        How many there are of each role, where a stretch does not say it.
    num_rows
        Rows of each data set: of a role's own by ``(role, 0)``, of a published one by ``("", number)``.
    covered
        By role and rank, what is in checkpoints that it resumed from: trained on, whether or not an account has it.
    """
    lines = []
    for (role, rank), attempts in accounts.items():
        own = _by_epoch(stretch for stretches in attempts for stretch in stretches)
        kept = _by_epoch((covered or {}).get((role, rank), ()))
        for epoch in sorted({*own, *kept}):
            dataset = epoch[0]
            rows = num_rows[role if dataset == 0 else "", dataset]
            lines.append(_line(own.get(epoch, []), kept.get(epoch, []), role, rank, counts[role], rows))
    return Ledger.of_lines(lines, lambda line: num_rows[line.role if line.dataset == 0 else "", line.dataset])


def left_out(
    covered: Iterable[BatchRange], own: Sequence[BatchRange], *, rank: int, same_run: bool
) -> Iterator[BatchRange]:
    """Yield what a role did not do because a checkpoint that it resumed from covers it.

    Batches are shared by all ranks, so what one of them has behind it all have. Whole partitions are one rank's.

    Parameters
    ----------
    covered
        What is in the checkpoint.
    own
        What the role has taken since.
    rank
        The role's rank.
    same_run
        Whether the checkpoint is one of the same run; of another run's, only the epoch from which the role resumed is
        in the account.
    """
    first = {
        (one.dataset, one.turn): (one.epoch, one.first, one.batch_size) for one in sorted(own, key=_at, reverse=True)
    }
    for stretch in covered:
        if stretch.batch_size == WHOLE and stretch.rank != rank:
            continue
        epoch, batch, batch_size = first.get((stretch.dataset, stretch.turn), (math.inf, 0, stretch.batch_size))
        if stretch.epoch == epoch and stretch.batch_size == batch_size:
            done = min(stretch.done, max(0, batch - stretch.first))
            yield replace(stretch, taken=done, done=done)
        elif stretch.epoch < epoch and same_run:
            yield stretch


def _at(stretch: BatchRange) -> tuple[int, int]:
    return stretch.epoch, stretch.first


def _by_epoch(stretches: Iterable[BatchRange]) -> dict[tuple[int, int, int], list[BatchRange]]:
    by_epoch: dict[tuple[int, int, int], list[BatchRange]] = {}
    for stretch in stretches:
        by_epoch.setdefault((stretch.dataset, stretch.turn, stretch.epoch), []).append(stretch)
    return by_epoch


def _line(own: list[BatchRange], covered: list[BatchRange], role: str, rank: int, size: int, total: int) -> LedgerLine:
    """Count rows by attempt: a role may begin again before the batch at which the earlier one was lost."""

    def rows(stretch: BatchRange, first: int, stop: int) -> int:
        return share_rows(total, stretch.batch_size, rank, stretch.size or size, first, stop, stretch.shares)

    def once(stretches: Iterable[BatchRange]) -> int:
        """Return rows of the batches that they came back from, each counted once."""
        counted, reached = 0, 0
        for each in sorted(stretches, key=_at):
            stop = each.first + each.done
            counted += rows(each, max(each.first, reached), max(stop, reached))
            reached = max(reached, stop)
        return counted

    done, trained = once(own), once([*own, *covered])
    first = (own or covered)[0]
    return LedgerLine(
        role=role,
        rank=rank,
        dataset=first.dataset,
        turn=first.turn,
        epoch=first.epoch,
        read=max(sum(rows(each, each.first, each.first + each.taken) for each in own), trained),
        trained=trained,
        repeated=sum(rows(each, each.first, each.first + each.done) for each in own) - done,
    )
