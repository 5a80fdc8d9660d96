"""Each GPU is given out once, unless the roles of one run may share."""

from __future__ import annotations

from dask_train.scheduler.devices import DeviceRequest, DeviceRoom, Offer
from dask_train.scheduler.placement import Capacity, RolePlace, place

ROLES = frozenset({"worker"})


def request(*, may_share: bool = False, **offers: tuple[str, int]) -> DeviceRequest:
    """Offers by Dask worker: a letter for each device, and how many its roles may use."""
    return DeviceRequest(ROLES, may_share, {name: Offer(tuple(seen), most) for name, (seen, most) in offers.items()})


def placed(count: int, asked: DeviceRequest, threads: int = 4, **room) -> list[RolePlace] | None:
    workers = [Capacity(address, "h", threads) for address in asked.offers]
    room = DeviceRoom(asked, **room)
    return place([{}] * count, workers, devices=room, with_device=[True] * count)


def test_each_role_has_one_of_its_own():
    assert placed(3, request(a=("xyz", 3))) == [("a", "x"), ("a", "y"), ("a", "z")]
    assert placed(4, request(a=("xyz", 3))) is None


def test_dask_workers_that_see_the_same_devices_do_not_give_one_twice():
    assert sorted(placed(2, request(a=("xy", 2), b=("xy", 2)))) == [("a", "x"), ("b", "y")]
    assert placed(3, request(a=("xy", 2), b=("xy", 2))) is None


def test_dask_cudas_rotations_give_each_dask_worker_its_own():
    rotations = request(a=("xyz", 3), b=("yzx", 3), c=("zxy", 3))
    assert sorted(placed(3, rotations, threads=1)) == [("a", "x"), ("b", "y"), ("c", "z")]


def test_a_declared_number_is_the_most_that_a_dask_worker_uses():
    assert sorted(placed(2, request(a=("xy", 1), b=("xy", 1)))) == [("a", "x"), ("b", "y")]
    assert placed(2, request(a=("xy", 1))) is None
    assert placed(2, request(may_share=True, a=("xy", 1))) == [("a", "x"), ("a", "x")]


def test_roles_that_may_share_are_spread_over_the_devices_first():
    found = placed(5, request(may_share=True, a=("xy", 2), b=("z", 1)), threads=8)
    assert [sum(each.device == device for each in found) for device in "xyz"] == [2, 1, 2]


def test_a_device_of_another_run_is_not_given_even_to_be_shared():
    held = frozenset("x")
    assert placed(1, request(may_share=True, a=("x", 1)), of_others=held) is None
    assert placed(1, request(a=("xy", 2)), of_others=held) == [("a", "y")]


def test_a_role_without_a_device_goes_anywhere_and_takes_none():
    asked = request(a=("x", 1))
    workers = [Capacity("a", "h", 2), Capacity("b", "h", 2)]
    found = place([{}, {}, {}], workers, devices=DeviceRoom(asked), with_device=[False, True, False])
    assert [each.device for each in found] == ["", "x", ""]
    assert found[1].address == "a"


def test_what_is_given_is_taken_from_a_copy():
    room = DeviceRoom(request(a=("x", 1)))
    place([{}], [Capacity("a", "h", 1)], devices=room, with_device=[True])
    assert (dict(room.num_roles), room.in_use) == ({}, {})


def test_what_can_never_be_is_told_in_words():
    assert request().never(1, ["a"]).startswith("no Dask worker sees a GPU")
    assert request(a=("", 0)).never(1, ["a"]).startswith("no Dask worker sees a GPU")
    one = request(a=("x", 1), b=("x", 1))
    assert one.never(2, ["a", "b"]) == "2 roles need a GPU each, and the Dask workers have 1 GPU"
    assert one.never(1, ["a", "b"]) == ""
    assert request(a=("xyz", 2)).never(3, ["a"]) == "3 roles need a GPU each, and the Dask workers have 2 GPUs"
    assert request(may_share=True, a=("x", 1)).never(9, ["a"]) == ""
    assert request(a=("x", 1)).never(1, ["b"]).startswith("no Dask worker sees a GPU"), "another one's"


def test_what_a_driver_sends_is_read():
    plain = {"roles": ["worker"], "may_share": True, "offers": {"a": [["x", "y"], 2]}}
    assert DeviceRequest.of(plain) == request(may_share=True, a=("xy", 2))
    assert DeviceRequest.of(None) == DeviceRequest()
