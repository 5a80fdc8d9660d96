"""One partition, from its pieces to what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask_train.collections.partition.form import open_form
from dask_train.collections.partition.plan import make_plan, opened
from dask_train.collections.partition.reading import read


def part(finish: Callable[[list[Any]], Any] | None, plan: Mapping[str, Any], number: int, *pieces: Any) -> Any:
    # What ``finish`` makes of a partition's columns, C-contiguous or sparse, and with the same number of rows.
    # `finish` is given the columns; where it is None, the answer is
    # the plan itself, from this partition, for all that follow. `plan` is a `Plan`; without `finish`, only `what` and
    # `picks`. `number` is the partition's, for errors. `pieces` is one, which is all columns as the user put them
    # together; or the columns. TypeError or ValueError: they are not as planned, or their rows differ in number.
    where = f"partition {number} of {plan['what']}"
    if finish is None:
        return {**make_plan(where, open_form(where, pieces[0], plan["picks"])), **plan}
    if plan.get("taken_apart"):
        values = list(pieces)
    else:
        values = opened(where, plan, open_form(where, pieces[0], plan.get("picks")))
    if plan.get("same_index"):
        check_same_index(where, values)
    arrays = [read(where, one, values) for one in plan["reads"]]
    counts = [array.shape[0] for array in arrays]
    if len(set(counts)) > 1:
        raise ValueError(
            f"The arrays of {where} have {', '.join(map(str, counts))} rows; they have to be the same. Cut them alike, "
            "from one frame after it was filtered."
        )
    return finish(arrays)


def check_same_index(where: str, values: Sequence[Any]) -> None:
    for number, value in enumerate(values):
        if not value.index.equals(values[0].index):
            raise ValueError(
                f"Frames 0 and {number} of {where} have {len(values[0])} and {len(value)} rows with different indexes, "
                "so their rows don't belong together. Cut X and y from one frame after it was filtered or sorted."
            )
