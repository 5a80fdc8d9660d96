"""Frames of Dask as a source."""

from __future__ import annotations

import io

import dask
import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask import delayed

from dask_train.collections import check_data, partition

N = 30
TABLE = pd.DataFrame(
    {
        "a": np.arange(N, dtype="f8"),
        "b": np.arange(N, dtype="i4") * 2,
        "c": np.arange(N) % 2 == 0,
        "y": np.arange(N, dtype="i8") * 10,
    }
)


@pytest.fixture
def frame():
    return dd.from_pandas(TABLE, npartitions=4)


def joined(parts, number=0):
    return np.concatenate([columns[number] for columns in parts])


def never(*args):
    raise AssertionError("it was computed")


def test_a_frame_is_a_matrix(frame, computed):
    parts = computed(frame)
    assert [len(columns) for columns in parts] == [1] * 4
    assert all(columns[0].flags.c_contiguous for columns in parts)
    np.testing.assert_array_equal(joined(parts), TABLE.to_numpy("f8"))


@pytest.mark.parametrize(
    ("picked", "shapes", "dtypes"),
    [
        ({"features": "a"}, [(N,)], ["f8"]),
        ({"features": ["a"]}, [(N, 1)], ["f8"]),
        ({"features": ["b", "a"]}, [(N, 2)], ["f8"]),
        ({"features": ["b", "y"]}, [(N, 2)], ["i8"]),
        ({"features": ["b", "c"]}, [(N, 2)], ["i4"]),
        ({"features": "c", "label": "y"}, [(N,), (N,)], ["?", "i8"]),
        ({"label": "y"}, [(N, 3), (N,)], ["f8", "i8"]),
        ({"features": ("a", "b"), "label": "c"}, [(N, 2), (N,)], ["f8", "?"]),
        ({"features": pd.Index(["a", "b"])}, [(N, 2)], ["f8"]),
    ],
)
@pytest.mark.parametrize("kind", ["dask", "pandas", "delayed"])
def test_what_is_picked(frame, computed, kind, picked, shapes, dtypes):
    data = {"dask": frame, "pandas": TABLE, "delayed": [delayed(TABLE[:7]), delayed(TABLE[7:])]}[kind]
    parts = computed(data, **picked)
    arrays = [joined(parts, number) for number in range(len(parts[0]))]
    assert [array.shape for array in arrays] == shapes
    assert [array.dtype for array in arrays] == [np.dtype(dtype) for dtype in dtypes]
    names = picked.get("features", ["a", "b", "c"])
    np.testing.assert_array_equal(arrays[0], TABLE[names if isinstance(names, str) else list(names)].to_numpy())
    if "label" in picked:
        np.testing.assert_array_equal(arrays[1], TABLE[picked["label"]].to_numpy())


def test_names_that_are_no_text(computed):
    frame = dd.from_dask_array(da.arange(12, chunks=6).reshape(6, 2))
    np.testing.assert_array_equal(joined(computed(frame, features=0, label=1), 1), np.arange(1, 12, 2))


def test_what_is_not_known_is_not_told(frame):
    source = check_data("data", frame, label="y")
    assert (source.num_rows, source.nbytes, source.lengths, source.persisted_nbytes) == (None, None, None, 0)


def test_a_matrix_is_filled_in_blocks(computed):
    table = pd.DataFrame(np.arange(6000.0).reshape(3000, 2), columns=["a", "b"])
    table["i"] = np.arange(3000)
    matrix = computed(dd.from_pandas(table, npartitions=1))[0][0]
    assert matrix.flags.c_contiguous
    np.testing.assert_array_equal(matrix, table.to_numpy())


def test_one_column_of_numbers_is_not_copied():
    table = pd.DataFrame({"a": np.arange(5.0), "b": np.arange(5.0)})
    plan = check_data("data", dd.from_pandas(table, npartitions=1), features="a").plan
    column = partition.part(list, plan, 0, table)[0]
    assert np.shares_memory(column, table["a"].to_numpy())


