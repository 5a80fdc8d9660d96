"""Loops of one's own: every example trains with two ranks what it trains with one."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pytest
from distributed import Client

import dask_train as dt
from dask_train.cluster.local import local_client

pytestmark = pytest.mark.slow

LOOPS = Path(__file__).parents[2] / "examples" / "loops"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_client(2) as client:
        yield client


def loaded(name: str) -> ModuleType:
    """An example as a module; its functions travel by value, since nobody else can import it."""
    spec = importlib.util.spec_from_file_location(name, LOOPS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=[] if path.stem in ("ddp", "with_accelerate") else [pytest.mark.nightly])
        for path in sorted(LOOPS.glob("*.py"))
    ],
)
def test_two_ranks_train_what_one_does(client: Client, name: str, tmp_path: Path) -> None:
    (told,) = loaded(name).main(client, str(tmp_path))
    assert "from those of one" in told


def test_a_rank_that_is_lost_in_a_loop_of_lightning_is_told(client: Client) -> None:
    def worker(session: dt.Session) -> None:
        import lightning
        import torch
        from torch.utils.data import DataLoader

        class Line(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch: Any, step: int) -> Any:
                session.report(step=step)
                return self.layer(batch).square().mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=1e-6)

        trainer = lightning.Trainer(max_epochs=-1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
        trainer.fit(Line(), DataLoader(session.torch_dataset(), batch_size=8))

    data = np.ones((64, 1), "float32")
    run = dt.train(worker, roles={"worker": 2}, data=data, framework="torch", recovery=None, wait=False)
    for score in run.scores():
        if score["rank"] == 1:
            os.kill(run.status()["roles"][1]["pid"], signal.SIGKILL)
            break
    with pytest.raises(dt.RoleLostError, match=r"worker 1 is lost: its process .* was killed by SIGKILL"):
        run.result()
