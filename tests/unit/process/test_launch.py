"""What a child process inherits."""

from __future__ import annotations

import dask
import distributed  # noqa: F401 - sets its configuration
import pytest

from dask_train.process.launch import NANNYS_TRIM, Launch, Preload, child_environment

INHERITED = {
    "PATH": "/bin",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONPATH": "old",
    "CUDA_VISIBLE_DEVICES": "0",
}


def test_a_role_has_its_share_of_the_cores():
    found = child_environment(INHERITED, 4, [])
    names = [name for name in found if name.endswith("_THREADS")]
    assert {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"} <= set(names)
    assert {found[name] for name in names} == {"4"}
    assert INHERITED["OMP_NUM_THREADS"] == "1", "the Dask worker's own stays"


def test_it_imports_from_where_its_dask_worker_does():
    found = child_environment(INHERITED, 1, ["", "/one", "/two"])
    assert found["PYTHONPATH"] == "/one:/two", "an empty entry would be the current folder"


def test_all_else_is_inherited():
    found = child_environment(INHERITED, 1, [])
    assert (found["PATH"], found["CUDA_VISIBLE_DEVICES"]) == ("/bin", "0")


def test_it_is_what_nannies_set():
    assert (
        "MALLOC_TRIM_THRESHOLD_",
        str(dask.config.get("distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_")),
    ) == NANNYS_TRIM


@pytest.mark.parametrize(("value", "is_left"), [("65536", False), ("131072", True)], ids=["nanny's", "user's"])
def test_malloc_keeps_memory_as_in_any_process_unless_users_say_otherwise(value, is_left):
    found = child_environment({**INHERITED, "MALLOC_TRIM_THRESHOLD_": value}, 1, [])
    assert ("MALLOC_TRIM_THRESHOLD_" in found) == is_left


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.perturb=3"}, "glibc.malloc.perturb=3:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, "glibc.malloc.hugetlb=0"),
    ],
    ids=["nothing said", "something else said", "said otherwise"],
)
def test_malloc_takes_huge_pages_unless_users_say_otherwise(given, expected):
    assert child_environment({**INHERITED, **given}, 1, [])["GLIBC_TUNABLES"] == expected


def test_variables_that_imports_read_go_to_the_template_as_well():
    preload = Preload(modules=("torch", "keras"), environment={"KERAS_BACKEND": "torch"}, idle_s=1.0)
    launch = Launch(module="m", arguments=(), descriptors=(), output=1, num_threads=1, preload=preload)
    given = launch.with_environment({"KERAS_TORCH_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "-1"})
    assert given.preload is not None
    assert given.preload.environment == {"KERAS_BACKEND": "torch", "KERAS_TORCH_DEVICE": "cpu"}
    assert given.whole_environment()["CUDA_VISIBLE_DEVICES"] == "-1"
    assert launch.with_environment({}) == launch
