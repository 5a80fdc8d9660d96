"""What Weights & Biases is told; its own module stands in, since it is a service."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dask_train.logging import Ending, Start, WandB


class Artifact:
    def __init__(self, name: str, type: str) -> None:  # noqa: A002 - as wandb has it
        self.name, self.files = name, list[str]()

    def add_file(self, path: str) -> None:
        self.files.append(path)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """The runs that were made, with what they were told."""
    runs: list[SimpleNamespace] = []

    def init(**settings: Any) -> SimpleNamespace:
        told: list[Any] = []
        run = SimpleNamespace(id="7", settings=settings, told=told, summary={}, log=told.append)
        run.finish = lambda **how: told.append(("finished", how))
        run.log_artifact = lambda artifact: told.append((artifact.name, artifact.files))
        runs.append(run)
        return run

    module = ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.init = init  # type: ignore[attr-defined]
    module.Artifact = Artifact  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return runs


def test_a_search_with_a_trial(made: list[SimpleNamespace], tmp_path: Path) -> None:
    logger = WandB("flights", mode="offline")
    search = logger.open(Start(run="s", params={"trials": 2}, time=1.0), None)
    trial = logger.open(Start(run="trial-0", params={"units": 8}, time=1.0), search)
    trial.write([{"epoch": 0, "step": 4, "num_steps": 10, "loss": 2.0}, {"epoch": 0, "num_steps": 10, "loss": 1.0}])
    trial.write([{"epoch": 1, "num_steps": 10, "loss": 0.5}])
    trial.end(Ending(status="failed", reason="OOM", time=2.0, values={"value": 0.5}))
    search.keep([tmp_path / "model.keras"])
    (first, second) = made
    assert first.settings == {
        "reinit": "create_new",
        "config": {"units": 8},
        "project": "flights",
        "name": "trial-0",
        "group": "s",
        "mode": "offline",
    }
    assert first.told == [
        {"step/loss": 2.0, "step": 4},
        {"loss": 1.0, "epoch": 0},
        {"loss": 0.5, "epoch": 1},
        ("finished", {"exit_code": 1}),
    ]
    assert first.summary == {"value": 0.5, "ended": "OOM"}
    assert second.settings["config"] == {"trials": 2}
    assert second.told == [("run-7", [str(tmp_path / "model.keras")]), ("finished", {})]


def test_one_that_has_ended_goes_on_for_its_files(made: list[SimpleNamespace], tmp_path: Path) -> None:
    sink = WandB().open(Start(run="fit-1", params={}, time=1.0), None)
    sink.end(Ending(status="finished", reason="", time=2.0))
    sink.keep([tmp_path / "model.keras"])
    assert (made[1].settings["id"], made[1].settings["resume"]) == ("7", "allow")


def test_a_score_is_logged_beside_the_axis_that_it_is_on(made: list[SimpleNamespace]) -> None:
    sink = WandB().open(Start(run="train-1", params={}, time=1.0), None)
    sink.write([{"epoch": 3, "step": 7, "loss": 1.0}, {"round": 2, "val_rmse": 0.5}])
    assert made[0].told == [{"loss": 1.0, "step": 7}, {"val_rmse": 0.5, "round": 2}]


def test_a_score_that_could_not_be_logged_is_logged_the_next_time(made: list[SimpleNamespace]) -> None:
    sink = WandB().open(Start(run="train-1", params={}, time=1.0), None)
    sink.write([])
    take = made[0].log

    def refuse(values: Any) -> None:
        made[0].log = take
        raise ConnectionError("refused")

    made[0].log = refuse
    with pytest.raises(ConnectionError):
        sink.write([{"loss": 1.0}, {"loss": 0.5}])
    sink.write([])
    assert made[0].told == [{"loss": 1.0, "step": 0}, {"loss": 0.5, "step": 1}]
