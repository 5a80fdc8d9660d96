"""Gradients of several workers, as threads: their sum, whoever has some of them."""

from __future__ import annotations

import pytest
import torch

from dask_train.data.order import block_of
from dask_train.fitting.torch_module.gradients import GradientSums
from dask_train.fitting.torch_module.share_gradients import ShareGradients


def parameters(**dtypes):
    return {name: torch.nn.Parameter(torch.zeros(2, 3, dtype=dtype)) for name, dtype in dtypes.items()}


def test_who_has_no_gradient_counts_as_zeros_and_one_that_nobody_has_stays_none(on_each_rank):
    def summed(rank, replicas):
        several = parameters(all=torch.float64, some=torch.float32, none=torch.float64, whole=torch.float64)
        sums = GradientSums(several, replicas)
        for _ in range(2):  # what was summed before is gone
            several["all"].grad = torch.full((2, 3), 10.0**rank, dtype=torch.float64).T.contiguous().T
            several["some"].grad = torch.full((2, 3), 0.5) if rank == 1 else None
            several["none"].grad = several["whole"].grad = None
            whole = torch.ones(2, 3, dtype=torch.float64)
            sums.sum([whole, None, None, whole])
        return {name: one.grad for name, one in several.items()}

    for found in on_each_rank(summed, 3):
        assert found["none"] is None
        assert found["all"].tolist() == [[112.0] * 3] * 2, "what is of all rows counts once"
        assert (found["some"].tolist(), found["some"].dtype) == ([[0.5] * 3] * 2, torch.float32)
        assert found["whole"].tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(("dtype", "one"), [(torch.float16, 2049), (torch.bfloat16, 257)])
def test_short_floats_are_summed_as_longer_ones(on_each_rank, dtype, one):
    """In their own dtype large + 1 is large."""

    def summed(rank, replicas):
        several = parameters(it=dtype)
        several["it"].grad = torch.full((2, 3), one - 1.0 if rank == 0 else 1.0, dtype=dtype)
        GradientSums(several, replicas).sum([None])
        return several["it"].grad

    for found in on_each_rank(summed, 3):
        assert found.dtype == dtype
        assert found.tolist() == [[one + 1.0] * 3] * 2


def penalised(rank):
    """Two parameters, and the derivatives of a penalty on their sum: torch gives both the same tensor."""
    several = parameters(a=torch.float64, b=torch.float64)
    one, other = several.values()
    return several, torch.autograd.grad((one + other + 1).pow(2).sum(), [one, other])


def test_gradients_of_a_penalty_can_be_changed_each_by_itself(on_each_rank):
    """As by clip_grad_norm_, which multiplies each in place."""

    def summed(rank, replicas):
        several, of_all = penalised(rank)
        GradientSums(several, replicas).sum(of_all)
        shared, of_all = penalised(rank)
        gradients = ShareGradients(shared, replicas, 2)
        gradients.begin()
        for share in block_of(rank, replicas.size, 2):
            gradients.add(share)
        gradients.sum(of_all)
        for each in (several, shared):
            each["a"].grad.mul_(0.5)
        return [each["b"].grad.tolist() for each in (several, shared)]

    for size in (1, 2):
        assert on_each_rank(summed, size) == [[[[2.0] * 3] * 2] * 2] * size


def test_gradients_that_are_conjugated_lazily_are_summed(on_each_rank):
    def summed(rank, replicas):
        found = []
        for make in (lambda one: GradientSums(one, replicas), lambda one: ShareGradients(one, replicas, 2)):
            several = parameters(it=torch.complex128)
            gradients = make(several)
            gradients.begin()
            (several["it"].conj() * torch.tensor(1 + 2j)).real.sum().backward()
            assert several["it"].grad.is_conj()
            if isinstance(gradients, ShareGradients):
                gradients.add(rank)
            gradients.sum([None])
            found.append(several["it"].grad.tolist())
        return found

    for found in on_each_rank(summed, 2):
        assert found == [[[2 + 4j] * 3] * 2] * 2


def test_a_sparse_gradient_of_what_is_no_table_is_refused(on_each_rank):
    def summed(rank, replicas):
        table = torch.nn.Embedding(4, 2, sparse=True)
        table(torch.tensor([rank])).sum().backward()
        with pytest.raises(ValueError, match=r"The gradient of 'table\.weight' is sparse\. .* use such a layer"):
            GradientSums({"table.weight": table.weight}, replicas).sum([None])

    on_each_rank(summed, 2)


def test_only_what_is_summed_in_float32_travels_rounded(on_each_rank):
    def rounded(rank, replicas):
        several = parameters(a=torch.float32, b=torch.bfloat16, c=torch.float64)
        found = [GradientSums(several, replicas, rounds=rounds)._groups for rounds in (True, False)]
        return [[(group.dtype, group.channel.rounds) for group in groups] for groups in found]

    wanted = [[(torch.float32, True), (torch.float64, False)], [(torch.float32, False), (torch.float64, False)]]
    assert on_each_rank(rounded, 2) == [wanted] * 2
