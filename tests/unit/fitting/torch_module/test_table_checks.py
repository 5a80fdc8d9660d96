"""Which optimizers take sparse gradients, and which layers that look up rows several workers can train."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from dask_train.fitting.torch_module.table_checks import check_sparse_optimizer, check_tables_together
from dask_train.fitting.torch_module.table_gradients import table_names

optim = torch.optim


def words(**settings):
    torch.manual_seed(0)
    table = torch.nn.Embedding(9, 4, **{"sparse": True, **settings})
    return torch.nn.Sequential(table, torch.nn.Flatten(), torch.nn.Linear(4, 2))


def tables_of(module):
    return [module.get_parameter(name) for name in table_names(module)]


@pytest.mark.parametrize(
    "make", [optim.SGD, partial(optim.SGD, momentum=0.9, nesterov=True), optim.Adagrad], ids=["SGD", "momentum", "Ada"]
)
def test_optimizers_that_take_both_kinds_are_tried_and_left_as_they_are(make):
    module = words()
    before = [one.detach().clone() for one in module.parameters()]
    optimizer = make(module.parameters(), lr=0.1)
    state = repr(optimizer.state_dict())
    optimizer.register_step_pre_hook(lambda *_: pytest.fail("it is a step of the user's own"))
    check_sparse_optimizer(optimizer, module)
    assert repr(optimizer.state_dict()) == state
    assert all(map(torch.equal, module.parameters(), before))
    assert all(one.grad is None for one in module.parameters())


def test_an_optimizer_goes_on_with_what_it_holds_of_sparse_and_dense_gradients():
    module = words()
    optimizer = optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module(torch.tensor([[1], [3], [3]])).sum().backward()
    optimizer.step()
    check_sparse_optimizer(optimizer, module)
    adam = optim.SparseAdam(tables_of(module), lr=0.1)
    adam.step()
    check_sparse_optimizer(adam, module)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (optim.Adam, "optimizer is a Adam, .* '0.weight' is sparse, .* Adam does not support sparse gradients"),
        (optim.RMSprop, "RMSprop does not support sparse gradients"),
        (optim.Adafactor, "Adafactor does not support sparse gradients"),
        (partial(optim.Adagrad, weight_decay=0.1), "weight_decay option is not compatible with sparse gradients"),
        (partial(optim.SGD, lr=0.1, weight_decay=0.1), r"add\(sparse, dense\) is not supported"),
        (optim.SparseAdam, "SparseAdam does not support dense gradients"),
    ],
)
def test_optimizers_that_do_not_are_refused_in_torchs_words(make, text):
    module = words()
    with pytest.raises(ValueError, match=text):
        check_sparse_optimizer(make(module.parameters()), module)
    check_sparse_optimizer(optim.SparseAdam(tables_of(module)), module)


def test_parameters_that_are_not_trained_have_no_gradient():
    module = words()
    module[2].requires_grad_(False)
    check_sparse_optimizer(optim.SparseAdam(module.parameters()), module)


def test_dense_tables_may_have_any_optimizer():
    module = words(sparse=False)
    check_sparse_optimizer(optim.Adam(module.parameters()), module)
    check_tables_together(module)


class Both(optim.SGD):
    """Takes a step with another optimizer besides, which a copy of it lacks."""

    def __init__(self, tables, others):
        super().__init__(others, lr=0.1)
        self.of_tables = optim.SparseAdam(tables)

    def step(self):
        super().step()
        self.of_tables.step()


def test_an_optimizer_that_can_not_be_tried_is_left_to_the_first_step():
    module = words()
    others = [one for one in module.parameters() if one is not module[0].weight]
    check_sparse_optimizer(Both([module[0].weight], others), module)


def tied():
    module = words()
    module[2].weight = torch.nn.Parameter(torch.zeros(9, 4))
    module[2].weight = module[0].weight
    return module


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (words(max_norm=1.0), "0 has max_norm=1, which changes weights"),
        (words(sparse=False, scale_grad_by_freq=True), "0 has scale_grad_by_freq=True, .* pass workers=1"),
        (tied(), "2 has the table '0.weight', too, .* is dense after all"),
        (torch.nn.EmbeddingBag(9, 4, max_norm=1.0), "The module has max_norm"),
    ],
)
def test_what_several_workers_can_not_train_is_refused(module, text):
    with pytest.raises(ValueError, match=text):
        check_tables_together(module)


def test_layers_that_share_a_sparse_table_are_taken():
    module = words()
    module.append(torch.nn.Embedding(9, 4, sparse=True))
    module[3].weight = module[0].weight
    check_tables_together(module)
