"""States of torch as plain values, as a checkpoint stores them, and back to the last bit."""

from __future__ import annotations

import torch

from dask_train.checkpoint.stored import store, stored
from dask_train.fitting.torch_module.values import opened, plain, set_state, state_of


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
    found = opened(stored(tmp_path))
    set_state(other, found["module"])
    assert all(map(torch.equal, module.parameters(), other.parameters()))
    assert all(map(torch.equal, module.buffers(), other.buffers()))
    assert other[1].num_batches_tracked == 1
    assert repr(found["optimizer"]) == repr(state["optimizer"])
    assert found["scheduler"] == state["scheduler"]
