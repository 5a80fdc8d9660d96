"""Private parts of torch."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dask_train.compat import torch as compat

torch = pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile imports what it has deprecated
def test_modules_that_are_compiled():
    module = torch.nn.Linear(1, 1)
    assert compat.uncompiled(module) is module
    assert compat.uncompiled(torch.compile(module)) is module
    assert not compat.is_compiled_in_place(module)
    module.compile()
    assert compat.is_compiled_in_place(module)


def test_nested_outputs_by_their_leaves():
    outputs = {"a": (1, [2]), "b": None}
    leaves, spec = compat.flatten(outputs)
    assert leaves == [1, 2, None]
    assert compat.unflatten([3, 4, 5], spec) == {"a": (3, [4]), "b": 5}


def test_parts_of_a_sparse_tensor_with_two_values_of_a_place():
    sparse = torch.sparse_coo_tensor([[1, 1]], [2.0, 3.0], (4,), check_invariants=True)
    indices, values = compat.indices_and_values(sparse)
    assert (indices.tolist(), values.tolist()) == ([[1, 1]], [2.0, 3.0])


def test_a_module_with_properties_for_its_tensors():
    made = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 1))
    bare = torch.nn.Linear(2, 1)
    del bare.weight
    bare.parametrizations = made.parametrizations
    compat.make_parametrized(bare, ["weight"])
    assert type(bare).__name__ == "ParametrizedLinear"
    torch.testing.assert_close(bare.weight, made.weight)


def test_tensors_without_values():
    with compat.without_values():
        found = torch.ones(3, 2) @ torch.ones(2, 4)
        with pytest.raises(RuntimeError):
            torch.ones(3, 2) @ torch.ones(3, 4)
    assert tuple(found.shape) == (3, 4)
    assert type(found) is not torch.Tensor


def test_what_a_graph_tells_of_a_loss():
    x = torch.ones(4, 3, requires_grad=True)
    total = x.sum()
    assert compat.shapes_made(total.grad_fn) == [()]
    assert compat.shapes_made((2 * x).grad_fn) == [(4, 3)]
    assert compat.shape_reduced(total.grad_fn) == (4, 3)
    assert compat.shape_reduced((2 * x).grad_fn) == ()
    loss = torch.nn.functional.mse_loss
    kinds = [compat.reduction_of(loss(x, 0 * x, reduction=kind).grad_fn) for kind in ("none", "mean", "sum")]
    assert kinds == [0, 1, 2]
    assert compat.reduction_of(total.grad_fn) is None


def test_groups_that_meet_by_ones_own_way():
    import torch.distributed as dist

    def meet(url, **_):
        yield dist.HashStore(), 0, 1

    assert compat.collectives_begun() == 0
    with compat.meeting_by(meet):
        dist.init_process_group("gloo")
    try:
        compat.set_timeout(timedelta(seconds=77))
        dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1))
        assert compat.collectives_begun() == 2
        assert (
            dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).options._timeout.seconds == 77
        )
    finally:
        dist.destroy_process_group()


def test_rows_that_are_put_together_by_ones_own_function():
    class Row(tuple):
        __slots__ = ()

    def together(rows, *, collate_fn_map=None):
        return "together", compat.collate([tuple(row) for row in rows], dict(collate_fn_map or {}))

    compat.register_collate(Row, together)
    try:
        word, (x, y) = torch.utils.data.default_collate([Row((1, 2)), Row((3, 4))])
    finally:
        from torch.utils.data._utils.collate import default_collate_fn_map

        del default_collate_fn_map[Row]
    assert (word, x.tolist(), y.tolist()) == ("together", [1, 3], [2, 4])
