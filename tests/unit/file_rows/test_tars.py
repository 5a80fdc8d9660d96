"""Samples of tar archives are rows: members by their keys, labels of members, and damage that is found."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import dask
import numpy as np
import pytest

import dask_train as dt
from dask_train.data.text import packed
from dask_train.errors import DataError
from dask_train.file_rows.tars import samples_of


def write(path: Path, members: list[tuple[str, bytes]], mode: str = "w") -> str:
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return str(path)


def samples(start: int, stop: int) -> list[tuple[str, bytes]]:
    return [
        pair
        for number in range(start, stop)
        for pair in ((f"{number:02}.bin", bytes([number]) * 4), (f"{number:02}.cls", str(number % 3).encode()))
    ]


def decode(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "a.tar", samples(0, 5))
    write(tmp_path / "b.tar.gz", samples(5, 12), "w:gz")
    return tmp_path


def rows_of(folder: Path, **settings) -> dt.RecordRows:
    return dt.tars(f"{folder}/*.tar*", **{"features": "bin", "label": "cls", "decode": decode, **settings})


def computed(rows: dt.RecordRows) -> tuple[list[list[int]], list[int]]:
    x, y = (each.compute(scheduler="synchronous") for each in rows.to_dask())
    return x.tolist(), y.tolist()


def test_samples_are_rows_in_the_order_of_archives(folder):
    rows = rows_of(folder)
    assert repr(rows) == "<RecordRows: 2 files, rows of uint8 (4,)>"
    assert (rows.row_shape, rows.dtype, rows.classes) == ((4,), np.uint8, None)
    assert computed(rows) == ([[number] * 4 for number in range(12)], [number % 3 for number in range(12)])
    alone = rows_of(folder, label=None).to_dask()
    assert alone.compute(scheduler="synchronous")[:, 0].tolist() == list(range(12))


def test_members_belong_together_up_to_the_first_dot(tmp_path):
    members = [("a.b/1.left.JPG", b"x"), ("a.b/1.txt", b"y"), ("c/1.txt", b"z"), ("README", b"no sample")]
    with open(write(tmp_path / "a.tar", members), "rb") as file:
        found = list(samples_of(file))
    assert found == [("a.b/1", {"left.jpg": b"x", "txt": b"y"}), ("c/1", {"txt": b"z"})]


def test_members_have_names_that_are_no_utf_8(tmp_path):
    path = write(tmp_path / "a.tar", [("\udcff.bin", b"x")])
    ((rows,),) = dask.compute(*dt.tars(path, features="bin", decode=decode).source().delayed_parts(None, list))
    assert (packed(rows).size, rows[0, 0]) == (32 + len(rows[0, 0]) + 1, f"{path}/\\udcff")


def test_capitals_of_endings_do_not_count(tmp_path):
    path = write(tmp_path / "a.tar", [("1.BIN", b"x"), ("1.cls", b"2")])
    rows = dt.tars(path, features="Bin", label="CLS", decode=decode)
    assert computed(rows) == ([[ord("x")]], [2])


def test_archives_that_were_put_together_are_read_to_the_end(folder):
    whole = (folder / "a.tar").read_bytes()
    (folder / "a.tar").write_bytes(whole + whole)
    assert len(computed(rows_of(folder))[1]) == 17


def test_labels_are_names_or_what_a_function_makes(folder, tmp_path):
    names = rows_of(folder, label=lambda sample: "odd" if sample["bin"][0] % 2 else "even", classes=["even", "odd"])
    assert names.classes == ("even", "odd")
    assert computed(names)[1] == [number % 2 for number in range(12)]
    digits = rows_of(folder, classes=["2", "1", "0"])
    assert computed(digits)[1] == [2 - number % 3 for number in range(12)]
    several = rows_of(folder, label=lambda sample: [float(sample["bin"][0]), 0.5])
    assert several.source().columns[1].row_shape == (2,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"features": "jpg;png"},
            r"Record '00' of '.*a\.tar' has no member \.jpg or \.png; it has \.bin, \.cls\.",
        ),
        ({"label": "json"}, r"has no member \.json"),
        ({"label": lambda _: "odd"}, "has the label 'odd', a name. Pass the names of all classes"),
        ({"label": lambda _: "odd", "classes": ["even"]}, "has the label 'odd', and classes has 'even'. Add it there"),
        ({"classes": ["even"]}, "has the label '0', and classes has 'even'. Leave classes= out, if labels are numbers"),
        (
            {"label": lambda _: 0, "classes": ["even"]},
            "has the label 0, which is no name of classes=. Leave classes= out",
        ),
        ({"label": lambda _: None}, "has the label None, which is no number"),
        (
            {"label": lambda sample: sample["json"]},
            r"Record '00' of '.*a\.tar' has no label, since label raised KeyError: 'json'\. Mend label=",
        ),
    ],
)
def test_what_a_sample_lacks_is_told(folder, settings, message):
    with pytest.raises(DataError, match=message):
        rows_of(folder, **settings)


def test_an_os_error_of_a_label_function_is_none_of_the_file(folder):
    with pytest.raises(DataError, match=r"has no label, since label raised FileNotFoundError: .*/labels\.csv") as told:
        rows_of(folder, label=lambda _: (folder / "labels.csv").read_text())
    assert isinstance(told.value.__cause__, FileNotFoundError)


def test_labels_of_another_shape_are_told_when_they_are_read(folder):
    rows = rows_of(folder, label=lambda sample: [1] * (1 + sample["bin"][0] // 7))
    with pytest.raises(DataError, match=r"The label of record '.*b\.tar\.gz/07' is int64 \(2,\), and that"):
        computed(rows)


@pytest.mark.parametrize("kept", [512 * 3 + 100, 512 * 8, 512 * 20])
def test_an_archive_that_is_cut_off_is_told(folder, kept):
    path = folder / "a.tar"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"a\.tar' can't be read.*: .*It is damaged"):
        computed(rows_of(folder))


def test_a_damaged_header_is_no_end(folder):
    path = folder / "a.tar"
    content = bytearray(path.read_bytes())
    content[512 * 8 + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"the archive is damaged or cut off at byte 4,096: bad checksum"):
        computed(rows_of(folder))


def test_a_member_that_stands_twice_is_told(tmp_path):
    write(tmp_path / "a.tar", [("1.bin", b"1"), ("1.bin", b"2")])
    with pytest.raises(DataError, match=r"can't be read: ValueError: sample '1' has two members \.bin"):
        dt.tars(tmp_path / "a.tar", features="bin", decode=decode)


def test_an_archive_without_samples_is_told(tmp_path):
    write(tmp_path / "a.tar", [])
    with pytest.raises(DataError, match=r"There is no record in '.*a\.tar'"):
        dt.tars(tmp_path / "a.tar")


def even(content: bytes) -> np.ndarray:
    if content[0] % 2 == 0:
        raise ValueError("even")
    return decode(content)


def test_samples_that_can_not_be_decoded_are_left_out_where_that_is_asked_for(folder):
    with pytest.raises(DataError, match=r"File '.*a\.tar/00' can't be decoded: decode raised ValueError: even"):
        rows_of(folder, decode=even)
    rows = rows_of(folder, decode=even, on_error="skip")
    assert rows.num_listed == 12
    with pytest.raises(ValueError, match="would lack rows"):
        rows.to_dask()


def test_augmented_rows_are_seen_by_training_alone(folder):
    rows = rows_of(folder, augment=lambda row, generator: row[:2] * generator.uniform())
    assert rows.source().columns[0].in_batch.row_shape == (2,)
    assert rows.not_augmented().source().columns[0].in_batch.row_shape == (4,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label": 3}, "label is a int; pass a name, a function, or None"),
        ({"label": None, "classes": ["a"]}, "label is None. Pass label="),
        ({"classes": ["a", "a"]}, "pass each name once"),
        ({"decode": 3}, "decode is a int; pass a function"),
    ],
)
def test_arguments_that_can_not_be_are_refused(folder, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rows_of(folder, **settings)
