"""What becomes of one file: a row, or an error that names the file."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.data.file_decoder import FileDecoder, OpenedFileDecoder, as_row
from dask_train.errors import DataError

LIKE = np.zeros((2, 3), "f4")


def bytes_as_row(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def test_functions_travel_by_value_and_say_what_rows_are():
    decoder = FileDecoder.of(lambda content: len(content) * LIKE, None, LIKE)
    assert (decoder.dtype, decoder.row_shape, decoder.is_random) == ("<f4", (2, 3), False)
    assert decoder.opened().row("a", b"12", np.random.default_rng).tolist() == (2 * LIKE).tolist()


def test_functions_that_can_not_travel_are_refused():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="decode= or augment= can't be sent to the workers: TypeError: cannot pickle"):
        FileDecoder.of(lambda content: lock, None, LIKE)


def test_a_row_is_augmented_with_its_generator():
    decoder = OpenedFileDecoder(bytes_as_row, lambda row, generator: row + generator.integers(100))
    row = decoder.row("a", b"\1\2", lambda: np.random.default_rng(7))
    assert row.tolist() == (np.array([1, 2]) + np.random.default_rng(7).integers(100)).tolist()


def test_a_row_may_be_augmented_in_place():
    def negate(row, generator):
        row[:] = 255 - row
        return row

    content = b"\1\2"
    assert OpenedFileDecoder(bytes_as_row, negate).row("a", content, np.random.default_rng).tolist() == [254, 253]
    assert content == b"\1\2"


def test_an_error_names_the_file_and_what_failed():
    def fails(row, generator):
        raise ArithmeticError("no luck")

    def broken(content):
        raise ValueError("not a picture")

    with pytest.raises(DataError, match=r"File 'b\.jpg' can't be decoded: decode raised ValueError: not a picture\. M"):
        OpenedFileDecoder(broken, None).row("b.jpg", b"", np.random.default_rng)
    with pytest.raises(DataError, match=r"augment raised ArithmeticError: no luck\. Mend the function") as caught:
        OpenedFileDecoder(bytes_as_row, fails).row("b.jpg", b"1", np.random.default_rng)
    assert isinstance(caught.value.__cause__, ArithmeticError)


@pytest.mark.parametrize("given", [None, "text", {"a": 1}, [object()]])
def test_what_is_no_array_of_numbers_is_refused(given):
    with pytest.raises(TypeError, match="which is no array of numbers"):
        as_row(given)


def test_tensors_of_torch_are_rows():
    tensor = SimpleNamespace(detach=lambda: SimpleNamespace(cpu=lambda: np.arange(3)))
    assert as_row(tensor).tolist() == [0, 1, 2]


@pytest.mark.parametrize("content", [b"123", b"1"], ids=["longer", "of another shape that could be broadcast"])
def test_a_row_that_is_not_like_the_others_is_refused(content):
    out = np.zeros(2, np.uint8)
    decoder = OpenedFileDecoder(bytes_as_row, None)
    decoder.into(out, "a", b"\3\4", np.random.default_rng)
    assert out.tolist() == [3, 4]
    with pytest.raises(DataError, match=r"File 'c' becomes uint8 \(\d,\), and the first file became uint8 \(2,\)"):
        decoder.into(out, "c", content, np.random.default_rng)


def test_a_dtype_is_never_converted():
    with pytest.raises(DataError, match=r"becomes float64 \(2,\)"):
        OpenedFileDecoder(lambda content: [0.5, 1.5], None).into(np.zeros(2, "f4"), "c", b"", np.random.default_rng)
