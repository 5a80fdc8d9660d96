"""Sums between hosts that begin during the backward pass: the same bits, and the same order of calls on all ranks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from dask_train.fitting.torch_module import gradients
from dask_train.fitting.torch_module.early_sums import EarlySums
from dask_train.fitting.torch_module.gradients import GradientSums

STEPS = gradients.NUM_LOOKED_AT + 4


@pytest.fixture(autouse=True)
def small_sections(monkeypatch):
    monkeypatch.setattr(gradients, "SECTION_BYTES", 300)


def module_of():
    torch.manual_seed(0)
    nn = torch.nn
    layers = [layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(8, 2)).double()


def summed(part, calls=None):
    """What a rank does: steps of the module, of which ``part`` computes the loss; the bits of all gradients."""
    begun = module_of()  # threads share torch's random numbers

    def take_part(rank, replicas):
        module = copy.deepcopy(begun)
        named = dict(module.named_parameters())
        frozen = named.pop("2.bias")  # it has a gradient on no rank
        named["2.bias"] = frozen
        sums = GradientSums(named, replicas)
        assert len(sums._groups[0].sections) > 3
        made = []
        if calls is not None:
            sum_section = replicas.sum_section

            def noted(channel, number, arrays):
                calls.append((rank, number))
                return sum_section(channel, number, arrays)

            replicas.sum_section = noted
        for step in range(STEPS):
            for one in named.values():
                one.grad = None
            sums.begin()
            x = torch.full((3, 8), rank + 0.1 * step, dtype=torch.float64)
            frozen.requires_grad_(requires_grad=False)
            part(rank, module, x)
            sums.sum([None] * len(named))
            made.append([None if one.grad is None else one.grad.numpy().tobytes() for one in named.values()])
        return made, sums._is_early

    return take_part


def own_loss(rank, module, x):
    if rank != 1:  # it has no rows
        module(x).square().sum().backward()


@pytest.mark.parametrize("hosts", ["ab", "aab", "abc"])
def test_sums_have_the_same_bits_whenever_they_begin(hosts, on_each_rank, monkeypatch):
    found = {}
    for early, most in ((True, -1.0), (False, 1e9)):
        monkeypatch.setattr(gradients, "LEAST_PART_OF_STEP", most)
        calls = []
        ranks = on_each_rank(summed(own_loss, calls), len(hosts), hosts)
        assert [is_early for _, is_early in ranks] == [early] * len(hosts)
        found[early] = [made for made, _ in ranks]
        for rank in range(len(hosts)):
            numbers = [number for its, number in calls if its == rank]
            assert numbers == (sorted(set(numbers)) * 4 if early else []), "in one order, on all ranks"
    assert found[True] == found[False]
    first = found[True][0]
    assert all(made == first for made in found[True]), "all ranks have the same"
    assert [one is None for one in first[0]] == [False] * (len(first[0]) - 1) + [True]


def test_gradients_that_are_made_in_several_goes_are_summed_in_the_end(on_each_rank, monkeypatch):
    """Reentrant checkpoints run backward passes within the backward pass, and each adds to the gradient."""
    monkeypatch.setattr(gradients, "LEAST_PART_OF_STEP", -1.0)

    def part(rank, module, x):
        x.requires_grad_()
        for _ in range(2):
            x = checkpoint(module[:2], x, use_reentrant=True)
        module[2:](x).sum().backward()

    ranks = on_each_rank(summed(part), 2, "ab")
    assert [is_early for _, is_early in ranks] == [False, False]


def test_a_gradient_that_grows_after_it_was_summed_is_refused():
    parameter, numbers = torch.nn.Parameter(torch.zeros(2)), []
    sums = EarlySums([[parameter]], numbers.append)
    sums.begin(early=True)
    parameter.sum().backward()
    sums.finish()
    assert numbers == [0]
    sums.begin(early=True)
    parameter.sum().backward()
    with pytest.raises(ValueError, match=r"once more after it was summed .* pass use_reentrant=False"):
        parameter.sum().backward()


def test_what_fails_in_the_thread_is_raised_where_sums_are_waited_for():
    several = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]

    def fail(number):
        raise RuntimeError(f"section {number}")

    sums = EarlySums([[one] for one in several], fail)
    sums.begin(early=True)
    with pytest.raises(RuntimeError, match="section 0"):
        sums.finish()


def test_gradients_are_only_looked_at_until_it_is_decided():
    parameter = torch.nn.Parameter(torch.zeros(2))
    sums = EarlySums([[parameter]], lambda _: pytest.fail("nothing is to be summed"))
    sums.begin(early=False)
    parameter.sum().backward()
    assert sums.made_once
    parameter.sum().backward()
    assert not sums.made_once
    sums.stop()
    sums.begin(early=False)
