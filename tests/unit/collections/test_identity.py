"""What tells data from other data: the same in every process, for what is made in the same way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

from dask_train.collections.identity import identity

TABLE = pd.DataFrame({"a": np.arange(6.0), "checksum": np.arange(6)})

TOLD = """
import sys
import dask.dataframe as dd
from dask_train.collections.identity import identity

frame = dd.read_parquet(sys.argv[1])
print(identity(frame[frame.a > 2][["checksum"]]))
"""


def test_files_are_known_in_another_process_until_they_change(tmp_path: Path) -> None:
    def token() -> str:
        frame = dd.read_parquet(tmp_path)
        return identity(frame[frame.a > 2][["checksum"]])

    TABLE.to_parquet(tmp_path / "part.parquet")
    elsewhere = subprocess.run(
        [sys.executable, "-c", TOLD, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert elsewhere.stdout.strip() == token()
    before = token()
    (TABLE + 1).to_parquet(tmp_path / "part.parquet")
    os.utime(tmp_path / "part.parquet", (1, 1))  # whatever the resolution of the clock
    assert token() != before


def test_contents_and_work_are_told_apart() -> None:
    frames = [dd.from_pandas(table, npartitions=2) for table in (TABLE, TABLE + 1, TABLE)]
    first, other, same = map(identity, frames)
    assert first == same != other
    assert len({identity(one) for one in (frames[0], frames[0].a, frames[0].checksum, frames[0] * 2)}) == 4
    x = np.arange(4.0)
    assert identity(da.from_array(x)) == identity(da.from_array(x.copy())) != identity(da.from_array(x + 1))
    assert identity(da.random.normal(size=3)) != identity(da.random.normal(size=3))
