"""What shares of a batch have for themselves, while a module goes through one after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from dask_train.errors import DivergedError
from dask_train.fitting.torch_module.random_streams import RandomStreams
from dask_train.fitting.torch_module.shares import ALL, FIRST, ModuleShares, computing_alike

SHARES = 3


@pytest.fixture(autouse=True)
def streams():
    before = RandomStreams.current()
    yield
    before.set()


def drawn():
    return torch.rand(()).item(), float(np.random.rand()), random.random()  # noqa: S311


def net():
    found = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    found.register_buffer("scale", torch.ones(()))
    found.register_buffer("same_scale", found.scale)
    return found


def passed(shares, module):
    """Draw numbers and train moving averages in each share of this worker."""
    found = {}
    for share in shares.mine:
        with shares.passing(share):
            found[share] = drawn()
            module(torch.full((4, 2), float(share)) + torch.arange(8.0).reshape(4, 2))
    shares.draw(ALL)
    return found


def told(own):
    return repr(
        {name: [each.tolist() for each in arrays] for name, arrays in enumerate(own["buffers"], own["first"])}
    ), repr(own["streams"])


def test_shares_draw_the_same_numbers_and_have_the_same_buffers_on_any_number_of_workers(on_each_rank):
    state = torch.manual_seed(4).get_state().numpy()

    def outcome(rank, replicas):
        replicas.size, replicas.rank = size, number  # each alone, as random numbers are those of the process
        module = net()
        shares = ModuleShares(module, replicas, SHARES, state)
        numbers = [passed(shares, module), passed(shares, module)]
        shares.draw(FIRST)
        numbers.append(drawn())
        shares.draw(ALL)
        return numbers, drawn(), told(shares.own())[0], shares.mine

    found = {}
    for size in (1, 2, 3):
        for number in range(size):  # noqa: B007 - of outcome()
            ((numbers, common, _, mine),) = on_each_rank(outcome, 1)
            assert list(numbers[0]) == list(mine)
            for share in mine:
                found.setdefault(share, []).append([numbers[0][share], numbers[1][share]])
            found.setdefault("all", []).append([common])
            found.setdefault("first", []).append([numbers[2]])
    assert found.keys() == {0, 1, 2, "all", "first"}
    assert all(each == several[0] for several in found.values() for each in several)
    everything = {repr(number) for several in found.values() for number in several[0]}
    assert len(everything) == 3 * 2 + 2, "no two streams are alike"
    torch.manual_seed(4)
    assert found[0][0][0][0] == torch.rand(()).item(), "the first share begins with the state of the client"


def test_what_shares_have_is_taken_over_by_others(on_each_rank):
    state = torch.manual_seed(4).get_state().numpy()

    def outcome(rank, replicas):
        module, other = net(), net()
        shares = ModuleShares(module, replicas, SHARES, state)
        own = [each.tensor for each in shares._buffers]
        passed(shares, module)
        assert all(one is each.tensor for one, each in zip(own, shares._buffers, strict=True)), "the module's own"
        kept = shares.own()
        wanted = passed(shares, module), told(shares.own())
        taken = ModuleShares(other, replicas, SHARES, np.zeros_like(state))
        of_two = [
            {**kept, "buffers": kept["buffers"][:1]},
            {**kept, "first": 1, "buffers": kept["buffers"][1:]},
        ]
        taken.set_own(taken.regrouped(of_two, 0))
        assert (passed(taken, other), told(taken.own())) == wanted
        before, after = [], []
        for means, act in ((before, shares.average), (after, bool)):
            for share in shares.mine:
                with shares.passing(share):
                    means.append(module[0].running_mean.clone())
            act()
        assert all(torch.equal(one, after[0]) for one in after)
        torch.testing.assert_close(after[0], torch.stack(before).mean(0))
        assert not torch.equal(before[0], before[1])

    on_each_rank(outcome, 1)


def test_buffers_of_no_normalisation_have_to_be_alike(on_each_rank):
    def outcome(rank, replicas):
        module = net()
        shares = ModuleShares(module, replicas, SHARES, torch.get_rng_state().numpy())
        passed(shares, module)
        shares.check_alike(["a", "b"])
        with shares.passing(1):
            module.scale += 1
            assert float(module.same_scale) == 2, "parts that share a tensor still do"
        with pytest.raises(DivergedError, match="Buffer 'scale' of the module is not the same after share 1"):
            shares.check_alike(["a", "b"])

    on_each_rank(outcome, 1)


def test_a_process_computes_in_one_thread_and_is_as_before_afterwards(on_each_rank):
    torch.set_num_threads(2)

    def outcome(rank, replicas):
        before = torch.get_rng_state(), random.getstate()
        with computing_alike(replicas):
            assert torch.get_num_threads() == 1
            drawn()
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]

    on_each_rank(outcome, 1)
    with pytest.raises(ValueError, match="workers of one host, and these are on 2"):
        on_each_rank(lambda rank, replicas: computing_alike(replicas).__enter__(), 2, "ab")
