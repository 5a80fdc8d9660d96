"""What ``train`` takes as data: every row comes once an epoch, as it should look, however the data was given."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed

import dask_train as dt

ROWS = 101


def go_through(session):
    """Two epochs of batches; each says what it is made of."""
    return list(session.batches(epochs=2, batch_size=16, seed=session.size))


def epochs(result):
    """What the ranks were given, column by column, in each epoch: a dict, a tuple or an array, as the batches are."""
    ranks = result.results["worker"]
    num = len(ranks[0]) // 2
    return [together(sum((rank[start : start + num] for rank in ranks), [])) for start in (0, num)]


def together(batches):
    kind = type(batches[0])
    if kind is dict:
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    if kind is tuple:
        return tuple(np.concatenate(columns) for columns in zip(*batches, strict=True))
    return np.concatenate(batches)


def columns_of(epoch):
    return list(epoch.values()) if isinstance(epoch, dict) else [*epoch] if isinstance(epoch, tuple) else [epoch]


@pytest.fixture
def check(client):
    """Train on data, and see that both epochs have the expected rows, once each, and that the ledger says so."""

    def run(data, expected, *, num_workers=2, rows=ROWS, **arguments):
        result = dt.train(go_through, roles={"worker": num_workers}, data=data, **arguments)
        for epoch in epochs(result):
            assert type(epoch) is type(expected)
            if isinstance(expected, dict):
                assert list(epoch) == list(expected)
            found, wanted = columns_of(epoch), columns_of(expected)
            assert [(a.dtype, a.shape) for a in found] == [(a.dtype, a.shape) for a in wanted]
            assert sorted_rows(found) == sorted_rows(wanted)
        ledger = result.ledger
        assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (2 * rows, 2 * rows, 0, 0)
        assert [(line.rank, line.epoch) for line in ledger.lines] == [
            (r, e) for r in range(num_workers) for e in (0, 1)
        ]
        return result

    return run


def sorted_rows(columns):
    """Each row as bytes: what belongs together has to stay together."""
    return sorted(zip(*([row.tobytes() for row in column] for column in columns), strict=True))


def table(rows=ROWS):
    """Columns of several dtypes; each row is like no other."""
    number = np.arange(rows)
    return pd.DataFrame(
        {
            "a": number.astype("f4") / 4,
            "b": number * 1.5,  # CSV keeps it as it is
            "flag": number % 3 == 0,
            "label": (number * 7).astype("i8"),
        }
    )


# Frames


@pytest.mark.parametrize("num_workers", [2, 3])
def test_features_and_label_of_a_frame(check, num_workers):
    frame = table()
    data = dd.from_pandas(frame, npartitions=7)
    wanted = (frame[["b", "a"]].to_numpy("f8"), frame["label"].to_numpy())
    check(data, wanted, num_workers=num_workers, features=["b", "a"], label="label")


def test_one_feature_by_name_and_a_frame_without_selection(check):
    frame = table()
    data = dd.from_pandas(frame, npartitions=4)
    check(data, (frame["a"].to_numpy(), frame["flag"].to_numpy()), features="a", label="flag")
    check(data["label"], frame["label"].to_numpy())
    check(data[["a", "b"]], frame[["a", "b"]].to_numpy("f8"))
    check(data, frame[["a", "b", "flag"]].to_numpy("f8").astype("f8"), features=["a", "b", "flag"])


def test_missing_nullable_and_categories(check):
    number = np.arange(ROWS)
    names = np.array(["red", "green", "blue"])[number % 3]
    frame = pd.DataFrame(
        {
            "id": number,
            "gaps": np.where(number % 5, number / 7, np.nan),
            "count": pd.array([None if n % 4 == 0 else n for n in number], dtype="Int32"),
            "colour": pd.Categorical(np.where(number % 6, names, None), categories=["blue", "green", "red"]),
        }
    )
    count = np.where(number % 4, number, np.nan)
    codes = frame["colour"].cat.codes.to_numpy().astype("i8")
    data = dd.from_pandas(frame, npartitions=5)
    wanted = (np.stack([frame["gaps"], count], axis=1), codes)
    result = check(data, wanted, features=["gaps", "count"], label="colour")
    first = epochs(result)[0]
    assert (np.isnan(first[0][:, 1]).sum(), (first[1] == -1).sum()) == (26, 17)
    together_ = {"id": frame["id"].to_numpy(), "count": count, "colour": codes}
    check({name: data[name] for name in together_}, together_)


def test_parquet_and_csv(check, tmp_path):
    frame = table()
    for number, piece in enumerate(np.array_split(np.arange(ROWS), 4)):
        frame.iloc[piece].to_parquet(tmp_path / f"{number}.parquet")
        frame.iloc[piece].to_csv(tmp_path / f"{number}.csv", index=False)
    wanted = (frame[["a", "b"]].to_numpy("f8"), frame["label"].to_numpy())
    check(dd.read_parquet(tmp_path / "*.parquet"), wanted, features=["a", "b"], label="label")
    read = dd.read_csv(tmp_path / "*.csv", dtype={"a": "f4"})
    check(read, wanted, features=["a", "b"], label="label")


def test_x_and_y_cut_from_one_frame_that_was_filtered(check):
    """A filter leaves partitions without rows, one with a single row, and very unequal ones."""
    frame = table()
    data = dd.from_pandas(frame, npartitions=10)
    keep = (frame["label"] >= 7 * 60) & (frame["label"] != 7 * 80) | (frame["label"] == 7 * 12)
    left = frame[keep]
    filtered = data[(data["label"] >= 7 * 60) & (data["label"] != 7 * 80) | (data["label"] == 7 * 12)]
    rows = [len(part) for part in dask.compute(*filtered.to_delayed(), scheduler="sync")]
    assert sorted(rows)[:6] == [0, 0, 0, 0, 1, 1]
    wanted = (left[["a"]].to_numpy(), left["label"].to_numpy())
    check((filtered[["a"]], filtered["label"]), wanted, num_workers=3, rows=len(left))


def images(number):
    return np.full((4, 5), number, "u1")


def picture_frame(start, rows):
    return pd.DataFrame(
        {"x": [images(start + n) for n in range(rows)], "y": np.arange(start, start + rows)},
        index=range(start, start + rows),
    )


def picture_frames():
    return dd.concat([dd.from_delayed(delayed(picture_frame)(start, 20)) for start in range(0, 100, 20)])


def test_a_frame_of_pictures(check):
    wanted = (np.stack([images(n) for n in range(100)]), np.arange(100))
    with dask.config.set({"dataframe.convert-string": False}):
        check(picture_frames(), wanted, rows=100, features="x", label="y")
        data = picture_frames()
        check({"x": data["x"], "y": data["y"]}, dict(zip("xy", wanted, strict=True)), rows=100)


def test_pandas(check):
    frame = table()
    check(frame, (frame[["a", "b"]].to_numpy("f8"), frame["label"].to_numpy()), features=["a", "b"], label="label")
    check((frame[["a"]], frame["label"]), (frame[["a"]].to_numpy(), frame["label"].to_numpy()))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"features": ["c"], "label": "label"}, "no column 'c'.*It has 'a', 'b', 'flag', 'label'"),
        ({"features": ["a", "label"], "label": "label"}, "the label and one of the features too"),
    ],
)
def test_columns_that_are_not_there(client, arguments, text):
    with pytest.raises(ValueError, match=text):
        dt.train(go_through, roles={"worker": 1}, data=dd.from_pandas(table(), npartitions=2), **arguments)


# Delayed results


def delayed_parts(form):
    sizes = [40, 1, 60]
    starts = [0, 40, 41]
    return [delayed(form)(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def as_tuple(start, stop):
    y = np.arange(start, stop)
    return np.stack([y, -y], axis=1).astype("f4"), y


def as_dict(start, stop):
    x, y = as_tuple(start, stop)
    return {"x": x, "y": y, "odd": y % 2 == 1}


def test_delayed_partitions(check):
    check(delayed_parts(as_tuple), as_tuple(0, ROWS), num_workers=3)
    check(delayed_parts(as_dict), as_dict(0, ROWS))
    check(delayed_parts(as_dict), as_tuple(0, ROWS), features="x", label="y")
    check(delayed_parts(np.arange), np.arange(ROWS))


def test_delayed_partitions_that_differ(client):
    parts = [delayed(as_tuple)(0, 10), delayed(as_dict)(10, 20)]
    with pytest.raises(
        dt.DataError, match=r"partition 1 of data\['worker'\] is a dict of 'x', 'y', 'odd', and the first"
    ):
        dt.train(go_through, roles={"worker": 1}, data=parts)
    parts = [delayed(np.ones)((10, 3)), delayed(np.ones)((10, 4))]
    with pytest.raises(
        dt.DataError, match=r"partition 0 has rows of float64 \(3,\) and partition 1 has rows of float64 \(4,\)"
    ):
        dt.train(go_through, roles={"worker": 1}, data=parts)


# Arrays


def ids(*shape, dtype):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def test_arrays_of_every_rank_in_a_dict(check):
    data = {
        "one": ids(ROWS, dtype="i2"),
        "two": ids(ROWS, 3, dtype="f4"),
        "three": ids(ROWS, 2, 3, dtype="f8"),
        "four": ids(ROWS, 2, 3, 2, dtype="u1"),
        "complex": ids(ROWS, dtype="c8"),
    }
    lazy = {name: da.from_array(array, chunks=(13, *(2 for _ in array.shape[1:]))) for name, array in data.items()}
    check(lazy, data, num_workers=3)
    check({**lazy, "one": data["one"]}, data)
    check((lazy["four"],), (data["four"],))


def test_unknown_chunk_sizes(check):
    data = da.arange(-50, ROWS - 50, chunks=9)
    positive = data[data > 0]
    assert np.isnan(positive.shape[0])
    check(positive, np.arange(1, ROWS - 50), rows=ROWS - 51, num_workers=3)
    both = (positive, positive * 2.0)
    check(both, (np.arange(1, ROWS - 50), np.arange(1, ROWS - 50) * 2.0), rows=ROWS - 51)


def test_chunks_of_very_different_sizes(check):
    wanted = ids(ROWS, 4, dtype="f4")
    check(da.from_array(wanted, chunks=((1, 1, 90, 2, 7), 4)), wanted, num_workers=3)


def test_row_counts_that_differ_are_refused_before_anything_starts(client):
    with pytest.raises(ValueError, match="have 101, 100 rows; they have to be the same"):
        dt.train(go_through, roles={"worker": 1}, data=(da.ones(101, chunks=10), da.ones(100, chunks=10)))
    frame = table()
    data = dd.from_pandas(frame, npartitions=4)
    other = dd.from_pandas(frame.iloc[:50], npartitions=4)
    with pytest.raises(ValueError, match="partitions that were not cut from one frame, or not"):
        dt.train(go_through, roles={"worker": 1}, data=(data[["a"]], other["label"]))


def test_row_counts_that_are_only_known_when_they_are_computed(client):
    data = da.arange(100, chunks=25)
    with pytest.raises(
        dt.DataError, match=r"partition 0 of data\['worker'\] have 24, 20 rows; they have to be the same"
    ):
        dt.train(go_through, roles={"worker": 1}, data=(data[data > 0], data[data > 4]))
    frame = dd.from_pandas(table(), npartitions=4)
    with pytest.raises(dt.DataError, match="have 26 and 25 rows with different indexes"):
        dt.train(go_through, roles={"worker": 1}, data=(frame[["a"]], frame["label"][frame["label"] != 7]))


def test_all_rows_gone(client):
    data = da.arange(100, chunks=25)
    with pytest.raises(dt.DataError, match=r"data\['worker'\] has no rows"):
        dt.train(go_through, roles={"worker": 1}, data=data[data > 100])
