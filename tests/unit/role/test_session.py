"""What a user's function sees of itself; the parts of a session have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_train.roles import AddressBook

# Who it is


def test_who_it_is(session):
    one = session("worker", 1, counts={"ps": 1, "worker": 3}, attempt=2, peers=AddressBook(ps=["h:1"]))
    assert (one.role, one.rank, one.size, one.attempt) == ("worker", 1, 3, 2)
    assert (one.peers, one.scratch, one.global_rows) == ({"ps": ["h:1"]}, Path("scratch"), 0)
    assert repr(one) == "<Session of worker 1, one of 3, attempt 2>"
    assert repr(session("worker", 0, counts={"worker": 1})) == "<Session of worker 0, one of 1>"


@pytest.mark.parametrize(
    ("counts", "training", "chief"),
    [
        ({"ps": 1, "worker": 2}, ("worker",), "worker/0"),
        ({"worker": 2, "chief": 1}, ("chief", "worker"), "chief/0"),
        ({"explorer": 2, "learner": 1}, ("explorer", "learner"), "explorer/0"),
        ({"ps": 1, "learner": 2}, ("learner",), "learner/0"),
    ],
)
def test_one_role_of_a_run_is_the_chief(counts, training, chief, session):
    chiefs = [
        f"{role}/{rank}"
        for role, count in counts.items()
        for rank in range(count)
        if session(role, rank, counts=counts, training=training).is_chief
    ]
    assert chiefs == [chief]


@pytest.mark.parametrize(
    ("counts", "training", "ranks"),
    [
        ({"worker": 2, "chief": 1, "ps": 1}, ("chief", "worker"), {"chief/0": 0, "worker/0": 1, "worker/1": 2}),
        ({"learner": 2, "ps": 1}, ("learner",), {"learner/0": 0, "learner/1": 1}),
    ],
)
def test_ranks_over_all_that_train(counts, training, ranks, session):
    keys = [(role, rank) for role, count in counts.items() for rank in range(count)]
    each = {f"{role}/{rank}": session(role, rank, counts=counts, training=training) for role, rank in keys}
    assert {key: one.world_rank for key, one in each.items()} == dict.fromkeys(each) | ranks
    assert {one.world_size for one in each.values()} == {len(ranks)}
    with pytest.raises(ValueError, match=r"ps 0 takes part in no collective call: they are of the roles that train"):
        each["ps/0"].barrier()


# What it is given


def test_a_role_without_data(session):
    with pytest.raises(ValueError, match=r"'scorer' was given no data. Pass it: train\(..., data={'scorer': \(X, y\)}"):
        session("scorer", counts={"scorer": 1}).batches()


# What frameworks add


def test_extras_are_there_and_made_when_they_are_asked_for(session):
    made = []
    one = session(extras={"cluster_spec": {"ps": ["h:1"]}, "server": lambda: made.append(1) or "the server"})
    assert (one.cluster_spec, made) == ({"ps": ["h:1"]}, [])
    assert [one.server, one.server, made] == ["the server", "the server", [1]]
    assert session(extras={"total": lambda: max}).total(1, 2) == 2, "what is made may be a function, too"
    with pytest.raises(AttributeError, match="Did you mean 'num_rows'"):
        one.num_row  # noqa: B018 - it raises
    with pytest.raises(AttributeError, match=r"gives nothing. It is there with framework='tensorflow'"):
        _ = session().server
