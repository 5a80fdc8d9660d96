"""Sparse gradients of looked-up tables, of several workers as threads: those of one process."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from dask_train.data.columns import Columns
from dask_train.fitting.torch_module.gradients import GradientSums
from dask_train.fitting.torch_module.steps import ModuleSteps
from dask_train.fitting.torch_module.table_gradients import table_names

ROWS = 11
SHARES = {2: [range(6), range(6, ROWS)], 3: [range(0, 4), range(0), range(4, ROWS)]}
CLASSES = np.arange(ROWS) % 3
WORDS = np.random.default_rng(1).integers(0, 50, (ROWS, 4))
WORDS[:4, 2], WORDS[-1, 2] = 3, 41  # the first share of three has no row of `some`


class Tables(torch.nn.Module):
    """Looks up a word and a bag of words of each row, in tables of which one has no gradient in some shares."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        kind = {"sparse": True, "dtype": dtype}
        self.word, self.bag = torch.nn.Embedding(50, 3, padding_idx=0, **kind), torch.nn.EmbeddingBag(50, 3, **kind)
        self.some, self.never = torch.nn.Embedding(9, 3, **kind), torch.nn.Embedding(9, 3, **kind)
        self.dense, self.last = torch.nn.Embedding(50, 3, dtype=dtype), torch.nn.Linear(3, 3, dtype=dtype)

    def forward(self, words):
        found = self.word(words[:, 0]) + self.bag(words) + self.dense(words[:, 1])
        has_some = words[:, 2] > 40
        if has_some.any():
            found = found.index_add(0, has_some.nonzero()[:, 0], self.some(words[has_some, 2] % 9))
        return self.last(found)


def mean(_):
    return torch.nn.CrossEntropyLoss()


def penalised(module):
    return lambda outputs, y: torch.nn.functional.cross_entropy(outputs, y) + 0.1 * (module.word.weight**2).sum()


OPTIMIZERS = {
    "SGD": lambda module: torch.optim.SGD(module.parameters(), lr=0.5),
    "momentum": lambda module: torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9),
    "Adagrad": lambda module: torch.optim.Adagrad(module.parameters(), lr=0.1),
    "SparseAdam": lambda module: torch.optim.SparseAdam(
        [one for name, one in module.named_parameters() if name in table_names(module)], lr=0.1
    ),
}


def trained(module, loss_of, optimizer_of, rows, replicas, steps_taken=4):
    module = copy.deepcopy(module)
    steps = ModuleSteps(module, loss_of(module), replicas, tells_outputs=False)
    optimizer = optimizer_of(module)

    def packed(rows):
        return steps.packed(Columns.of_batch(2), [torch.from_numpy(one[list(rows)]) for one in (WORDS, CLASSES)])

    for _ in range(steps_taken):
        steps.train(packed(rows), lambda: packed([3]), optimizer.step)
    return {name: (one.detach(), one.grad) for name, one in module.named_parameters()}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # Adagrad
@pytest.mark.parametrize(
    ("name", "loss_of"), [*((name, mean) for name in OPTIMIZERS), ("SGD", penalised), ("Adagrad", penalised)]
)
def test_tables_are_those_of_one_process(on_each_rank, name, loss_of):
    torch.manual_seed(4)
    module = Tables()
    wanted = trained(module, loss_of, OPTIMIZERS[name], range(ROWS), None)
    assert not torch.equal(wanted["word.weight"][0], module.word.weight), "they learn"
    for size in (2, 3):

        def take_part(rank, replicas):
            return trained(module, loss_of, OPTIMIZERS[name], SHARES[size][rank], replicas)  # noqa: B023

        found = on_each_rank(take_part, size)
        for key, (value, gradient) in wanted.items():
            for one in found:
                torch.testing.assert_close(one[key][0], value, rtol=1e-11, atol=1e-13)
                assert torch.equal(one[key][0], found[0][key][0]), "the same bits on all"
                assert (one[key][1] is None) == (gradient is None), key
                assert gradient is None or one[key][1].is_sparse == gradient.is_sparse, key


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_sums_of_tables_are_in_their_dtype_and_in_longer_floats(on_each_rank, dtype):
    """In 16 bits 2048 + 1 + 1 is 2048, and 256 + 1 + 1 is 256."""
    large = 256 if dtype == torch.bfloat16 else 2048

    def summed(rank, replicas):
        table = torch.nn.Parameter(torch.zeros(6, 2, dtype=dtype))
        value = float(large if rank == 0 else 1)
        values = torch.full((2, 2), value, dtype=dtype)
        table.grad = torch.sparse_coo_tensor(torch.tensor([[rank, 5]]), values, (6, 2), check_invariants=False)
        GradientSums({"table": table}, replicas, ["table"]).sum([None])
        return table.grad

    for found in on_each_rank(summed, 3):
        assert found.is_coalesced()
        assert found.dtype == dtype
        assert found.indices().tolist() == [[0, 1, 2, 5]]
        assert found.values()[:, 0].real.tolist() == [large, 1, 1, large + 2]


def test_what_is_sent_does_not_grow_with_the_table(on_each_rank):
    def sent(rank, replicas, rows):
        taken, gather = [], replicas.gather

        def noted(key, arrays):
            taken.append(sum(array.nbytes for array in arrays))
            return gather(key, arrays)

        replicas.gather = noted
        table = torch.nn.Embedding(rows, 4, sparse=True)
        table(torch.tensor([rank, 3, 3])).sum().backward()
        sums = GradientSums({"table": table.weight}, replicas, ["table"])
        sums.sum([None])
        return sum(taken), replicas.top

    found = [on_each_rank(lambda rank, all_: sent(rank, all_, rows), 2) for rows in (10, 100_000)]  # noqa: B023
    assert found[0] == found[1]
    assert found[0][0][0] == 8 + 2 * (8 + 4 * 4), "a number of rows, and two rows with their indices"


def test_a_dense_gradient_of_a_table_is_refused(on_each_rank):
    def summed(rank, replicas):
        table = torch.nn.Embedding(4, 2, sparse=True)
        (table(torch.tensor([rank])).sum() + table.weight.sum()).backward()
        with pytest.raises(ValueError, match=r"The gradient of 'it' is dense, though its layer has sparse=True"):
            GradientSums({"it": table.weight}, replicas, ["it"]).sum([None])

    on_each_rank(summed, 2)


def test_names_of_tables():
    module = torch.nn.ModuleDict(
        {
            "dense": torch.nn.Embedding(3, 2),
            "frozen": torch.nn.Embedding(3, 2, sparse=True).requires_grad_(False),
            "bag": torch.nn.EmbeddingBag(3, 2, sparse=True),
            "table": torch.nn.Embedding(3, 2, sparse=True),
        }
    )
    module["again"] = module["table"]
    assert table_names(module) == ["bag.weight", "table.weight"]
