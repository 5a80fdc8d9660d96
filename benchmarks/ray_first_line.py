"""The peer of ``launch.py``: seconds until all workers of Ray Train are in user code. Runs in ``.venv-ray``, alone.

    .venv-ray/bin/python benchmarks/ray_first_line.py 2

Prints one line of JSON. The Ray cluster is up and has run tasks before; then a training runs twice, the first time as a
warm-up, as with dask-train.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer


def stamp(config: dict[str, Any]) -> None:
    """The training loop: it only says when it began."""
    began = time.time()
    Path(config["folder"], str(get_context().get_world_rank())).write_text(str(began))


@ray.remote
def nothing() -> None:
    """Brings up a worker process of the cluster."""


def fit(num_workers: int, folder: Path) -> dict[str, float]:
    """One training: seconds to the first line of user code in all workers, and until ``fit`` has returned."""
    folder.mkdir()
    trainer = TorchTrainer(
        stamp,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=num_workers),
        run_config=RunConfig(name="launch", storage_path=str(folder / "results")),
    )
    begun = time.time()
    trainer.fit()
    returned = time.time()
    stamps = [float(Path(folder, str(rank)).read_text()) for rank in range(num_workers)]
    return {"first_line_s": max(stamps) - begun, "returned_s": returned - begun}


def main() -> None:
    num_workers = int(sys.argv[1])
    ray.init(num_cpus=max(num_workers, os.cpu_count() or 1), include_dashboard=False, log_to_driver=False)
    ray.get([nothing.remote() for _ in range(num_workers)])
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (fit(num_workers, Path(folder, name)) for name in ("cold", "warm"))
    ray.shutdown()
    print(json.dumps({"ray": ray.__version__, "cold": cold, "warm": warm}))


if __name__ == "__main__":
    main()
