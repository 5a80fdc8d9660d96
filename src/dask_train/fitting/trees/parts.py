"""The rows of one rank as parts, taken one after the other: views of shared memory, not put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np

from dask_train.data.columns import Column, Columns
from dask_train.data.structure import filled
from dask_train.role.session import Session

# Rows of query groups that are moved between ranks are copied to all of them: this many bytes do no harm.
MOVED_BYTES = 64 << 20
# Of a row's place in the collection those that are its number in its partition.
_ROW_BITS = 40


@dataclass(frozen=True, kw_only=True)
class TreeRows:
    """Some rows.

    Attributes
    ----------
    x, y
        Features ``(n, num_features)``, and targets ``(n,)`` or ``(n, outputs)``.
    sample_weight, margin, qid
        Weights ``(n,)``, scores to begin with, and the number of each row's query; None if there are none.
    """

    x: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None = None
    margin: np.ndarray | None = None
    qid: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)

    def columns(self) -> list[np.ndarray]:
        """Return what it has, in the order of its fields."""
        return [value for each in fields(self) if (value := getattr(self, each.name)) is not None]

    def take(self, rows: np.ndarray) -> TreeRows:
        """Return some of its rows: copied."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        some: dict[str, Any] = {name: None if value is None else value[rows] for name, value in values.items()}
        return TreeRows(**some)

    def by_group(self) -> TreeRows:
        """Return the same rows with those of a query together; itself where they are."""
        assert self.qid is not None
        return self if (self.qid[1:] >= self.qid[:-1]).all() else self.take(np.argsort(self.qid, kind="stable"))

    def group_sizes(self) -> np.ndarray:
        """Return how many rows each query has, one after the other; uint32."""
        assert self.qid is not None
        starts = self._starts()
        return np.diff(np.append(starts, len(self.qid))).astype(np.uint32)

    def group_weights(self) -> np.ndarray | None:
        """Return one weight a query, that of its rows.

        Raises
        ------
        ValueError
            They differ within a query.
        """
        if self.sample_weight is None:
            return None
        weights = self.sample_weight[self._starts()]
        if not (np.repeat(weights, self.group_sizes()) == self.sample_weight).all():
            raise ValueError(
                "Rows of one query have different sample weights, and a ranker weighs queries. Give all rows of a "
                "query the same weight."
            )
        return weights

    def _starts(self) -> np.ndarray:
        assert self.qid is not None
        changes = np.flatnonzero(self.qid[1:] != self.qid[:-1]) + 1
        return np.append(0, changes) if len(self.qid) else changes


class Partitioned(Protocol):
    """A data set as a rank has it: a session's own, or another one."""

    @property
    def schema(self) -> Columns | None:
        """The data set's columns; None if there is no data."""

    @property
    def partition_numbers(self) -> np.ndarray:
        """The numbers in the collection of the partitions that are given next."""

    def partitions(self) -> Iterator[Any]:
        """Give the partitions of this rank, one after the other."""


def parts_of(session: Session, rows: Partitioned, columns: Columns) -> list[TreeRows]:
    """Return this rank's rows: a part for each partition, and one without rows where it has none.

    Queries that lie in several partitions are brought together, their rows in the order of the collection; every rank
    makes the same call.

    Raises
    ------
    ValueError
        Too many rows would have to be moved for that; or targets or weights are invalid.
    """
    schema = rows.schema
    assert schema is not None
    parts = as_parts(rows.partitions(), columns)
    if columns.groups is not None:
        parts = _whole_groups(session, parts, rows.partition_numbers, _none(schema, columns))
    return parts or [_none(schema, columns)]


def as_parts(partitions: Iterable[Sequence[np.ndarray]], columns: Columns, what: str = "The data") -> list[TreeRows]:
    """Make a part of each partition.

    Raises
    ------
    ValueError
        Targets, weights or numbers of queries are not finite, or weights are negative.
    """
    parts = [_part(arrays, columns) for arrays in partitions]
    check_numbers(parts, what)
    return parts


def check_numbers(parts: Iterable[TreeRows], what: str) -> None:
    """Check that all but features are finite: libraries differ in what they make of others.

    Nor may weights be negative: XGBoost refuses them, and LightGBM makes trees of no use of them.

    Raises
    ------
    ValueError
        Some are.
    """
    for part in parts:
        numbers = {
            "targets": part.y,
            "weights": part.sample_weight,
            "first scores": part.margin,
            "numbers of queries": part.qid,  # each that is NaN would be another query
        }
        for name, values in numbers.items():
            if values is not None and values.dtype.kind == "f" and (bad := int((~np.isfinite(values)).sum())):
                raise ValueError(
                    f"{what}: {bad:,} of {values.size:,} {name} in one partition are NaN or infinite. Only features "
                    "may be missing: leave such rows out."
                )
        weights = part.sample_weight
        if weights is not None and (bad := int((weights < 0).sum())):
            raise ValueError(
                f"{what}: {bad:,} of {weights.size:,} weights in one partition are negative. Pass weights of 0 or more."
            )


