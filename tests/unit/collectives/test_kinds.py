"""What may be passed to a collective, and what comes back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dask_train.collectives.kinds import taken


def through(given):
    its = taken("all_reduce()", given)
    assert all(array.dtype.isnative for array in its.arrays)
    return its.given_back([array + 1 for array in its.arrays])


def test_arrays_numbers_and_lists_of_them():
    x = np.arange(6.0).reshape(2, 3)
    found = through([x, x[:, 1], np.float32(2), 3, 1.5])
    assert (found[0].tolist(), found[1].tolist(), found[2:]) == ((x + 1).tolist(), [2, 5], [3, 4, 2.5])
    assert [type(each) for each in found[2:]] == [np.float32, int, float]
    assert isinstance(through((x,)), tuple)
    assert through(x.astype(">f8")).tolist() == (x + 1).tolist()
    assert taken("f()", x).arrays[0] is x, "no copy"
    assert through([]) == []


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.arange(3.0, requires_grad=True)
    found = through([x, torch.tensor(2)])
    assert [each.tolist() for each in found] == [[1, 2, 3], 3]
    assert (found[0].dtype, found[0].requires_grad, found[1].shape) == (torch.float32, False, ())
    with pytest.raises(TypeError, match=r"a Tensor that can't be read as a NumPy array.*BFloat16"):
        taken("f()", x.bfloat16())


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    found = through(jax.numpy.arange(3))
    assert isinstance(found, jax.Array)
    assert found.tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="can't be read as a NumPy array"):
        jax.jit(through)(found)
    with pytest.raises(TypeError, match="an array of bfloat16, which is no dtype of NumPy's own"):
        taken("f()", found.astype("bfloat16"))


@pytest.mark.parametrize(
    "given",
    [
        np.ma.masked_array([1.0], [True]),
        pd.Series([1.0]),
        scipy.sparse.csr_array((2, 2)),
        "text",
        None,
        [[1.0]],
        {"a": 1},
    ],
)
def test_what_is_no_array(given):
    with pytest.raises(TypeError, match=r"all_reduce\(\) was given a .*; pass a NumPy array"):
        taken("all_reduce()", given)


@pytest.mark.parametrize("dtype", [object, [("a", "f4")]])
def test_dtypes_that_not_every_rank_reads_alike(dtype):
    with pytest.raises(TypeError, match="is no dtype of NumPy's own"):
        taken("f()", np.zeros(2, dtype))
