"""Tests that adapters outside this package can run too; needs pytest."""

import pytest

pytest.register_assert_rewrite("dask_train.testing.frameworks", "dask_train.testing.estimators")

from dask_train.testing.estimators import check_dask_estimator  # noqa: E402 - only what is imported later is rewritten
from dask_train.testing.frameworks import FrameworkTests  # noqa: E402
from dask_train.testing.role_process import RoleSession  # noqa: E402
from dask_train.testing.role_processes import RoleProcesses  # noqa: E402

__all__ = ["FrameworkTests", "RoleProcesses", "RoleSession", "check_dask_estimator"]
