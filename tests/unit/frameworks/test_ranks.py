"""Ranks are numbered over chiefs and workers, chiefs first."""

from __future__ import annotations

import pytest

from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.ranks import first_address, num_ranks, rank_of
from dask_train.roles import AddressBook


@pytest.mark.parametrize("counts", [{"chief": 1, "worker": 2}, {"worker": 3}, {"worker": 2, "ps": 1, "chief": 1}])
def test_each_has_a_number_of_its_own_and_the_first_one_is_met(counts):
    roles = [(role, rank) for role, count in counts.items() if role != "ps" for rank in range(count)]
    book = AddressBook({role: [f"{role}:{rank}" for rank in range(count)] for role, count in counts.items()})
    numbers = {
        rank_of(RoleInfo(role=role, rank=rank, counts=counts, host="here", num_threads=1)): f"{role}:{rank}"
        for role, rank in roles
    }
    assert sorted(numbers) == [*range(num_ranks(counts))] == [0, 1, 2]
    assert numbers[0] == first_address(book, counts)


def test_who_does_not_train_has_none():
    assert num_ranks({"ps": 2, "scorer": 1}) == 0
