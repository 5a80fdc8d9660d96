"""What workers agree on, as threads; and what each has for itself."""

from __future__ import annotations

import pytest
import torch

from dask_train.fitting.torch_module.agreed import ModuleBuffers, Named, seed_rank


class Odd(torch.nn.Module):
    """Has tensors at its root and below, some in two places, some of dtypes that NumPy lacks."""

    def __init__(self):
        super().__init__()
        self.norm, self.first = torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2, bias=False)
        self.again = torch.nn.Sequential(self.first, torch.nn.InstanceNorm1d(2, track_running_stats=True))
        self.register_buffer("scale", torch.tensor(1.5, dtype=torch.bfloat16))
        self.register_buffer("hidden", torch.arange(6.0).reshape(2, 3).T, persistent=False)
        self.register_buffer("later", None)
        self.register_buffer("lazy", torch.tensor([1 + 2j]).conj())


def test_moving_averages_are_own_and_all_other_tensors_the_same_on_all():
    found = [each.path for each in Named.same_on_all(Odd())]
    assert found == ["norm.weight", "norm.bias", "first.weight", "scale", "hidden", "lazy"]


def test_values_of_any_dtype_are_told_and_assigned():
    module, other = Odd(), Odd()
    with torch.no_grad():
        other.scale += 1
        other.hidden += 1
        other.first.weight.fill_(0.25)
    other.scale = other.scale.clone()  # a module may put another tensor there
    names = [Named.same_on_all(each) for each in (module, other)]
    Named.assign(names[0], [Named.value_of(each) for each in names[1]])
    for mine, theirs in zip(*names, strict=True):
        assert torch.equal(mine.tensor, theirs.tensor), mine.path
        assert mine.tensor.dtype == theirs.tensor.dtype


def test_means_of_moving_averages_are_the_same_on_all_and_counts_are_own(on_each_rank):
    def averaged(rank, replicas):
        module = Odd()
        with torch.no_grad():
            module.norm.running_mean += torch.tensor([rank, 0.1])
            module.norm.running_var.mul_(1 / 3)
            module.norm.num_batches_tracked += rank
            module.again[1].running_var += rank
            module.scale += rank
        ModuleBuffers(module, replicas).average()
        return module

    found = on_each_rank(averaged, 3)
    for rank, module in enumerate(found):
        assert module.norm.running_mean.tolist() == [1.0, pytest.approx(0.1)]
        assert torch.equal(module.norm.running_var, torch.ones(2) * (1 / 3)), "what is equal stays so to the last bit"
        assert module.again[1].running_var.tolist() == [2.0, 2.0]
        assert (int(module.norm.num_batches_tracked), float(module.scale)) == (rank, 1.5 + rank)
        assert torch.equal(module.norm.running_mean, found[0].norm.running_mean)


@pytest.mark.parametrize("size", [1, 2])
def test_each_goes_on_with_what_it_had(on_each_rank, size):
    """Threads share torch's random numbers, which are looked at where a worker is alone."""

    def kept(rank, replicas):
        module = Odd()
        with torch.no_grad():
            module.scale += rank
            module.norm.num_batches_tracked += 5 + rank
            module.hidden += rank
        own = ModuleBuffers(module, replicas).own()
        wanted = torch.rand(3) if size == 1 else None
        other = Odd()
        ModuleBuffers(other, replicas).set_own(own)
        for name, one in module.named_buffers():
            assert torch.equal(dict(other.named_buffers())[name], one), name
        assert wanted is None or torch.equal(torch.rand(3), wanted)

    on_each_rank(kept, size)


def test_the_first_worker_draws_the_numbers_of_the_client_and_each_other_its_own():
    torch.manual_seed(7)
    state, wanted = torch.get_rng_state().numpy().copy(), torch.rand(4)
    drawn = []
    for rank in (0, 1, 2, 1):
        seed_rank(state, rank)
        drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], wanted)
    assert torch.equal(drawn[1], drawn[3])
    assert not torch.equal(drawn[1], drawn[2])
    assert not torch.equal(drawn[1], wanted)
    torch.manual_seed(8)
    seed_rank(torch.get_rng_state().numpy(), 1)
    assert not torch.equal(torch.rand(4), drawn[1]), "of another client"
