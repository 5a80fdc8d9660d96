"""A module that was tried is as it was: tensors, numbers, what containers hold, modes and random numbers."""

from __future__ import annotations

import collections
import copy

import pytest
import torch

from dask_train.fitting.torch_module.trials import left_as_it_was, modes_kept


class Noting(torch.nn.Module):
    """Counts and keeps what it sees, in all ways that are seen in people's modules."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 1)
        self.register_buffer("mean", torch.zeros(1))
        self.calls, self.last, self.seen = 0, None, []
        self.by_name, self.sizes, self.recent = {}, {8}, collections.deque(maxlen=2)

    def forward(self, x):
        self.calls += 1
        self.last = "called"
        self.seen.append(self.line(x).mean())
        self.by_name[self.calls] = x.shape
        self.sizes.add(len(x))
        self.recent.append(x.sum())
        self.mean = self.mean + x.mean()
        with torch.no_grad():
            self.line.weight.mul_(2)
        return self.line(x) + torch.rand(1)


def test_all_that_a_call_changes_is_set_back_in_the_very_objects():
    module = Noting()
    seen, mean, before = module.seen, module.mean, copy.deepcopy(module)
    state = torch.get_rng_state()
    with left_as_it_was(module):
        module(torch.ones(3, 2))
        assert (module.calls, len(seen), len(module.sizes)) == (1, 1, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.seen is seen
    assert module.mean is mean
    plain = ("calls", "last", "seen", "by_name", "sizes", "recent")
    assert {name: getattr(module, name) for name in plain} == {name: getattr(before, name) for name in plain}
    assert module.recent.maxlen == 2
    for name, value in before.state_dict().items():
        assert torch.equal(module.state_dict()[name], value), name


def test_a_container_that_was_replaced_is_there_again():
    module = Noting()
    module.seen = kept = [1]
    with left_as_it_was(module):
        module.seen = [*module.seen, 2]
        kept.append(3)
    assert module.seen is kept
    assert kept == [1]


def test_it_is_set_back_also_where_the_trial_fails():
    module = Noting()
    with pytest.raises(RuntimeError, match="shape"), left_as_it_was(module):
        module(torch.ones(3, 5))
    assert (module.calls, module.last, module.seen) == (0, None, [])


def test_parameters_that_are_replaced_are_back_in_their_places():
    class Replaces(torch.nn.Linear):
        def forward(self, x):
            self.weight = torch.nn.Parameter(self.weight * 2)
            return super().forward(x)

    module = torch.nn.Sequential(Replaces(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = weight = module[0].weight
    before = weight.detach().clone()
    with left_as_it_was(module):
        module(torch.ones(1, 3))
    assert module[0].weight is module[1].weight is weight
    assert torch.equal(weight, before)


def test_a_part_that_has_made_tensors_keeps_what_it_knows_of_them():
    class Late(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.is_made, self.names = False, []

        def forward(self, x):
            if not self.is_made:
                self.within, self.is_made = torch.nn.Linear(x.shape[1], 1), True
                self.names.append("within")
            return self.within(x)

    module = Late()
    with left_as_it_was(module):
        module(torch.ones(1, 3))
    assert (module.is_made, module.names) == (True, ["within"])


def test_each_part_is_in_its_own_mode_again():
    module = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2).eval())
    with modes_kept(module):
        module.eval()
    assert [part.training for part in module.modules()] == [True, True, False]
