"""The adapters of XGBoost and LightGBM, in processes of their own."""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest

from dask_train.frameworks.base import Framework
from dask_train.frameworks.registry import find_framework
from dask_train.testing import FrameworkTests, RoleProcesses, RoleSession

ROWS = np.random.default_rng(0).normal(size=(200, 3))
LABELS = (ROWS[:, 0] > ROWS[:, 1]).astype(np.float64)


def after_the_first(session: RoleSession) -> str:
    """Rank 0 is gone when the other one returns."""
    from xgboost import collective

    pid = int(collective.broadcast(os.getpid(), 0))
    if session.me.rank == 0:
        os._exit(0)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    return "returned"


class TestXGBoost(FrameworkTests):
    counts: ClassVar = {"chief": 1, "worker": 1, "scorer": 1}
    refused = (
        ({"worker": 2, "ps": 1}, r"ps=1 with framework='xgboost': XGBoost has no parameter server"),
        ({"scorer": 1}, "no role that trains, only scorer"),
    )
    loads = ("xgboost",)
    gives = frozenset({"num_threads"})
    waits = (("chief", 0), ("worker", 0))

    def framework(self) -> Framework:
        return find_framework("xgboost")

    @staticmethod
    def together(session: RoleSession) -> Any:
        import xgboost
        from xgboost import collective

        if session.me.role == "scorer":
            return collective.get_world_size()
        mine = slice(0, 150) if session.me.role == "chief" else slice(150, 200)
        rows = xgboost.QuantileDMatrix(ROWS[mine], LABELS[mine], nthread=1)
        booster = xgboost.train({"nthread": session.num_threads, "base_score": 0.5}, rows, 3)
        return collective.get_rank(), collective.get_world_size(), booster.get_dump()

    def check_together(self, values: Any) -> None:
        assert values.pop(("scorer", 0)) == 1
        chief, worker = values["chief", 0], values["worker", 0]
        assert (chief[:2], worker[:2]) == ((0, 2), (1, 2))
        assert chief[2] == worker[2], "one booster of both"

    @pytest.mark.slow
    def test_a_peer_that_never_comes(self) -> None:
        """Of either library."""
        super().test_a_peer_that_never_comes()

    def test_who_ends_after_the_tracker_looks_for_it_no_more(self, capfd: pytest.CaptureFixture[str]) -> None:
        """Rank 0 ends with its tracker as soon as its function has returned; another one may be a moment later."""
        counts = {"worker": 2}
        with RoleProcesses(self.framework(), counts, lambda _: after_the_first) as processes:
            addresses = processes.addresses()
            for rank in range(2):
                processes.meet(("worker", rank), addresses, timeout_s=30.0)
            assert processes.answer(("worker", 1)).value == "returned"
        assert "Retrying connection" not in capfd.readouterr().err


class TestLightGBM(FrameworkTests):
    counts: ClassVar = {"worker": 2}
    refused = (({"worker": 2, "ps": 1}, r"ps=1 with framework='lightgbm': LightGBM has no parameter server"),)
    loads = ("lightgbm",)
    gives = frozenset({"num_threads", "network"})
    waits = (("worker", 1),)

    def framework(self) -> Framework:
        return find_framework("lightgbm")

    @staticmethod
    def together(session: RoleSession) -> Any:
        import lightgbm

        mine = slice(0, 150) if session.me.rank == 0 else slice(150, 200)
        settings = {"num_threads": session.num_threads, "verbose": -1, **session.network}
        # Each of them connects the ranks anew.
        boosters = [lightgbm.train(settings, lightgbm.Dataset(ROWS[mine], LABELS[mine]), 3) for _ in range(3)]
        models = {booster.model_to_string().partition("parameters:")[0] for booster in boosters}
        return session.network["num_machines"], models

    def check_together(self, values: Any) -> None:
        assert values["worker", 0] == values["worker", 1], "one booster of both"
        num_machines, models = values["worker", 0]
        assert (num_machines, len(models)) == (2, 1), "the same each time"

    @pytest.mark.slow
    def test_a_peer_that_never_comes(self) -> None:
        """Of either library."""
        super().test_a_peer_that_never_comes()

    @pytest.mark.slow
    def test_batches_keep_shape_dtype_and_values(self) -> None:
        """As of XGBoost."""
        super().test_batches_keep_shape_dtype_and_values()


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_what_a_loss_means(name: str) -> None:
    framework = find_framework(name)
    assert framework.agrees_every_step({"worker": 2})
    assert not framework.agrees_every_step({"worker": 1, "scorer": 1})
    assert not framework.can_replace("worker")
