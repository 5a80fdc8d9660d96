"""What a rank of a linear model's fit is in a run."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

from dask_train.linear_model.rank_role import Linear, OfRank


def test_the_result_comes_back_once():
    role = OfRank(lambda session: f"of {session.rank}")
    assert [role(SimpleNamespace(rank=rank)) for rank in range(3)] == ["of 0", None, None]


def test_it_travels_with_its_task():
    again = pickle.loads(pickle.dumps(OfRank(len)))
    assert again.__name__ == "linear-model", "as runs are listed"
    assert again._task is len


def test_its_process_imports_the_solvers_and_no_dask():
    code = f"import sys, {', '.join(Linear.imports)}; assert not {{'dask', 'distributed'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
