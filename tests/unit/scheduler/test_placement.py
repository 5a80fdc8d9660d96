"""Where roles go."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dask_train.scheduler import placement
from dask_train.scheduler.placement import Capacity, never, why_waiting


def place(needs: list[dict[str, float]], rooms: list[Capacity], **more: int) -> list[str] | None:
    """The addresses of the places."""
    found = placement.place(needs, rooms, **more)
    return None if found is None else [each.address for each in found]


def room(
    address: str, threads: int = 2, *, host: str = "h", used: int = 0, why_not: str = "", **gpus: float
) -> Capacity:
    """A Dask worker; ``left`` of its ``declared`` GPUs."""
    declared = {"GPU": gpus["declared"]} if "declared" in gpus else {}
    left = {"GPU": gpus.get("left", gpus["declared"])} if declared else {}
    return Capacity(address, host, threads, used=used, resources=left, declared=declared, why_not=why_not)


def roles(count: int, **needs: float) -> list[dict[str, float]]:
    return [dict(needs) for _ in range(count)]


# Which


def test_spread_first_then_filled_up_to_the_threads():
    rooms = [room("a", 1), room("b", 2), room("c", 3)]
    assert place(roles(3), rooms) == ["c", "b", "a"]
    assert place(roles(6), rooms) == ["c", "b", "a", "c", "b", "c"]


def test_over_hosts_before_over_dask_workers_of_one():
    rooms = [room("a", host="one"), room("b", host="one"), room("c", host="two")]
    assert place(roles(3), rooms) == ["a", "c", "b"]


def test_a_host_counts_with_what_it_carries_already():
    rooms = [room("a", host="one"), room("b", host="one", used=1), room("c", host="two")]
    assert place(roles(1), rooms) == ["c"]


def test_on_a_host_where_there_is_room_and_elsewhere_where_there_is_none():
    rooms = [room("a", 2, host="one"), room("b", 1, host="two"), room("c", 1, host="two", used=1)]
    assert place(roles(2), rooms, hosts=["two", "two"]) == ["b", "a"]
    assert place(roles(2), rooms, hosts=["", "three"]) == ["a", "b"]


def test_of_dask_workers_that_are_as_good_the_one_of_before():
    rooms = [room("a"), room("b"), room("c")]
    assert place(roles(2), rooms, before=["c", "b"]) == ["c", "b"]
    assert place(roles(2), rooms, before=["", "gone"]) == ["a", "b"]
    assert place(roles(2), [room("a"), room("b", used=1), room("c", 3)], before=["b", "a"]) == ["c", "a"]


def test_of_dask_workers_that_carry_as_much_one_of_a_near_host():
    rooms = [room("a", host="one", used=1), room("b", host="one"), room("c", host="two")]
    assert place(roles(1), rooms) == ["c"], "over hosts first"
    for each in rooms:
        each.is_near = each.host == "one"
    assert place(roles(2), rooms) == ["b", "c"]


def test_what_is_used_is_not_given_again():
    assert place(roles(1), [room("a", 1, used=1), room("b", 1)]) == ["b"]
    assert place(roles(1), [room("a", 1, used=1)]) is None


def test_a_dask_worker_that_takes_none():
    assert place(roles(1), [room("a", why_not="is paused"), room("b", 1)]) == ["b"]
    assert place(roles(3), [room("a", why_not="is paused"), room("b")]) is None, "nor is it shared meanwhile"


def test_resources():
    rooms = [room("a", 4, declared=1), room("b", 4, declared=2), room("c", 4)]
    assert sorted(place(roles(3, GPU=1), rooms)) == ["a", "b", "b"]
    assert place(roles(4, GPU=1), rooms) is None
    assert place(roles(1, GPU=2), [room("a", 4, declared=2, left=1)]) is None
    assert rooms[1].resources == {"GPU": 2}, "nothing is taken yet"


def test_roles_with_and_without_needs():
    rooms = [room("a", 1, declared=1), room("b", 1)]
    assert place([{"GPU": 1}, {}], rooms) == ["a", "b"]


# Sharing


def test_a_cluster_that_is_too_small_is_shared_evenly():
    assert Counter(place(roles(6), [room("a", 1), room("b", 1)])) == {"a": 3, "b": 3}
    assert Counter(place(roles(5), [room("a", 3), room("b", 1)]))["b"] == 2


def test_never_beside_another_run():
    assert place(roles(6), [room("a", 1, used=1), room("b", 1)]) is None
    assert place(roles(1), [room("a", 1, used=1)]) is None


def test_a_role_that_starts_again_shares_with_its_own_run():
    rooms = [room("a", 1, used=2), room("b", 1, used=1)]
    assert place(roles(1), rooms, own=3) == ["b"]
    assert place(roles(1), rooms, own=2) is None, "another run's is there"
    assert place(roles(1), [room("a", 3, used=3)], own=3) == ["a"]
    assert place(roles(1), [room("a", 3, used=3), room("b", 1, why_not="is paused")], own=3) is None


def test_resources_are_never_shared():
    assert place(roles(3, GPU=1), [room("a", 1, declared=2)]) is None


# Whatever the cluster

ROOMS = st.lists(
    st.builds(
        lambda threads, host, used, declared, left, why_not: Capacity(
            "",
            host,
            threads,
            used=used,
            resources={"GPU": min(left, declared)},
            declared={"GPU": declared},
            why_not=why_not,
        ),
        st.integers(1, 4),
        st.sampled_from("xy"),
        st.integers(0, 4),
        st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from(["", "", "", "is paused"]),
    ),
    max_size=5,
)
NEEDS = st.lists(st.sampled_from([{}, {}, {"GPU": 1.0}, {"GPU": 2.0}]), min_size=1, max_size=12)


@given(NEEDS, ROOMS)
def test_all_or_none_and_nothing_beyond_what_there_is(needs, rooms):
    for number, one in enumerate(rooms):
        one.address = str(number)
    found = place(needs, rooms)
    by_address = {one.address: one for one in rooms}
    shared = len(needs) > sum(one.threads for one in rooms) and not any(one.used for one in rooms)
    if found is None:
        free = sum(max(0, one.threads - one.used) for one in rooms if not one.why_not)
        assert any(needs) or not any(not one.why_not for one in rooms) or not shared
        assert any(needs) or len(needs) > free
        return
    assert len(found) == len(needs)
    counts = Counter(found)
    for address, count in counts.items():
        one = by_address[address]
        assert not one.why_not
        assert shared or one.used + count <= one.threads
        taken = sum(need.get("GPU", 0) for need, where in zip(needs, found, strict=True) if where == address)
        assert taken <= one.resources["GPU"]
    if not any(needs) and not shared:
        empty = [one.address for one in rooms if not (one.why_not or one.used)]
        assert max(counts.get(address, 0) for address in counts) == 1 or set(empty) <= set(counts), "spread first"
    assert not never(needs, rooms), "what can be placed now can be placed"


# In words


def test_what_can_never_be():
    rooms = [room("a", 8, declared=1), room("b", 8)]
    assert never(roles(2), rooms) == ""
    assert never(roles(1, GPU=1), rooms) == ""
    assert never(roles(1, GPU=2), rooms) == "no Dask worker declares GPU=2"
    assert never(roles(1, FPGA=0.5), rooms) == "no Dask worker declares FPGA=0.5"
    assert never(roles(2, GPU=1), rooms) == "the roles need 2 GPU in all, and the Dask workers declare 1"
    assert never(roles(1, GPU=1), []) == "", "Dask workers may come"
    assert never(roles(1, GPU=1), [room("a", declared=1, left=0)]) == "", "what uses it may end"


def test_for_what_it_waits():
    assert why_waiting(roles(1), [], {}) == "There is no Dask worker."
    rooms = [room("a", 2, used=1), room("b", 2, why_not="is paused (memory at 84%)")]
    assert why_waiting(roles(3), rooms, {"a": "carries 1 role of run-1"}) == (
        "3 roles need as many free threads, and 1 of 4 are free. a carries 1 role of run-1. "
        "b is paused (memory at 84%)."
    )
    assert why_waiting(roles(5), rooms[:1], {}) == "5 roles share 2 threads once nothing else uses them."
    assert "0 GPU left." in why_waiting(roles(1, GPU=1), [room("a", declared=1, left=0)], {})


def test_a_large_cluster_is_not_listed_in_full():
    rooms = [room(f"w{number}", why_not="is paused") for number in range(100)]
    assert why_waiting(roles(1), rooms, {}).count("is paused") == 5
