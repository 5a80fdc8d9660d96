"""Put, open and first batch of a frame in a Vineyard daemon, beside Vineyard's own client and Parquet.

    make .venv-vineyard
    PYTHONPATH=src .venv-vineyard/bin/python benchmarks/vineyard_rows.py [--rounds 5] [--small]

The frame has 64 columns of float32 and lies in the memory of two Dask workers of one thread. In each round:

* put: ``dt.publish_dataset(..., to="vineyard")``; one process that puts the same frame by ``vineyard.connect().put``;
  ``to_parquet`` of the same partitions.
* open: ``dt.from_vineyard``; ``get`` of the own client, whose columns are views.
* first batch: from the call of ``dt.train`` with one worker until it has 1,024 rows, of the object and of
  ``dd.read_parquet``.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait
from recording import save, summary

import dask_train as dt

COLUMNS, BATCH_SIZE = 64, 1024
PARTITIONS = 8
STARTS_S = 30


@contextmanager
def daemon(folder: Path, size_mb: int) -> Iterator[str]:
    """A daemon of this benchmark alone, and its socket."""
    found = importlib.util.find_spec("vineyard.bdist")
    assert found is not None, "make .venv-vineyard installs it"
    assert found.origin is not None
    path = str(folder / "v.sock")
    options = ["--deployment", "local", "--meta", "local", "--norpc", "--size", f"{size_mb}M", "--socket", path]
    program = subprocess.Popen(
        [Path(found.origin).with_name("vineyardd"), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + STARTS_S
        while not Path(path).exists():
            assert time.monotonic() < deadline, "the daemon does not start"
            time.sleep(0.05)
        yield path
    finally:
        program.kill()
        program.wait(10)


def part(number: int, rows: int) -> pd.DataFrame:
    """Random numbers of a partition."""
    values = np.random.default_rng(number).random((rows, COLUMNS), np.float32)
    return pd.DataFrame({f"c{each}": values[:, each] for each in range(COLUMNS)})


def first_batch(session: dt.Session) -> float:
    """A role that returns when it had its first rows."""
    next(iter(session.batches(epochs=1, batch_size=BATCH_SIZE)))
    return time.time()


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


def until_first_batch(data: Any) -> float:
    """Seconds from the call to the first batch."""
    start = time.time()
    (came,) = dt.train(first_batch, roles={"worker": 1}, data=data, progress=False).results["worker"]
    return float(came - start)


def of_own_client(theirs: Any, local: pd.DataFrame) -> dict[str, float]:
    """Seconds of Vineyard's client in one process, which has the frame."""
    put_s, identifier = seconds(lambda: theirs.put(local))
    open_s, _ = seconds(lambda: theirs.get(identifier))
    return {"put, own client": put_s, "open, own client": open_s}


def one_round(frame: Any, folder: Path, path: str) -> dict[str, float]:
    """Seconds of each way."""
    import vineyard

    theirs = vineyard.connect(path)
    found: dict[str, float] = {}
    found["put"], identifier = seconds(
        lambda: dt.publish_dataset(frame, name="ours", to="vineyard", socket=path, override=True, progress=False)
    )
    found["open"], data = seconds(lambda: dt.from_vineyard(identifier, socket=path))
    found["first batch"] = until_first_batch(data)
    del data
    theirs.clear()
    found.update(of_own_client(theirs, frame.compute()))
    theirs.clear()
    theirs.close()
    table = folder / "table"
    found["put, Parquet"], _ = seconds(lambda: frame.to_parquet(table))
    found["first batch, Parquet"] = until_first_batch(dd.read_parquet(table))
    shutil.rmtree(table)
    return found


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few rows")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "Passing a BlockManager")  # Vineyard's client does, to pandas 3
    rows = 20_000 if given.small else 2_000_000
    nbytes = rows * COLUMNS * 4
    with (
        TemporaryDirectory() as name,
        daemon(Path(name), 256 + 3 * nbytes // 1_000_000) as path,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        frame = dd.from_map(part, range(PARTITIONS), rows=rows // PARTITIONS, meta=part(0, 1)).persist()
        wait(frame)
        one_round(frame, Path(name), path)  # imports, and connections
        rounds = [one_round(frame, Path(name), path) for _ in range(given.rounds)]
    figures = {key: summary([each[key] for each in rounds]) for key in rounds[0]}
    print(f"{nbytes / 1e9:.2f} GB")
    for key, values in figures.items():
        print(f"{key:22} {values['median']:8.3f} s ({values['min']:.3f} to {values['max']:.3f})")
    save("vineyard_rows", {"bytes": nbytes, "seconds": figures}, ["vineyard", "pyarrow", "pandas"])


if __name__ == "__main__":
    main()
