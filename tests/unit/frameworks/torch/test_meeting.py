"""Groups that a loop makes itself, at the run's store, by a stand-in for torch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from dask_train.frameworks.torch.meeting import Meetings, hint


class Group:
    """A process group that has begun so many collectives, or is being taken down."""

    def __init__(self, num_collectives):
        self.num_collectives = num_collectives

    def _get_sequence_number_for_group(self):
        if self.num_collectives is None:
            raise RuntimeError("Invalid process group")
        return self.num_collectives


@pytest.fixture
def torch(monkeypatch):
    """torch's handlers, groups and hooks of optimizers."""
    made = SimpleNamespace(handlers={"env": "torch's own"}, hooks=[], groups={}, is_up=True)

    def register(hook):
        made.hooks.append(hook)
        return SimpleNamespace(remove=lambda: made.hooks.remove(hook))

    world = SimpleNamespace(_world=SimpleNamespace(pg_map=made.groups))
    distributed = SimpleNamespace(
        PrefixStore=lambda prefix, store: (prefix, store), distributed_c10d=world, is_initialized=lambda: made.is_up
    )
    modules = {
        "torch": SimpleNamespace(distributed=distributed),
        "torch.distributed": distributed,
        "torch.distributed.rendezvous": SimpleNamespace(_rendezvous_handlers=made.handlers),
        "torch.optim": SimpleNamespace(),
        "torch.optim.optimizer": SimpleNamespace(register_optimizer_step_post_hook=register),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_each_group_meets_under_keys_of_its_own(torch):
    with Meetings("store", 1, 3).instead_of_torchs():
        meet = torch.handlers["env"]
        assert next(meet("env://", timeout=5)) == (("group/1", "store"), 1, 3)
        second = meet("env://?rank=1&world_size=3")
        assert next(second) == (("group/2", "store"), 1, 3)
        with pytest.raises(RuntimeError, match="The ranks have met already"):
            next(second)


@pytest.mark.parametrize("asked", ["rank=0", "world_size=2", "rank=0&world_size=1"])
def test_a_group_of_others_is_refused(torch, asked):
    with (
        Meetings("store", 1, 3).instead_of_torchs(),
        pytest.raises(ValueError, match="in rank 1 of 3: the default group"),
    ):
        next(torch.handlers["env"](f"env://?{asked}"))


def test_torch_is_as_it_was_afterwards(torch):
    with Meetings("store", 0, 1).instead_of_torchs():
        assert len(torch.hooks) == 1
    assert (torch.handlers, torch.hooks) == ({"env": "torch's own"}, [])


@pytest.mark.parametrize(
    ("num_ranks", "has_stepped", "groups", "is_up", "apart"),
    [
        (2, True, [0, 0], True, True),
        (2, True, [0, 4], True, False),
        (2, False, [0], True, False),
        (1, True, [0], True, False),
        (2, True, [], False, False),
    ],
)
def test_who_has_trained_apart(torch, num_ranks, has_stepped, groups, is_up, apart):
    torch.groups.update({Group(num): None for num in groups})
    torch.is_up = is_up
    meetings = Meetings("store", 0, num_ranks)
    with meetings.instead_of_torchs():
        for hook in torch.hooks * has_stepped:
            hook("optimizer", (), {})
    assert bool(meetings.trained_apart()) == apart
    assert meetings.num_collectives() == sum(groups)


@pytest.mark.parametrize("num_groups", [0, 1])
def test_who_is_to_make_a_group_and_has_made_none_has_trained_apart(torch, num_groups):
    torch.is_up = False  # there is none, or it is gone by now
    meetings = Meetings("store", 0, 2, makes_group=False)
    with meetings.instead_of_torchs():
        for _ in range(num_groups):
            next(torch.handlers["env"]("env://"))
        torch.hooks[0]("optimizer", (), {})
    assert meetings.trained_apart() == (num_groups == 0)


def test_a_group_that_is_taken_down_counts_nothing(torch):
    torch.groups[Group(None)] = None
    assert Meetings("store", 0, 2).num_collectives() == 0


@pytest.mark.parametrize(
    ("said", "what_to_do"),
    [
        ("trying to initialize the default process group twice!", "Leave init_process_group"),
        ("The server socket has failed to listen: EADDRINUSE", "MASTER_PORT"),
        ("The value does not match the world size (2)", "Leave devices= and num_nodes= out"),
        ("CUDA out of memory", ""),
    ],
)
def test_what_to_do_about_errors_of_loops_for_other_launchers(said, what_to_do):
    found = hint(RuntimeError(said))
    assert what_to_do in found
    assert bool(found) == bool(what_to_do)
