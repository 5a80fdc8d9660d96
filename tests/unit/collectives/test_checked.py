"""Any arrays, any calls: ranks as threads on one host and on several, through real shared memory and sockets."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, closing

import numpy as np
import pytest

from dask_train.collectives import announcements as announcements_module
from dask_train.collectives import checked as checked_module
from dask_train.collectives.checked import CheckedCollectives
from dask_train.collectives.hosts import Hosts
from dask_train.collectives.process_group import ProcessGroup
from dask_train.collectives.reductions import Reduction
from dask_train.collectives.rendezvous import meet
from dask_train.collectives.ring import Ring
from dask_train.errors import StalledError
from dask_train.frameworks.ports import hold_port
from dask_train.transport.connections import Credentials

KNOWN = Credentials(key=b"run")


def together(do, size=2, hosts=1, timeout_s=60.0):
    """What ``do(collectives, rank)`` returns or raises on each rank; the ranks of a host follow each other."""
    with ExitStack() as stack:
        ports = [stack.enter_context(hold_port()).getsockname()[1] for _ in range(size)]
        addresses = [f"127.0.0.{1 + rank * hosts // size}:{port}" for rank, port in enumerate(ports)]
        among, found = Hosts.of(addresses), {}
        assert len(among.groups) == hosts

        def take_part(rank):
            with ExitStack() as opened:
                memory, across = meet(among, rank, KNOWN.key, 60.0), None
                if hosts > 1 and rank in among.leaders:
                    leaders = [addresses[leader] for leader in among.leaders]
                    ring = Ring(leaders, among.leaders.index(rank), KNOWN, timeout_s)
                    across = opened.enter_context(closing(ring))
                group = ProcessGroup(among, rank, memory, across, timeout_s)
                names = [f"worker {each}" for each in range(size)]
                each = opened.enter_context(closing(CheckedCollectives(group, names)))
                try:
                    found[rank] = do(each, rank)
                except Exception as error:
                    found[rank] = error

        threads = [threading.Thread(target=take_part, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    return [found[rank] for rank in range(size)]


PLACES = pytest.mark.parametrize(("size", "hosts"), [(1, 1), (3, 1), (5, 3)])
FITS = [(), (0,), (7,), (3, 2)]  # in an announcement
LARGE = [(1500,), (0, 3), (), (40, 70)]  # in all not


def some(rank, shape, dtype):
    """Values of a rank, as they come; of floats a few odd ones."""
    values = np.random.default_rng(rank).normal(size=shape) * 50
    if np.dtype(dtype).kind == "u":
        values = np.abs(values) % 20
    if np.dtype(dtype).kind == "f" and values.size > 6:
        values.reshape(-1)[:5] = [-0.0, np.inf, 1e-310, 0.1 * rank, np.nan if rank == 1 else 3.0]
    return np.asarray(values).astype(dtype)


@PLACES
@pytest.mark.parametrize("shapes", [FITS, LARGE])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_reductions_of_any_dtype(size, hosts, shapes, op):
    kinds = ["f4", "f8", "f2", "i8", "u1", "i2"] + (["?"] if op in ("max", "min") else ["c16"])

    def reduce(each, rank):
        return {kind: each.all_reduce([some(rank, shape, kind) for shape in shapes], Reduction(op)) for kind in kinds}

    with np.errstate(invalid="ignore", over="ignore"):
        found = together(reduce, size, hosts)
        how = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[op]
        for kind in kinds:
            for number, shape in enumerate(shapes):
                stacked = np.stack([some(rank, shape, kind) for rank in range(size)])
                wanted = np.asarray(how(stacked.astype("f8") if kind == "f2" else stacked, axis=0))
                for its in found:
                    result = its[kind][number]
                    assert result.shape == shape
                    assert result.dtype == ("f8" if op == "mean" and kind in ("i8", "u1", "i2") else kind)
                    assert result.tobytes() == found[0][kind][number].tobytes(), "the same bits on all ranks"
                    tolerance = {"f4": 1e-5, "f2": 0.2}.get(kind, 1e-12)
                    np.testing.assert_allclose(result, wanted.astype(result.dtype), rtol=tolerance, atol=tolerance)


def test_a_sum_of_bits_that_do_not_cancel_alike_is_the_same_everywhere():
    values = [1e16, 1.0, -1e16, 1.0, 1.0]
    for shape in ((), (3000,)):
        found = together(
            lambda each, rank, of=shape: each.all_reduce([np.full(of, values[rank])], Reduction("sum")), 5, 3
        )
        assert len({its[0].tobytes() for its in found}) == 1


def test_infinity_stays_infinity_among_complex_numbers():
    for size in (2, 3000):
        values = np.full(size, complex(np.inf, 0))
        for (total,) in together(lambda each, rank, of=values: each.all_reduce([of], Reduction("sum"))):
            assert (total.real == np.inf).all()
            assert (total.imag == 0).all()


def test_dtypes_of_a_list_may_differ():
    for size in (3, 4000):
        for totals in together(
            lambda each, rank, n=size: each.all_reduce(
                [np.ones(n, "f4"), np.full(n, rank), np.ones(2)], Reduction("sum")
            )
        ):
            assert [(total.dtype.str, total[0]) for total in totals] == [("<f4", 2), ("<i8", 1), ("<f8", 2)]


@PLACES
def test_broadcast_from_any_rank(size, hosts):
    given = [np.array(["tcp://10.0.0.1:123", "é"], "U20"), np.array([np.nan, -0.0]), np.datetime64("2026-01-01", "s")]

    def broadcast(each, rank):
        mine = [np.asarray(array) if rank == root else np.zeros_like(array) for array in [*given, large]]
        return each.broadcast(mine, root)

    for root in range(size):
        for large in (np.array(1), np.random.default_rng(root).normal(size=(90, 100))):
            for its in together(broadcast, size, hosts):
                for result, array in zip(its, [*given, large], strict=True):
                    assert (result.tobytes(), result.dtype, result.shape) == (
                        array.tobytes(),
                        array.dtype,
                        np.shape(array),
                    )


@PLACES
def test_rows_of_all_ranks_in_their_order(size, hosts):
    def rows(rank, turn):
        count = [0, 2, 900, 1][(rank + turn) % 4]
        return [
            np.full((count, 3), rank + turn / 8, "f4"),
            np.arange(count + 1) * rank,
            np.full(count, f"r{rank}", "U5"),
        ]

    found = together(lambda each, rank: [each.all_gather(rows(rank, turn)) for turn in range(4)], size, hosts)
    for its in found:
        for turn in range(4):
            wanted = [np.concatenate(each) for each in zip(*(rows(rank, turn) for rank in range(size)), strict=True)]
            for result, array in zip(its[turn], wanted, strict=True):
                np.testing.assert_array_equal(result, array)
                assert result.dtype == array.dtype


@PLACES
@pytest.mark.parametrize("number", [448, 449, 1000])
def test_rows_of_many_arrays(size, hosts, number):
    def gather(each, rank):
        arrays = [np.full((1 + (rank + at) % 3, 2), 1000 * rank + at) for at in range(number)]
        gathered, _ = each.all_gather(arrays), each.barrier()
        return arrays, gathered

    found = together(gather, size, hosts)
    wanted = [np.concatenate(rows) for rows in zip(*(arrays for arrays, _ in found), strict=True)]
    for _, gathered in found:
        assert len(gathered) == number
        for rows, its in zip(wanted, gathered, strict=True):
            np.testing.assert_array_equal(rows, its)


def test_rows_of_one_rank_are_copied_without_shared_memory():
    rows = np.arange(5000.0)

    def do(each, rank):
        before = each._group.top
        (found,) = each.all_gather([rows])
        return found, each._group.top - before

    ((found, taken),) = together(do, 1)
    np.testing.assert_array_equal(found, rows)
    assert not np.shares_memory(found, rows)
    assert taken == 0


def test_memory_is_used_again_and_results_are_kept(monkeypatch):
    monkeypatch.setattr(checked_module, "KEPT_BYTES", 1 << 18)

    def do(each, rank):
        kept = [each.all_reduce([np.full(5000 + turn, rank + turn)], Reduction("sum"))[0] for turn in range(40)]
        assert each._group.top < 1 << 20
        return [(total.min(), total.max()) for total in kept]

    assert together(do) == [[(2 * turn + 1, 2 * turn + 1) for turn in range(40)]] * 2


def test_many_kinds_of_arrays_take_few_descriptors(monkeypatch):
    monkeypatch.setattr(checked_module, "KEPT_CHANNELS", 4)

    def do(each, rank):
        before = len(os.listdir("/proc/self/fd"))
        kept = [each.all_reduce([np.full(5000 + turn, rank + turn)], Reduction("sum"))[0] for turn in range(40)]
        assert len(os.listdir("/proc/self/fd")) < before + 30, "both ranks are in this process"
        return [(total.min(), total.max()) for total in kept]

    assert together(do) == [[(2 * turn + 1, 2 * turn + 1) for turn in range(40)]] * 2


CALLS = {
    "another shape": lambda each: each.all_reduce([np.zeros(4)], Reduction("sum")),
    "another dtype": lambda each: each.all_reduce([np.zeros(3, "f4")], Reduction("sum")),
    "another operation": lambda each: each.all_reduce([np.zeros(3)], Reduction("max")),
    "more arrays": lambda each: each.all_reduce([np.zeros(3), np.zeros(3)], Reduction("sum")),
    "another call": lambda each: each.broadcast([np.zeros(3)], 0),
    "a large one": lambda each: each.all_reduce([np.zeros(30_000)], Reduction("sum")),
    "rows": lambda each: each.all_gather([np.zeros(3)]),
    "no arrays": lambda each: each.barrier(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("size", "hosts"), [(2, 1), (3, 2), (4, 2)])
def test_who_makes_another_call_is_told_on_all_ranks(name, size, hosts):
    def do(each, rank):
        return CALLS[name](each) if rank == size - 1 else each.all_reduce([np.zeros(3)], Reduction("sum"))

    *others, last = together(do, size, hosts)
    for error in others:
        assert isinstance(error, ValueError)
        assert f"calls all_reduce(op='sum') of float64 (3,), and worker {size - 1} calls" in str(error)
    assert str(last).startswith(f"worker {size - 1} calls")
    assert "and worker 0 calls all_reduce(op='sum') of float64 (3,)." in str(last)


@pytest.mark.parametrize(("size", "hosts"), [(2, 1), (4, 2)])
def test_nobody_waits_for_one_that_has_returned(size, hosts):
    def do(each, rank):
        each.barrier()
        if rank != size - 1:
            each.barrier()

    *others, last = together(do, size, hosts)
    assert last is None
    for error in others:
        assert f"calls barrier(), and worker {size - 1} has returned: it takes part in no call any more." in str(error)


def test_the_leader_of_a_host_returns():
    # The last rank waits as long for the leader of its host, which has failed.
    found = together(lambda each, rank: each.barrier() if rank else None, 4, 2, timeout_s=5.0)
    assert found[0] is None
    assert "worker 0 has returned" in str(found[1])
    assert isinstance(found[2], StalledError), "its host has lost its way to the others"


def test_one_that_does_not_come():
    left = threading.Event()

    def do(each, rank):
        if rank:
            left.wait(60)
        else:
            try:
                each.barrier()
            finally:
                left.set()

    first, _ = together(do, timeout_s=0.3)
    assert "Rank 1 did not come to where rank 0 waits for the others, for 0.3 s" in str(first)


def test_after_an_error_nothing_is_garbage():
    def do(each, rank):
        with pytest.raises(ValueError, match="and worker"):
            each.all_reduce([np.zeros(3 + rank)], Reduction("sum"))
        return each.all_reduce([np.zeros(3)], Reduction("sum"))

    for error in together(do):
        assert "An earlier collective call of this role has failed: worker" in str(error)


def test_calls_with_long_texts_are_compared_whole():
    def do(each, rank):
        return each.all_reduce([np.zeros(2)] * 200 + [np.zeros(2 + rank)], Reduction("sum"))

    assert announcements_module.PAGE_BYTES == 4096
    assert all("..." in str(error) for error in together(do))


@pytest.mark.parametrize(
    ("op", "array", "error"),
    [
        ("sum", np.zeros(3, bool), r"op='sum'\) was given an array of bool. Pass x.astype\(int\)"),
        ("max", np.zeros(3, complex), "of complex128. Pass numbers"),
        ("sum", np.array(["a"]), "of <U1. Pass numbers"),
        ("min", np.array(["2026-01-01"], "M8[s]"), r"datetime64\[s\]. Pass numbers"),
    ],
)
def test_dtypes_that_have_no_such_reduction(op, array, error):
    (found,) = together(lambda each, rank: each.all_reduce([array], Reduction(op)), 1)
    assert isinstance(found, TypeError)
    with pytest.raises(TypeError, match=error):
        raise found


def test_a_sum_that_does_not_fit_is_no_other_number():
    for size in (3, 9000):
        for error in together(lambda each, rank, n=size: each.all_reduce([np.full(n, 100, "i1")], Reduction("sum"))):
            assert isinstance(error, OverflowError)
            assert "all_reduce(op='sum') of int8 came to 200 to 200, and int8 holds -128 to 127" in str(error)


@pytest.mark.parametrize("op", ["product", "SUM", None, ["sum"]])
def test_other_operations(op):
    with pytest.raises(ValueError, match="it is 'sum', 'mean', 'max' or 'min'"):
        Reduction(op)


def test_roots_and_rows_that_there_are_not():
    (error,) = together(lambda each, rank: each.broadcast([np.zeros(1)], 1), 1)
    assert "root is 1; the ranks are 0 to 0" in str(error)
    (error,) = together(lambda each, rank: each.all_gather([np.zeros(())]), 1)
    assert "an array without rows, of shape ()" in str(error)
