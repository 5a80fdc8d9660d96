"""What processes with estimators have imported before they are forked: those of searches, and of incremental ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dask_train.searching.estimators.framework import Estimators
from dask_train.sklearn.learning import Learners

PROGRAM = """
import sys
from importlib import import_module
from dask_train.process.template import unfit
for module in sys.argv[1:]:
    import_module(module)
before = set(sys.modules)
from sklearn.linear_model import LogisticRegression
assert len(set(sys.modules) - before) < 60, sorted(set(sys.modules) - before)
print(unfit())
"""


@pytest.mark.parametrize("framework", [Estimators, Learners])
def test_they_may_be_forked_and_have_imported_scikit_learn(framework):
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *framework.imports],
        env=one_thread,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == ""
