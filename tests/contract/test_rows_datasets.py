"""A part of a data set as TensorFlow's and torch's data sets, each in a process of its own."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

DEADLINE_S = 100


def run(program: Callable[[], None]) -> None:
    """Run ``part`` and the body of a function in a fresh process: TensorFlow and torch can't share one.

    There are no garbage collections, which would be a quarter of the time that imports take.
    """
    source = (
        "".join(map(inspect.getsource, (part, large_part, own_bytes)))
        + textwrap.dedent(inspect.getsource(program))
        + f"\nimport gc; gc.disable()\n{program.__name__}()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"from __future__ import annotations\n{source}"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def part(features: Any = None, label: Any = None, shard: Any = None, names: Any = ("x", "a", "text")) -> Any:
    """Rows 0 to 40 over 5 partitions in 2 pools, one of them empty: ``x`` (n, 3) int16, ``a`` int64, ``text``."""
    import numpy as np

    from dask_train.data.borrowing import borrow
    from dask_train.data.columns import Columns
    from dask_train.data.part import Part, shard_of
    from dask_train.data.pool import Pool
    from dask_train.data.rows import Rows, held_by
    from dask_train.data.segment import Segment
    from dask_train.data.selection import select

    pools, segments, found, descriptors = [Pool(), Pool()], [], [], []
    lengths, first = np.array([7, 0, 20, 1, 13]), 0
    for number, length in enumerate(lengths):
        a = np.arange(first, first + length)
        first += length
        columns = [np.stack([a, a, a], 1).astype("i2"), a, a.astype("U2")]
        segments.append(Segment(columns[: len(names)] if names else columns[:1], pools[number % 2]))
        if length:
            descriptors.append(borrow([segments[-1].place]))
            found.append((number, len(descriptors) - 1, segments[-1].place))
    part.kept = segments
    schema = Columns(columns=segments[0].columns, names=names, is_tuple=False)
    rows = Rows(schema, lengths, held_by(found, len(schema.columns)), descriptors)
    return Part(rows, select(schema, features, label), shard_of(lengths, shard))


def large_part() -> Any:
    """64 MB of rows that lie in shared memory."""
    import numpy as np

    from dask_train.data.borrowing import borrow
    from dask_train.data.columns import Columns
    from dask_train.data.part import Part, shard_of
    from dask_train.data.rows import Rows, held_by
    from dask_train.data.segment import Segment
    from dask_train.data.selection import select

    large_part.kept = segment = Segment([np.zeros((1 << 15, 512), "f4")])
    schema = Columns(columns=segment.columns, names=None, is_tuple=False)
    lengths = np.array([segment.num_rows])
    rows = Rows(schema, lengths, held_by([(0, 0, segment.place)], 1), [borrow([segment.place])])
    return Part(rows, select(schema, None, None), shard_of(lengths, None))


def own_bytes() -> int:
    """What this process takes that is in no file and not shared."""
    from pathlib import Path

    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) << 10


def tensorflow_program() -> None:
    import numpy as np
    import tensorflow as tf

    from dask_train.frameworks.tensorflow.rows_dataset import rows_dataset

    def dataset(*, batch_size=None, seed=None, **picked):
        return rows_dataset(part(**picked), batch_size=batch_size, shuffle_seed=seed)

    # rows and batches, in order, by shard
    for shard, expected in ((None, range(41)), ((0, 2), range(20)), ((1, 2), range(20, 41)), ((49, 60), [33])):
        rows = dataset(features="x", label="a", shard=shard)
        assert rows.cardinality() == len(expected), rows.cardinality()
        assert [spec.shape.as_list() for spec in rows.element_spec] == [[3], []]
        assert [(x.tolist(), int(a)) for x, a in rows.as_numpy_iterator()] == [([a, a, a], a) for a in expected]
        batches = dataset(features="x", label="a", shard=shard, batch_size=8)
        assert batches.cardinality() == -(-len(expected) // 8)
        sizes = [len(a) for _, a in batches.as_numpy_iterator()]
        assert sizes == [8] * (len(expected) // 8) + [len(expected) % 8] * (len(expected) % 8 > 0)
        assert np.concatenate([a for _, a in batches.as_numpy_iterator()]).tolist() == list(expected)

    # rows go round, as the seed's program has them
    again = dataset(features="a").repeat().batch(64)
    assert again.cardinality() == tf.data.INFINITE_CARDINALITY
    assert next(iter(again)).numpy().tolist() == [*range(41), *range(23)]

    # all columns, a matrix, text
    whole = next(iter(dataset(batch_size=50)))
    assert list(whole) == ["x", "a", "text"]
    assert whole["text"].numpy().tolist() == [str(a).encode() for a in range(41)]
    text = dataset(features="text", shard=(1, 2), batch_size=50)
    assert next(iter(text)).numpy().tolist() == [str(a).encode() for a in range(20, 41)]
    matrix = next(iter(dataset(features=["a"], batch_size=3)))
    assert (matrix.shape, matrix.dtype) == ((3, 1), tf.int64)

    # orders: of all rows, new in each pass, the same from the same seed
    def passes(seed, batch_size=None, shard=None):
        found = dataset(features="a", seed=seed, batch_size=batch_size, shard=shard)
        expected = len(range(41)) if shard is None else 21
        assert found.cardinality() == (expected if batch_size is None else -(-expected // batch_size))
        ways = [found, found, found.repeat(2)]
        return [np.concatenate([np.atleast_1d(a) for a in way.as_numpy_iterator()]).tolist() for way in ways]

    first, second, twice = passes(3)
    assert sorted(first) == sorted(second) == list(range(41))
    assert sorted(twice) == sorted([*range(41)] * 2)
    assert sorted(twice[:41]) == list(range(41))
    assert len({tuple(order) for order in (range(41), first, second, twice[:41], twice[41:])}) == 5
    assert passes(3)[0] == passes(3, batch_size=8)[0] == first
    assert passes(4)[0] != first
    assert sorted(passes(3, shard=(1, 2))[0]) == list(range(20, 41))
    assert list(dataset(features="a", seed=3, shard=(0, 60))) == list(dataset(features="a", shard=(0, 60))) == []

    # no pass copies the columns, whatever is made of the data set
    large, before = large_part(), own_bytes()
    for seed in (None, 1):
        for found in (
            rows_dataset(large, batch_size=64, shuffle_seed=seed),
            rows_dataset(large, batch_size=None, shuffle_seed=seed).repeat().batch(64).map(lambda row: row).prefetch(2),
        ):
            next(iter(found))
            assert own_bytes() - before < 32 << 20, own_bytes() - before
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    shard = rows_dataset(large, batch_size=64, shuffle_seed=None, is_shard=True)
    next(iter(strategy.experimental_distribute_dataset(shard)))
    assert own_bytes() - before < 32 << 20, own_bytes() - before

    # a graph for elsewhere has copies of whole columns, with what lies between the two pools
    whole = dataset(features="x")
    graph = tf.raw_ops.DatasetToGraphV2(
        input_dataset=whole._variant_tensor, external_state_policy=0, strip_device_assignment=True
    )
    assert len(graph.numpy()) > part(features="x").columns[0].nbytes > 2 * 4096


def test_tensorflow():
    run(tensorflow_program)


def torch_program() -> None:
    import pickle

    import numpy as np
    import torch
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset

    from dask_train.errors import DataError
    from dask_train.frameworks.torch.rows_dataset import RowsDataset

    calls = []

    def dataset(**picked):
        found = RowsDataset(part(**picked))
        taken = found._rows.take
        found._rows.take = lambda numbers: calls.append(len(numbers)) or taken(numbers)
        return found

    pairs = dataset(features="x", label="a", shard=(1, 2))
    assert len(pairs) == 21
    x, a = pairs[2]
    assert (x.tolist(), x.dtype, int(a), a.shape) == ([22, 22, 22], torch.int16, 22, ())
    assert int(pairs[-1][1]) == int(pairs[np.int64(20)][1]) == int(pairs[torch.tensor(20)][1]) == 40
    for wanted in ([3, 1], torch.tensor([3, 1]), np.array([3, 1]), (3, 1), [-18, -20]):
        x, a = pairs[wanted]
        assert (x.tolist(), a.tolist()) == ([[23, 23, 23], [21, 21, 21]], [23, 21])
    assert pairs[18:][1].tolist() == [38, 39, 40]
    assert pairs[::-10][1].tolist() == [40, 30, 20]
    assert pairs[torch.arange(21) > 18][1].tolist() == [39, 40]
    assert pairs[[]][0].shape == (0, 3)
    for wrong in (21, -22, [0, 21], [0.5], [[1]], np.zeros(3, bool)):
        try:
            pairs[wrong]
        except IndexError:
            continue
        raise AssertionError(wrong)

    # whole batches at once, and as torch gives them: lists of a tuple, dicts, bare tensors
    calls.clear()
    batches = list(DataLoader(pairs, batch_size=8))
    assert calls == [8, 8, 5]
    assert [type(batch) for batch in batches] == [list] * 3
    assert torch.cat([a for _, a in batches]).tolist() == list(range(20, 41))
    shuffled = torch.cat([a for _, a in DataLoader(pairs, batch_size=8, shuffle=True)]).tolist()
    assert sorted(shuffled) == list(range(20, 41)) != shuffled
    (whole,) = DataLoader(dataset(names=("x", "a")), batch_size=50)
    assert whole["a"].tolist() == list(range(41))
    (bare,) = DataLoader(dataset(names=None), batch_size=50)
    assert (type(bare), bare.shape) == (torch.Tensor, (41, 3))
    (part_of,) = DataLoader(Subset(pairs, [5, 6]), batch_size=4)
    assert part_of[1].tolist() == [25, 26]

    # a sampler of batches, a collate_fn of one's own, processes that are forked
    calls.clear()
    sampler = BatchSampler(RandomSampler(pairs), batch_size=10, drop_last=True)
    assert sorted(len(a) for _, a in DataLoader(pairs, sampler=sampler, batch_size=None)) == [10, 10]
    assert calls == [10, 10]
    (own,) = DataLoader(pairs, batch_size=30, collate_fn=lambda rows: [int(a) for _, a in rows])
    assert own == list(range(20, 41))
    (again,) = DataLoader(pairs, batch_size=30, collate_fn=lambda rows: torch.utils.data.default_collate(list(rows)))
    assert again[1].tolist() == list(range(20, 41))
    forked = DataLoader(pairs, batch_size=8, num_workers=2, multiprocessing_context="fork")
    assert torch.cat([a for _, a in forked]).tolist() == list(range(20, 41))

    # a batch is the caller's own
    x, _ = pairs[:2]
    x += 1
    assert pairs[0][0].tolist() == [20, 20, 20]
    for refused, error in ((lambda: pickle.dumps(pairs), TypeError), (lambda: dataset(features="text"), DataError)):
        message = ""
        try:
            refused()
        except error as told:
            message = str(told)
        assert "fork" in message or "turn text and dates into numbers" in message, message


def test_torch():
    run(torch_program)