@pytest.mark.parametrize(
    ("values", "dtype", "result", "expected"),
    [
        ([1, None, 3], "Int64", "f8", [1, np.nan, 3]),
        ([1, 2, 3], "Int8", "f8", [1, 2, 3]),
        ([1.5, None, 3], "Float64", "f8", [1.5, np.nan, 3]),
        ([1.5, None, 3], "Float32", "f4", [1.5, np.nan, 3]),
        ([True, None, False], "boolean", "f8", [1, np.nan, 0]),
        ([1, None, 3], "int64[pyarrow]", "f8", [1, np.nan, 3]),
        ([1, 2, 3], "uint8[pyarrow]", "f8", [1, 2, 3]),
        ([1.5, None, 3], "float[pyarrow]", "f4", [1.5, np.nan, 3]),
        ([1.5, None, 3], "double[pyarrow]", "f8", [1.5, np.nan, 3]),
        ([True, None, False], "bool[pyarrow]", "f8", [1, np.nan, 0]),
        ([1.5, np.nan, 3], "float64", "f8", [1.5, np.nan, 3]),
        ([True, False, True], "bool", "?", [True, False, True]),
        (["b", None, "a"], "category", "i8", [1, -1, 0]),
    ],
)
def test_dtypes_decide_alone(computed, values, dtype, result, expected):
    table = pd.DataFrame({"v": pd.Series(values, dtype=dtype), "n": np.arange(3, dtype="i2")})
    frame = dd.from_pandas(table, npartitions=3)  # one row each, so that what is missing is in one of them only
    parts = computed(frame, features="v")
    assert {columns[0].dtype for columns in parts} == {np.dtype(result)}
    np.testing.assert_array_equal(joined(parts), expected)
    matrices = computed(frame)
    assert {columns[0].dtype for columns in matrices} == {np.result_type(result, "i2")}
    np.testing.assert_array_equal(joined(matrices)[:, 0], expected)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pd.date_range("2020", periods=3), r"a date. Make numbers of it, such as frame\['v'\].dt.hour"),
        (pd.date_range("2020", periods=3, tz="UTC"), "a date"),
        (pd.Series(pd.date_range("2020", periods=3)).astype("timestamp[ns][pyarrow]"), "a date"),
        (pd.period_range("2020", periods=3, freq="D"), "a date"),
        (pd.to_timedelta([1, 2, 3]), r"a span of time. Make numbers of it, such as .*total_seconds\(\)"),
        (pd.interval_range(0, 3), "which is no number. Leave it out of features, or make it one"),
        (
            pd.Series(pd.arrays.ArrowExtensionArray(pa.array(["u", "v", "w"]).dictionary_encode())),
            "Make categories of it",
        ),
        (pd.Series(pd.arrays.ArrowExtensionArray(pa.array([["u"], ["v"], ["w"]]))), "which is no number"),
        (pd.Series([1, 2, 3]).astype(pd.ArrowDtype(pa.decimal128(25, 2))), "which is no number"),
        (pd.arrays.SparseArray([0.0, 1.0, 0.0]), r"which is no number.*\.astype\('float64'\)"),
    ],
)
@pytest.mark.parametrize("kind", ["dask", "pandas"])
def test_what_is_no_number_is_refused_before_anything_is_computed(kind, values, text):
    table = pd.DataFrame({"v": values, "y": [1, 2, 3]})
    with dask.config.set({"dataframe.convert-string": False}):
        data = table if kind == "pandas" else dd.from_map(never, [0], meta=table.iloc[:0])
    for picked in ({}, {"features": "v"}, {"features": "y", "label": "v"}, {"features": ["y", "v"]}):
        with pytest.raises(TypeError, match=text) as caught:
            check_data("data['worker']", data, **picked)
        assert str(caught.value).startswith("Column 'v' of data['worker'] is ")
    check_data("data", data, features="y")


