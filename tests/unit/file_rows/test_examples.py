"""Examples are the bytes that TensorFlow writes and reads."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from dask_train.file_rows.examples import packed, parsed

FIELDS = {
    "whole": np.array([0, 1, -1, 127, 128, 300, 2**62, -(2**63), 2**63 - 1]),
    "floats": np.array([0.5, np.nan, -np.inf], np.float32),
    "text": b"a\0b",
    "several": [b"", b"c"],
}


def check_same(found, wanted=FIELDS) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(found[name], value)
            assert found[name].dtype == value.dtype
        else:
            assert found[name] == value


def test_what_was_packed_is_parsed():
    check_same(parsed(packed(FIELDS)))
    check_same(
        parsed(packed({"a": True, "b": "é", "c": 1.5, "d": [2, 3], "e": 7})),
        {
            "a": np.array([1]),
            "b": "é".encode(),
            "c": np.array([1.5], np.float32),
            "d": np.array([2, 3]),
            "e": np.array([7]),
        },
    )


def test_an_empty_list_is_of_the_kind_of_others():
    """Not of floats, which TensorFlow would refuse where whole numbers are expected."""
    tf = pytest.importorskip("tensorflow")
    for more in ([3, 4], ["a"]):
        kind = tf.io.VarLenFeature(tf.int64 if more == [3, 4] else tf.string)
        read = [tf.io.parse_single_example(packed({"x": value}), {"x": kind}) for value in (more, [], ())]
        assert [len(each["x"].values) for each in read] == [len(more), 0, 0]
    check_same(parsed(packed({"x": [], "y": np.array([], int)})), {"x": np.float32([]), "y": np.array([], int)})


def test_tensorflow_reads_and_writes_the_same():
    feature = pytest.importorskip("tensorflow").train.Feature
    import tensorflow as tf

    made = tf.train.Example(
        features=tf.train.Features(
            feature={
                "whole": feature(int64_list=tf.train.Int64List(value=FIELDS["whole"].tolist())),
                "floats": feature(float_list=tf.train.FloatList(value=FIELDS["floats"].tolist())),
                "text": feature(bytes_list=tf.train.BytesList(value=[FIELDS["text"]])),
                "several": feature(bytes_list=tf.train.BytesList(value=FIELDS["several"])),
            }
        )
    )
    check_same(parsed(made.SerializeToString()))
    check_same(parsed(tf.train.Example.FromString(packed(FIELDS)).SerializeToString()))


def test_numbers_that_are_not_packed_are_parsed():
    feature = b"\x1a\x04\x08\x05\x08\x06"  # Int64List with two numbers, each by itself
    entry = b"\x0a\x01y\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    check_same(parsed(b"\x0a" + bytes([len(features)]) + features), {"y": np.array([5, 6])})


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05abc", b"\x0b", b"\xff" * 12, b"\x0a\x04\x0a\x02\x08\x01"])
def test_what_is_no_example_is_told(data):
    with pytest.raises(ValueError, match=r"the record is no tf\.train\.Example"):
        parsed(data)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones((2, 2)), r"Feature 'a' has the shape \(2, 2\), which an example does not keep"),
        (1 + 2j, "Feature 'a' is complex128"),
        (np.array([2**63], np.uint64), "Feature 'a' is uint64"),
        (None, "Feature 'a' has a value that is missing, None, which an example can't hold"),
        (["b", None], "Feature 'a' has a value that is missing"),
        ([1, pd.NA], "Feature 'a' has a value that is missing"),
        (1e300, r"Feature 'a' has 1e\+300, and examples hold float32"),
        ([1.0, -1e39], r"Feature 'a' has -1e\+39, and examples hold float32"),
        (np.array(["2020"], "M8[Y]"), r"Feature 'a' is datetime64\[Y\], and an example holds"),
    ],
)
def test_what_an_example_can_not_hold_is_refused(value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        packed({"a": value})


def test_a_name_is_text():
    with pytest.raises(TypeError, match="Feature 1 has a name of type int, and names in an example are text"):
        packed({1: 2, "a": 3})


@pytest.mark.parametrize(("row", "kind"), [("text", "str"), (("a", 0.5), "tuple"), (None, "NoneType")])
def test_a_row_is_a_dict(row, kind):
    with pytest.raises(TypeError, match=f"The bag holds a {kind}; rows are dicts of features by name"):
        packed(row)


def test_buffers_of_bytes_are_bytes_and_those_of_numbers_are_numbers():
    png = io.BytesIO(b"\x89PNG\r\n")
    fields = {"a": png.getbuffer(), "b": bytearray(b"xy"), "c": [bytearray(b"x"), memoryview(b"zy")[::-1]]}
    check_same(parsed(packed(fields)), {"a": png.getvalue(), "b": b"xy", "c": [b"x", b"yz"]})
    numbers = np.array([0.5, 2.0], np.float32)
    check_same(parsed(packed({"d": memoryview(numbers)})), {"d": numbers})
    with pytest.raises(ValueError, match=r"Feature 'e' has the shape \(2, 2\)"):
        packed({"e": np.zeros((2, 2), np.uint8).data})


def test_infinity_is_a_float():
    check_same(parsed(packed({"a": [np.inf, 1e38]})), {"a": np.array([np.inf, 1e38], np.float32)})