def _part(arrays: Sequence[np.ndarray], columns: Columns) -> TreeRows:
    places = {**columns.places(), "margin": columns.margins, "qid": columns.groups}
    part = TreeRows(**{name: filled(place, arrays.__getitem__) for name, place in places.items()})
    of_one_number = {"y": part.y, "sample_weight": part.sample_weight, "qid": part.qid}
    flat = {name: value[:, 0] for name, value in of_one_number.items() if value is not None and value.shape[1:] == (1,)}
    return replace(part, **flat)


def _none(schema: Columns, columns: Columns) -> TreeRows:
    return _part([column.empty(0) for column in schema], columns)


def _whole_groups(session: Session, parts: list[TreeRows], numbers: np.ndarray, none: TreeRows) -> list[TreeRows]:
    """Return the parts with each query in one of them: rows of queries that were cut are sent to one rank."""
    assert none.qid is not None
    mine = [np.unique(part.qid) for part in parts if part.qid is not None]
    groups, counts = np.unique(session.all_gather(np.concatenate([none.qid, *mine])), return_counts=True)
    cut = groups[counts > 1]
    whole, moved, places = [], [none], [np.empty(0, np.int64)]
    for number, part in zip(numbers.tolist(), parts, strict=True):
        assert part.qid is not None
        is_cut = np.isin(part.qid, cut)
        if is_cut.any():
            moved.append(part.take(np.flatnonzero(is_cut)))
            places.append((number << _ROW_BITS) + np.flatnonzero(is_cut))
            part = part.take(np.flatnonzero(~is_cut))  # noqa: PLW2901
        if len(part):
            whole.append(part.by_group())
    if len(cut):
        own = _own_of(session, moved, np.concatenate(places), cut, none)
        whole += [own] if len(own) else []
    return whole


def _own_of(session: Session, moved: list[TreeRows], places: np.ndarray, cut: np.ndarray, none: TreeRows) -> TreeRows:
    """Take this rank's share of the queries that were cut from what all ranks have moved, and from where."""
    columns = [np.concatenate(each) for each in zip(*(part.columns() for part in moved), strict=True)]
    own_bytes = sum(column.nbytes for column in columns)
    num_bytes, num_rows = session.all_reduce([np.array(own_bytes), np.array(len(columns[0]))])
    if num_bytes > MOVED_BYTES and num_rows > session.num_rows / 4:
        raise ValueError(
            f"{len(cut):,} queries with {int(num_rows):,} rows lie in more than one partition, and a query has to be "
            "on one worker as a whole. Sort the data by qid before it is cut into partitions, such as with "
            "frame.set_index('qid')."
        )
    assert session.world_rank is not None
    *gathered, places = session.all_gather([*columns, places])
    names = [each.name for each in fields(none) if getattr(none, each.name) is not None]
    everyones = TreeRows(**dict(zip(names, gathered, strict=True)))
    assert everyones.qid is not None
    mine = np.flatnonzero(np.isin(everyones.qid, cut[session.world_rank :: session.world_size]))
    return everyones.take(mine[np.argsort(places[mine])]).by_group()


def classes_of(session: Session, parts: Sequence[TreeRows]) -> np.ndarray:
    """Return the labels that there are, over all ranks, ascending.

    Raises
    ------
    ValueError
        Some are missing among text.
    """
    mine = np.concatenate([np.unique(plain_labels(part.y)) for part in parts])
    if mine.dtype.kind == "U":  # as long as the longest of all ranks
        longest = int(session.all_reduce(np.array(mine.dtype.itemsize // 4), "max"))
        mine = mine.astype(f"U{max(1, longest)}")
    classes: np.ndarray = np.unique(session.all_gather(mine))
    return classes


def plain_labels(y: np.ndarray) -> np.ndarray:
    """Labels as they are, but text of a column of a frame, which are objects, as an array of text.

    Raises
    ------
    ValueError
        An object is no text.
    """
    if y.dtype.kind != "O":
        return y
    if odd := [label for label in y if not isinstance(label, str)]:
        raise ValueError(f"Targets have {odd[0]!r} among text. Fill such targets in, or leave their rows out.")
    return y.astype(str)


def frame_of(x: np.ndarray, column: Column) -> Any:
    """Return the rows as a frame of pandas, with categories where codes were; copied."""
    import pandas as pd

    assert column.names is not None
    by_place = {  # of columns 1 and "1" the names are the same
        place: x[:, place]
        if origin.categories is None
        else pd.Categorical.from_codes(x[:, place].astype(np.int64), categories=origin.categories)
        for place, origin in enumerate(column.origins)
    }
    return pd.DataFrame(by_place).set_axis(list(column.names), axis=1)