def test_categories_have_to_be_known(computed):
    table = pd.DataFrame({"v": pd.Categorical(["b", "a", "b", "c"])})
    unknown = dd.from_pandas(table, npartitions=2)["v"].cat.as_unknown().to_frame()
    with pytest.raises(ValueError, match=r"not known yet, .*\.categorize\(columns=\['v'\]\)"):
        check_data("data", unknown, features="v")
    known = unknown.categorize(scheduler="synchronous")
    np.testing.assert_array_equal(joined(computed(known, features="v")), [1, 0, 1, 2])


def test_categories_have_to_be_the_same_everywhere(computed):
    made = [delayed(pd.DataFrame)({"v": pd.Categorical([value])}) for value in "ba"]
    frame = dd.from_delayed(made, verify_meta=False)  # Dask believes that those of the first are all
    with pytest.raises(ValueError, match=r"categories of column 'v' of partition 1 .*not those of the whole frame"):
        computed(frame, features="v")
    mended = frame.assign(v=frame["v"].cat.as_unknown()).categorize(columns=["v"], scheduler="synchronous")
    codes = joined(computed(mended, features="v"))
    assert mended["v"].cat.categories[codes].tolist() == ["b", "a"]
    with pytest.raises(ValueError, match="categories of column 'v' of partition 1"):
        computed(made, features="v")


def test_a_column_of_the_wrong_kind(computed):
    lying = dd.from_map(lambda number: TABLE[["a"]], [0], meta=TABLE[["a", "b"]].iloc[:0], enforce_metadata=False)
    with pytest.raises(ValueError, match=r"partition 0 of .* has no column 'b'; it has 'a'"):
        computed(lying)


def test_a_partition_of_another_dtype(computed):
    made = [pd.DataFrame({"v": [1, 2]}), pd.DataFrame({"v": [3, np.nan]})]
    lying = dd.from_map(lambda number: made[number], [0, 1], meta=made[0].iloc[:0], enforce_metadata=False)
    with pytest.raises(ValueError, match=r"Column 'v' of partition 1 of .* is float64, and plain of <i8 was expected"):
        computed(lying, features="v")
    wider = dd.from_map(lambda number: made[number], [0, 1], meta=made[1].iloc[:0], enforce_metadata=False)
    np.testing.assert_array_equal(joined(computed(wider, features="v")), [1, 2, 3, np.nan])


def test_images_in_a_column(computed):
    images = np.random.default_rng(0).random((5, 8, 6)).astype("f4")

    def get():
        return pd.DataFrame({"x": list(images), "y": np.arange(5)})

    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.concat([dd.from_delayed(delayed(get)()) for _ in range(4)])
    for picked in ({"features": "x", "label": "y"}, {"features": ["x"], "label": "y"}, {"label": "y"}):
        parts = computed(frame, **picked)
        assert [[(array.dtype.str, array.shape) for array in columns] for columns in parts] == [
            [("<f4", (5, 8, 6)), ("<i8", (5,))]
        ] * 4
        np.testing.assert_array_equal(parts[3][0], images)
    with pytest.raises(TypeError, match=r"'x' of data holds lists or objects .* in one matrix with 'y'.*features='x'"):
        check_data("data", frame)

    texts = dd.concat([dd.from_delayed(delayed(get)()) for _ in range(2)])  # as Dask makes it by default
    with pytest.raises(TypeError, match=r"'x' of data holds text .*'dataframe.convert-string': False.* with 'y'"):
        check_data("data", texts)
    with pytest.raises(TypeError, match=r"'x' of .* the text '\[.*call dask.config.set"):
        computed(texts, features="x", label="y")


@pytest.mark.parametrize("dtype", ["object", "binary[pyarrow]", "large_binary[pyarrow]"])
@pytest.mark.parametrize("kind", ["dask", "pandas"])
def test_columns_of_bytes(computed, kind, dtype):
    arrow = {"binary[pyarrow]": pa.binary(), "large_binary[pyarrow]": pa.large_binary()}.get(dtype)
    table = pd.DataFrame({"v": pd.Series([b"a", b"", b"\xff\0"], dtype=pd.ArrowDtype(arrow) if arrow else dtype)})
    with dask.config.set({"dataframe.convert-string": False}):
        data = table if kind == "pandas" else dd.from_map(lambda _: table, [0], meta=table.iloc[:0])
    ((text,),) = computed(data["v"])
    assert text.tolist() == [b"a", b"", b"\xff\0"]


