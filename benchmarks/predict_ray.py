"""The peer of ``predict.py``: ``map_batches`` of Ray Data with a pool of two actors. Runs in ``.venv-ray``, alone.

    .venv-ray/bin/python benchmarks/predict_ray.py MLP --rows rows.npy --num-rows 1100000 --num-parts 44

Prints one line of JSON: rows a second from the first batch that an actor takes to the last that one has predicted, and
seconds of the whole call, in which the actors start and import Keras. The rows lie in Ray's object store before.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import ray
from predict_models import CASES, tiled

NUM_ACTORS = 2


class Predictor:
    """An actor with the model, which has predicted a batch before."""

    def __init__(self, name: str, folder: str) -> None:
        case = CASES[name]
        self._model, self._notes = case.model(), Path(folder, str(os.getpid()))
        self._model.predict_on_batch(np.zeros((case.batch_size, *case.row_shape), "f4"))
        self._first = 0.0

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._first = self._first or time.time()
        found = self._model.predict_on_batch(batch["data"])
        self._notes.write_text(json.dumps([self._first, time.time()]))
        return {"predictions": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=tuple(CASES))
    parser.add_argument("--rows", required=True, help="a .npy file; the rows are these, again and again")
    parser.add_argument("--num-rows", type=int, required=True)
    parser.add_argument("--num-parts", type=int, required=True)
    options = parser.parse_args()
    rows = tiled(np.load(options.rows), options.num_rows)
    ray.init(
        num_cpus=2 * NUM_ACTORS,
        object_store_memory=int(1.5 * rows.nbytes) + (1 << 30),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    data = ray.data.from_numpy(np.array_split(rows, options.num_parts)).materialize()
    num_rows = len(rows)
    del rows  # memory is short: Keras' process and the Dask workers hold theirs
    with tempfile.TemporaryDirectory() as folder:
        begun = time.time()
        data.map_batches(
            Predictor,
            fn_constructor_args=(options.case, folder),
            batch_size=CASES[options.case].batch_size,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=NUM_ACTORS),
            num_cpus=1,
        ).materialize()
        whole_s = time.time() - begun
        noted = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    ray.shutdown()
    busy_s = max(last for _, last in noted) - min(first for first, _ in noted)
    print(json.dumps({"rows_a_second": num_rows / busy_s, "whole_s": whole_s}))


if __name__ == "__main__":
    main()
