"""What calls of a module change of its parameters: what a newcomer is given of it, and what it can't be given."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from dask_train.fitting.torch_module.changed_by_calls import ChangedByCalls
from dask_train.trainers.common.rank_state import RankState


class Followed(torch.nn.Module):
    """Has a teacher that begins as what it follows, a count in an extra state, and weights that nothing changes."""

    def __init__(self, *, cuts=False):
        super().__init__()
        self.linear, self.calls, self.cuts = torch.nn.Linear(2, 2), 0, cuts
        self.teacher = copy.deepcopy(self.linear).requires_grad_(False)
        self.fixed = torch.nn.Linear(2, 2).bfloat16().requires_grad_(False)

    def forward(self, x):
        self.calls += 1
        with torch.no_grad():
            self.teacher.weight.lerp_(self.linear.weight, 0.1)
            if self.cuts:
                self.linear.bias.clamp_(max=0.0)
        return self.linear(x) - self.teacher(x)

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


class AgainError(Exception):
    """All start again."""


class Loop:
    def __init__(self):
        self.told = []

    def mirror_no_more(self, why):
        self.told.append(why)

    def start_all_again(self, why):
        raise AgainError(why)


class Rank:
    def __init__(self, module):
        self.module, self.loop, self.state = module, Loop(), RankState()
        self.changed = ChangedByCalls(module, self.loop)
        self.changed.keep(self.state)

    def step(self):
        """Return what is mirrored before the optimizer changes what is trained."""
        self.changed.before_calls()
        self.module(torch.ones(1, 2))
        self.changed.after_calls()
        mirrored = pickle.dumps(self.state.take_mirrored())
        with torch.no_grad():
            self.module.linear.weight += 1
            self.module.linear.bias += 1
        return mirrored


def test_a_newcomer_gets_what_calls_change_as_it_was_before_the_next_call():
    rank, newcomer = Rank(Followed()), Rank(Followed())
    rank.step()
    mirrored = rank.step()
    wanted = copy.deepcopy(rank.module.state_dict())
    rank.step()
    newcomer.module.load_state_dict(rank.module.state_dict())  # of one that waits in its next step
    assert not torch.equal(newcomer.module.teacher.weight, wanted["teacher.weight"])
    newcomer.state.restore_mirrored(pickle.loads(mirrored))
    assert torch.equal(newcomer.module.teacher.weight, wanted["teacher.weight"])
    assert newcomer.module.calls == 2
    assert len(pickle.loads(mirrored)[1]["changed by calls"]["values"]) == 1, "nothing of what stays as it is"
    newcomer.step()
    assert newcomer.loop.told == rank.loop.told == []


def test_who_is_lost_before_it_is_known_what_calls_change_is_not_replaced():
    mirrored = Rank(Followed()).step()
    with pytest.raises(AgainError, match="within the first 2 steps"):
        Rank(Followed()).state.restore_mirrored(pickle.loads(mirrored))


def test_where_calls_change_what_is_trained_nothing_is_mirrored_any_more():
    rank = Rank(Followed(cuts=True))
    for _ in range(3):
        rank.step()
    (told,) = rank.loop.told
    assert told == "parameter 'linear.bias' is trained, and changed where the module is called."
