"""Shares of a batch put together on all workers, as threads; and outputs of modules put together of tensors."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch

from dask_train.fitting.torch_module.global_batch import GlobalBatch, Structure

ROWS = 7
SHARES = [slice(0, 4), slice(4, 4), slice(4, 7)]
Pair = namedtuple("Pair", "one other")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_rows_are_in_the_order_of_the_workers_some_of_which_have_none(on_each_rank, dtype):
    first, second = (torch.arange(ROWS) % 5).to(dtype), torch.arange(ROWS * 6.0).reshape(3, ROWS, 2).transpose(0, 1)

    def met(rank, replicas):
        own = SHARES[rank]
        whole = GlobalBatch(replicas).of([first[own], second[own].requires_grad_()], own.stop - own.start)
        assert whole.own == own
        return whole.tensors

    for found in on_each_rank(met, 3):
        assert [one.dtype for one in found] == [dtype, torch.float32]
        assert torch.equal(found[0], first)
        assert torch.equal(found[1], second)
        assert not found[1].requires_grad


def test_sums_are_of_all_workers_also_of_those_without_rows(on_each_rank):
    def met(rank, replicas):
        own = SHARES[rank]
        return GlobalBatch(replicas).sums([torch.zeros(own.stop - own.start)], own.stop - own.start, (rank, 0.25))

    assert on_each_rank(met, 3) == [(ROWS, [3.0, 0.75])] * 3


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (torch.zeros(2, 3), r"float32 \(4,\)|float32 \(3,\)"),
        (torch.zeros(2, 4, dtype=torch.float64), r"float32 \(4,\)|float64 \(4,\)"),
    ],
)
def test_all_workers_tell_that_their_rows_are_of_other_kinds(on_each_rank, others, told):
    def met(rank, replicas):
        tensor = torch.zeros(2, 4) if rank else others
        with pytest.raises(ValueError, match=rf"of this worker's rows are ({told}), and those of another worker's"):
            GlobalBatch(replicas).of([tensor], 2)

    on_each_rank(met, 2)


def test_one_worker_has_its_rows_without_gradients():
    tensor = torch.zeros(ROWS, 2, requires_grad=True)
    (found,), own = GlobalBatch(None).of([tensor], ROWS)
    assert (own, found.requires_grad, found.data_ptr()) == (slice(0, ROWS), False, tensor.data_ptr())


def test_outputs_are_put_together_again_as_they_were():
    tensors = [torch.full((2, 1), float(number)) for number in range(4)]
    outputs = OrderedDict(b=Pair(tensors[0], None), a=[tensors[1], (), {"x": tensors[2], "w": (tensors[3],)}])
    made = Structure(outputs, 2)
    assert len(made.tensors) == 4
    found = made.filled([tensor + 1 for tensor in made.tensors])
    assert (type(found), list(found), type(found["b"])) == (OrderedDict, ["b", "a"], Pair)
    assert found["b"].other is None
    assert found["b"].one.tolist() == (tensors[0] + 1).tolist()
    assert found["a"][1] == ()
    assert found["a"][2]["x"].tolist() == (tensors[2] + 1).tolist()
    assert found["a"][2]["w"][0].tolist() == (tensors[3] + 1).tolist()


def test_what_has_no_row_for_each_row_is_refused_of_several_workers_and_stays_of_one():
    scalar, text = {"y": torch.zeros(2), "penalty": torch.tensor(1.0)}, (torch.zeros(2), 3, "text")
    with pytest.raises(ValueError, match=r"a tensor of shape \(\) of 2 rows"):
        Structure(scalar, 2)
    with pytest.raises(ValueError, match=r"The module makes int, str besides tensors"):
        Structure(text, 2)
    assert Structure(text, None).filled([torch.ones(2)])[1:] == (3, "text")
    assert len(Structure(scalar, None).tensors) == 2
