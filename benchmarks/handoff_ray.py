"""The peer of ``handoff.py``: rows from Ray Data to two workers of Ray Train. Runs in ``.venv-ray``, alone.

    .venv-ray/bin/python benchmarks/handoff_ray.py lazy|materialized --rows 1100000

Prints one line of JSON. The Ray cluster is up and has done a training on a few rows before, as ours has. The training
loop imports no framework. Ray has more logical CPUs than the machine has cores, because Ray Data gets none that Ray
Train's workers hold.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"

import numpy as np
import ray
from handoff_rows import BATCH_ROWS, EPOCHS, NUM_BLOCKS, NUM_PROCESSES, ROW_BYTES, Reader, rates, rows_of
from ray.train import RunConfig, ScalingConfig, get_context, get_dataset_shard
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def rows(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Numbers of rows become rows."""
    return {"x": rows_of(batch["id"])}


def data_set(num_rows: int) -> ray.data.Dataset:
    """The rows, lazy, in as many blocks as Dask has chunks."""
    return ray.data.range(num_rows, override_num_blocks=NUM_BLOCKS).map_batches(rows, batch_size=None)


def read(config: dict[str, Any]) -> None:
    """The training loop: it touches every byte of its shard."""
    reader, shard = Reader(), get_dataset_shard("train")
    for _ in range(EPOCHS):
        for batch in shard.iter_batches(batch_size=BATCH_ROWS, batch_format="numpy"):
            reader.touch(batch["x"])
        reader.epoch_ended()
    Path(config["folder"], str(get_context().get_world_rank())).write_text(json.dumps(reader.told()))


def fit(data: ray.data.Dataset, num_rows: int, folder: Path) -> dict[str, float]:
    """One training."""
    folder.mkdir()
    trainer = DataParallelTrainer(
        read,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=NUM_PROCESSES),
        run_config=RunConfig(name="handoff", storage_path=str(folder / "results")),
        datasets={"train": data},
    )
    begun = time.time()
    trainer.fit()
    readers = [json.loads(Path(folder, str(rank)).read_text()) for rank in range(NUM_PROCESSES)]
    return rates(begun, readers, num_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("lazy", "materialized"))
    parser.add_argument("--rows", type=int, required=True)
    options = parser.parse_args()
    ray.init(
        num_cpus=2 * NUM_PROCESSES,
        object_store_memory=int(2.2 * options.rows * ROW_BYTES) + (1 << 30),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    with tempfile.TemporaryDirectory() as folder:
        few = NUM_BLOCKS * NUM_PROCESSES
        fit(data_set(few), few, Path(folder, "warm-up"))
        data = data_set(options.rows)
        begun = time.time()
        if options.case == "materialized":
            data = data.materialize()
        prepared_s = time.time() - begun
        found = fit(data, options.rows, Path(folder, "real"))
    ray.shutdown()
    print(json.dumps({"ray": ray.__version__, "prepared_s": prepared_s, **found}))


if __name__ == "__main__":
    main()
