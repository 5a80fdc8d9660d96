"""The batches of all rows, found over partitions: what metrics count depends on where batches begin and end.

Keras weighs each batch of a loss of several outputs the same, and adds up what ``add_loss`` is given. So partitions are
evaluated in the batches that one process would take of all rows: each takes those that lie in it, and hands on the
rows at both of its ends, of which batches are made where partitions are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

Columns = list[np.ndarray]
# What a model's metrics count over whole batches, as numbers that add up.
Count = Callable[[Columns], list[np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """What a model's metrics have counted over rows that follow each other.

    Attributes
    ----------
    head
        Rows before the first batch that begins among these; all of them where none does.
    tail
        The last batch that begins among these, or what there is of it; None if none does. Without rows where it was
        counted already, since it is whole and others follow.
    counts
        Over the batches between them; None if there are none.
    """

    head: Columns
    tail: Columns | None = None
    counts: list[np.ndarray] | None = None


def counted(columns: Columns, offset: int, batch_size: int, count: Count, *, is_last: bool) -> BatchCounts | None:
    """Return what is counted over a partition; None if it has no rows.

    Parameters
    ----------
    columns
        Its rows.
    offset
        The number of rows before it.
    is_last
        Whether no rows may follow: its last batch is kept for the end, then.
    """
    num_rows = len(columns[0])
    if not num_rows:
        return None
    first = -offset % batch_size
    if first >= num_rows:
        return BatchCounts(head=columns)
    last = num_rows - (offset + num_rows) % batch_size
    if is_last and last == num_rows:
        last -= batch_size
    middle = [column[first:last] for column in columns]
    return BatchCounts(
        # A view would keep, and send, the whole partition.
        head=[column[:first].copy() for column in columns],
        tail=[column[last:].copy() for column in columns],
        counts=count(middle) if len(middle[0]) else None,
    )


def joined(parts: Sequence[BatchCounts | None], count: Count) -> BatchCounts | None:
    """Return all parts together, in order; None, which is no rows, counts nothing."""
    total: BatchCounts | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else _both(total, part, count)
    return total


def _both(left: BatchCounts, right: BatchCounts, count: Count) -> BatchCounts:
    if left.tail is None:
        return replace(right, head=_rows(left.head, right.head))
    between = _rows(left.tail, right.head)
    if right.tail is None:
        return replace(left, tail=between)
    counts = [left.counts, count(between) if len(between[0]) else None, right.counts]
    return BatchCounts(head=left.head, tail=right.tail, counts=_sum([each for each in counts if each is not None]))


def _rows(before: Columns, after: Columns) -> Columns:
    return [np.concatenate(pair) for pair in zip(before, after, strict=True)]


def _sum(counts: Sequence[list[np.ndarray]]) -> list[np.ndarray] | None:
    return [np.sum(each, axis=0) for each in zip(*counts, strict=True)] if counts else None
