"""What a role process inherits."""

from __future__ import annotations

from dask_train.cluster.on_worker.child import role_environment

INHERITED = {
    "PATH": "/bin",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONPATH": "old",
    "CUDA_VISIBLE_DEVICES": "0",
}


def test_a_role_has_its_share_of_the_cores():
    found = role_environment(INHERITED, 4, [])
    names = [name for name in found if name.endswith("_THREADS")]
    assert {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"} <= set(names)
    assert {found[name] for name in names} == {"4"}
    assert INHERITED["OMP_NUM_THREADS"] == "1", "the Dask worker's own stays"


def test_it_imports_from_where_its_dask_worker_does():
    found = role_environment(INHERITED, 1, ["", "/one", "/two"])
    assert found["PYTHONPATH"] == "/one:/two", "an empty entry would be the current folder"


def test_all_else_is_inherited():
    found = role_environment(INHERITED, 1, [])
    assert (found["PATH"], found["CUDA_VISIBLE_DEVICES"]) == ("/bin", "0")
