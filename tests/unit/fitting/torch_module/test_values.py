"""States of torch as plain values, as a checkpoint stores them, and back to the last bit."""

from __future__ import annotations

import pytest
import torch

from dask_train.checkpoint.stored import store, stored
from dask_train.fitting.torch_module.values import from_plain, plain, set_state, state_of


def net(seed):
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2).bfloat16())
    module.register_buffer("left_out", torch.rand(3), persistent=False)
    return module


def test_a_module_its_optimizer_and_its_schedulers_go_through_a_checkpoint(tmp_path):
    module, other = net(0), net(1)
    optimizer = torch.optim.Adam(module.parameters(), betas=(0.8, 0.99))
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
    module[1](module[0](torch.rand(5, 3))).sum().backward()
    optimizer.step()
    scheduler.step()
    state = {"module": state_of(module), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    store(tmp_path, plain(state))
    found = from_plain(stored(tmp_path))
    set_state(other, found["module"])
    assert all(map(torch.equal, module.parameters(), other.parameters()))
    assert all(map(torch.equal, module.buffers(), other.buffers()))
    assert other[1].num_batches_tracked == 1
    assert repr(found["optimizer"]) == repr(state["optimizer"])
    assert found["scheduler"] == state["scheduler"]


@pytest.mark.parametrize("is_coalesced", [True, False])
def test_momentum_of_sparse_gradients_goes_through_a_checkpoint(tmp_path, is_coalesced):
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)
    table(torch.tensor([3, 1, 3])).sum().backward()
    if is_coalesced:
        table.weight.grad = table.weight.grad.coalesce()
    optimizer.step()
    store(tmp_path, plain(optimizer.state_dict()))
    found = from_plain(stored(tmp_path))
    momentum, kept = (one["state"][0]["momentum_buffer"] for one in (found, optimizer.state_dict()))
    assert momentum.is_coalesced() == kept.is_coalesced() == is_coalesced
    assert repr(momentum) == repr(kept), "several of a row stay several"


class Adapter(torch.nn.Module):
    """Saves its last layer only, under another name, and counts in an extra state."""

    def __init__(self, seed):
        super().__init__()
        self.net, self.calls = net(seed), seed

    def state_dict(self, **settings):
        whole = super().state_dict(**settings)
        return type(whole)((f"adapter.{name}", value) for name, value in whole.items() if name.startswith("net.2"))

    def load_state_dict(self, state, strict=True, assign=False):
        return super().load_state_dict(
            {name.removeprefix("adapter."): one for name, one in state.items()}, False, assign
        )

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


def test_tensors_that_a_module_does_not_save_and_extra_states_are_taken_over(tmp_path):
    module, other = Adapter(0), Adapter(1)
    store(tmp_path, plain(state_of(module)))
    set_state(other, from_plain(stored(tmp_path)))
    assert all(map(torch.equal, module.parameters(), other.parameters()))
    assert all(map(torch.equal, module.buffers(), other.buffers()))
    assert other.calls == 0
    assert all(one.requires_grad for one in other.parameters())


@pytest.mark.parametrize(
    ("shape", "told"), [((1,), r"\(3,\) here, and \(1,\) there"), (None, r"\(3,\) here, and None")]
)
def test_tensors_of_other_shapes_are_not_taken_over(shape, told):
    module, other = net(0), net(1)
    before = [one.clone() for one in other.parameters()]
    module.register_buffer("left_out", None if shape is None else torch.zeros(shape))
    with pytest.raises(ValueError, match=f"other tensors than the one that was trained: 'left_out': {told}"):
        set_state(other, state_of(module))
    assert all(map(torch.equal, before, other.parameters()))


class Halving(torch.optim.lr_scheduler.LRScheduler):
    """Keeps a function, which its state has then, too."""

    def __init__(self, optimizer):
        self.factor = lambda epoch: 0.5**epoch
        super().__init__(optimizer)

    def get_lr(self):
        return [rate * self.factor(self.last_epoch) for rate in self.base_lrs]


def test_a_scheduler_of_one_s_own_may_keep_a_function(tmp_path):
    scheduler = Halving(torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=1.0))
    store(tmp_path, plain(scheduler.state_dict()))
    found = from_plain(stored(tmp_path))
    assert found.pop("factor")(3) == 0.125
    assert found.items() <= scheduler.state_dict().items()


@pytest.mark.parametrize("copies", [True, False])
def test_without_copies_tensors_stay_where_they_are(copies):
    tensors = [torch.zeros(3), {"bits": (torch.zeros(2, dtype=torch.bfloat16),)}]
    told = plain(tensors, copies=copies)
    found = from_plain(told, copies=copies)
    found[0][:] = 1
    found[1]["bits"][0][:] = 1
    assert (tensors[0].sum().item(), tensors[1]["bits"][0].sum().item()) == ((0.0, 0.0) if copies else (3.0, 2.0))