@pytest.mark.parametrize("dtype", ["str", "object", "string[pyarrow]", "large_string[pyarrow]"])
@pytest.mark.parametrize("kind", ["dask", "pandas"])
def test_columns_of_text(computed, kind, dtype):
    table = pd.DataFrame({"v": pd.Series(["a", "", "grün"]).astype(dtype), "w": ["x", "y", "z"], "y": [1, 2, 3]})
    with dask.config.set({"dataframe.convert-string": False}):
        data = table if kind == "pandas" else dd.from_map(lambda _: table, [0], meta=table.iloc[:0])
    ((text, labels),) = computed(data, features="v", label="y")
    assert (text.dtype, text.tolist(), labels.tolist()) == (object, ["a", "", "grün"], [1, 2, 3])
    assert all(type(value) is str for value in text)
    if dtype != "object":
        assert computed(data, features=["w", "v"])[0][0].tolist() == [["x", "a"], ["y", ""], ["z", "grün"]]
        with pytest.raises(TypeError, match=r"'v' of data holds text .* in one matrix with 'y'"):
            check_data("data", data, features=["v", "y"])
        missing = table.assign(v=table["v"].where(table["y"] < 3))
        data = missing if kind == "pandas" else dd.from_map(lambda _: missing, [0], meta=table.iloc[:0])
        with pytest.raises(
            TypeError, match=r"Row 2 of column 'v' of .*data.* is missing. Drop such rows, or fill them"
        ):
            computed(data, features="v")


def test_empty_one_row_and_unequal_partitions(computed):
    with dask.config.set({"dataframe.convert-string": False}):
        table = TABLE.assign(x=[np.full(2, i) for i in range(N)])
        frame = dd.from_pandas(table, npartitions=3)
        frame = frame[frame["a"] > 18.5]
    parts = computed(frame, features="x", label="y")
    assert [[array.shape for array in columns] for columns in parts] == [[(0,), (0,)], [(1, 2), (1,)], [(10, 2), (10,)]]
    assert [columns[0].shape for columns in computed(frame[["a", "b"]])] == [(0, 2), (1, 2), (10, 2)]


@pytest.mark.parametrize("put", [tuple, list, lambda both: dict(zip("xy", both, strict=True))])
def test_frames_and_columns_cut_from_one_frame(frame, computed, put):
    frame = frame[frame["a"] > 3]
    parts = computed(put([frame[["a", "b"]] / 2, frame["y"]]))
    assert sum(len(columns[0]) for columns in parts) == N - 4
    for x, y in parts:
        assert x.shape == (len(y), 2)
        np.testing.assert_array_equal(x[:, 0] * 20, y)


@pytest.mark.parametrize("index", [None, 0])
def test_indexes_that_repeat_do_no_harm(computed, index):
    table = TABLE.set_index(np.zeros(N, int)) if index == 0 else TABLE
    frame = dd.from_pandas(table, npartitions=1).repartition(npartitions=1)
    x, y = computed((frame[["a"]], frame["y"]))[0]
    np.testing.assert_array_equal(x[:, 0] * 10, y)


