"""A worker of ``fit`` in this process: its session, with data in shared memory and an agent that is played."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_train.collectives import Hosts
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.data.account import Account, BatchRange, read_account
from dask_train.data.columns import Columns
from dask_train.data.segment import Segment
from dask_train.errors import StalledError
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.roles.sent_callbacks import send_callbacks
from dask_train.fitting.roles.variables import Variables
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.keras.adapter import KerasFramework
from dask_train.frameworks.tensorflow.adapter import TensorFlowFramework
from dask_train.keras_models.parts import parts_by_key
from dask_train.keras_models.serialization import model_to_parts
from dask_train.role.equipment import Equipment
from dask_train.role.meeting import Meeting
from dask_train.role.session import Session
from dask_train.role.time_spent import TimeSpent
from dask_train.roles import AddressBook
from dask_train.trainers.common.outcome import Outcome


@dataclass
class Link:
    """What an agent is told; ``stop_reason`` is what it tells."""

    datasets: Mapping[str, Any]
    stop_reason: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    doing: list[str] = field(default_factory=list)
    spent: TimeSpent = field(default_factory=TimeSpent)

    def report(self, scores: dict[str, Any]) -> None:
        self.reports.append(scores)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def moved(self, doing: str, *, batches: int = 0, rows: int = 0) -> None:
        self.doing.append(doing)

    note = moved

    def receive(self, timeout_s: float | None) -> bytes:
        raise StalledError("Nothing was sent.")

    def leave(self, stream: Any) -> None:
        raise AssertionError("nothing is streamed")

    open_group = rows_from_elsewhere = leave

    def dataset(self, name: str) -> Any:
        return 1, *self.datasets[name]


@dataclass
class Fitted:
    """What a worker has done.

    Attributes
    ----------
    outcome
        What it has returned.
    link
        What its agent was told.
    batches
        Its account.
    """

    outcome: Outcome
    link: Link
    batches: list[BatchRange]


@pytest.fixture
def fitted(pool: Any, table_of: Any, mapped: Any, tmp_path: Path) -> Callable[..., Fitted]:
    """Fits a model on arrays, cut into partitions where ``parts`` says, as the only worker of a run, in that role."""

    def laid_out(arrays: Sequence[np.ndarray], parts: Sequence[int]) -> Any:
        cut = list(zip(*(np.split(array, parts) for array in arrays), strict=True))
        table = table_of(cut, is_tuple=True)
        return table, mapped(table, {number: Segment(list(part)) for number, part in enumerate(cut)})

    def fit(
        model: Any,
        *arrays: np.ndarray,
        parts: Sequence[int] = (),
        validation: Sequence[np.ndarray] = (),
        callbacks: Sequence[Any] = (),
        stop_reason: str = "",
        role: Callable[[FitTask], Callable[[Session], Any]] = FitRole,
        **task: Any,
    ) -> Fitted:
        header, weights = model_to_parts(model)
        places = {"columns": Columns.of_batch(len(arrays))}
        if validation:
            places["validation_columns"] = Columns.of_batch(len(validation))
        sent = send_callbacks(list(callbacks), Variables(parts=parts_by_key(model)))
        task = {"header": header, "arrays": weights, "callbacks": sent, **places, **task}
        me = RoleInfo(role="worker", rank=0, counts={"worker": 1}, host="127.0.0.1", num_threads=1)
        link = Link({VALIDATION: laid_out(validation, ())} if validation else {}, stop_reason)
        descriptor = os.memfd_create("account")
        with closing(SharedMemory(SharedMemory.create(), 0, 1)) as memory:
            equipment = Equipment(
                attempt=0,
                framework=KerasFramework("tensorflow", TensorFlowFramework()),
                peers=AddressBook(worker=["solo:0"]),
                extras={"meeting": (Hosts.of(["solo:0"]), memory), "tls": None},
                data=laid_out(arrays, parts),
                account=Account(descriptor),
                checkpoint=None,
                scratch=tmp_path,
                meeting=Meeting(link, me, 10.0, 10.0),
            )
            outcome = role(FitTask(**task))(Session(link, me, equipment))
            equipment.account.settle()
        try:
            return Fitted(outcome, link, [BatchRange.of(record) for record in read_account(descriptor)])
        finally:
            os.close(descriptor)

    return fit