def test_frames_that_do_not_belong_together(frame, computed):
    other = dd.from_pandas(TABLE.assign(a=1.0), npartitions=4).clear_divisions()
    rejoined = frame["y"].repartition(npartitions=2)
    for y in (other["y"], frame.sort_values("c")["y"], frame.partitions[:2]["y"], rejoined, frame.sum()):
        with pytest.raises(ValueError, match=r"partitions that were not cut from one frame, .*features= and label="):
            check_data("data", (frame[["a"]], y))
    for y in (da.ones(N), TABLE["y"], np.ones(N)):
        with pytest.raises(TypeError, match=r"has a Dask frame beside a .*can't be brought together"):
            check_data("data", (frame[["a"]], y))
    with pytest.raises(
        ValueError, match=r"Frames 0 and 1 of partition \d of .* have \d and \d rows with different index"
    ):
        computed((frame[["a"]], frame[frame["c"]]["y"]))
    even = dd.from_pandas(TABLE, npartitions=1)
    with pytest.raises(ValueError, match=r"Frames 0 and 1 of partition 0 of .* have 15 and 15 rows with different"):
        computed((even[even["c"]][["a"]], even[~even["c"]]["y"]))


def test_frames_of_equal_known_divisions_go_together_by_their_index(frame, computed):
    """So do X and y that were made apart, as of two from_pandas."""
    other = dd.from_pandas(TABLE[["y"]], npartitions=4)
    for x, y in computed((frame[["a"]], other["y"])):
        np.testing.assert_array_equal(x[:, 0] * 10, y)
    assert sum(len(y) for _, y in computed((frame[["a"]], other["y"]))) == N
    with pytest.raises(ValueError, match=r"Frames 0 and 1 of partition \d of .* with different index"):
        computed((frame[["a"]], other["y"].map_partitions(lambda y: y[::-1])))
    with pytest.raises(ValueError, match="nor have equal known divisions"):
        check_data("data", (frame[["a"]], dd.from_pandas(TABLE["y"].iloc[1:], npartitions=4)))


def test_parquet(tmp_path, computed):
    wide = TABLE.assign(**{f"w{number}": 1.0 for number in range(20)})
    for number in range(8):
        wide.assign(a=TABLE["a"] + 100 * number, y=TABLE["y"] + 1000 * number).to_parquet(
            tmp_path / f"{number}.parquet"
        )
    frame = dd.read_parquet(tmp_path)
    assert len(frame["y"].to_delayed()) < len(frame[list(wide)[:-1]].to_delayed()), "the trap this is about"
    for data, picked in (
        (frame, {"features": "a", "label": "y"}),
        ((frame["a"], frame["y"]), {}),
        ((frame.drop(columns="y"), frame["y"]), {}),
        ({"x": frame[["a", "b"]], "y": frame["y"]}, {}),
    ):
        parts = computed(data, **picked)
        assert sum(len(columns[1]) for columns in parts) == 8 * N
        for x, y in parts:
            np.testing.assert_array_equal((x if x.ndim == 1 else x[:, 0]) * 10, y)


@pytest.mark.parametrize("place", ["files", "memory"])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_by_fsspec(tmp_path, computed, place, kind):
    folder = str(tmp_path) if place == "files" else "memory://frames"
    for number in range(2):
        data = io.BytesIO()
        table = TABLE[15 * number : 15 * (number + 1)]
        table.to_parquet(data) if kind == "parquet" else table.to_csv(data, index=False)
        with fsspec.open(f"{folder}/{number}.{kind}", "wb") as file:
            file.write(data.getvalue())
    frame = getattr(dd, f"read_{kind}")(f"{folder}/*.{kind}")
    parts = computed(frame, features=["a", "b"], label="y")
    np.testing.assert_array_equal(joined(parts), TABLE[["a", "b"]])
    np.testing.assert_array_equal(joined(parts, 1), TABLE["y"])


def test_lists_in_parquet(tmp_path, computed):
    pd.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}).to_parquet(tmp_path / "0.parquet")
    for options in ({}, {"dtype_backend": "pyarrow"}):
        columns = computed(dd.read_parquet(tmp_path, **options), features="v", label="y")[0]
        np.testing.assert_array_equal(columns[0], [[1, 2], [3, 4]])


def test_only_what_is_needed_is_read(computed):
    asked = []

    def load(number, columns=None):
        asked.append(columns)
        return TABLE if columns is None else TABLE[columns]

    computed(dd.from_map(load, [0], meta=TABLE.iloc[:0]), features=["a"], label="y")
    assert asked == [["a", "y"]]
