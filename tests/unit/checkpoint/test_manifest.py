"""What belongs to a checkpoint, and that it is what was written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.checkpoint.best import Best
from dask_train.checkpoint.manifest import FORMAT, DamagedError, Manifest, files_of, sha256_of
from dask_train.errors import CheckpointError

BEST = Best(of="loss", mode="min", score=0.25, checkpoint="checkpoint-00000000")
MANIFEST = Manifest(
    run="a-run",
    began=1.5,
    attempt=2,
    files={"weights": (3, "abc"), "inner/more": (0, "d")},
    covers=[("a-run", "worker", [[0, 0, 0, 32, 0, 7]])],
    saved=3.5,
    best=BEST,
)


def test_there_and_back():
    found = Manifest.from_bytes(MANIFEST.to_bytes())
    assert found == MANIFEST
    assert Manifest.from_bytes(found.to_bytes()) == found


def test_one_that_was_written_before_there_was_a_best():
    told = json.loads(Manifest(run="r", began=0.0, attempt=0, files={}).to_bytes())
    del told["best"], told["sha256"]
    told["format"] = 1
    assert Manifest.from_bytes(stored(told)).best is None


def stored(told):
    """With a checksum that fits."""
    import hashlib

    return json.dumps(
        {**told, "sha256": hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()}
    ).encode()


def test_a_later_format_is_told_of_and_not_damaged():
    told = json.loads(MANIFEST.to_bytes())
    del told["sha256"]
    with pytest.raises(CheckpointError, match=f"of run a-run has format {FORMAT + 1}, and .* reads up to {FORMAT}"):
        Manifest.from_bytes(stored({**told, "format": FORMAT + 1}))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b'{"format": 2}', b'{"sha256": ""}', b"\xff\xfe"])
def test_what_can_not_be_read_is_damaged(data):
    with pytest.raises(DamagedError, match=f"its manifest of {len(data)} bytes can't be read"):
        Manifest.from_bytes(data)


@given(st.data())
def test_a_change_of_any_byte_is_seen(data):
    written = bytearray(MANIFEST.to_bytes())
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] = data.draw(st.sampled_from([byte for byte in range(256) if byte != written[place]]))
    try:
        found = Manifest.from_bytes(bytes(written))
    except (DamagedError, CheckpointError):
        return
    assert found == MANIFEST  # a blank for another


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "weights").write_bytes(b"123")
    (tmp_path / "inner" / "more").write_bytes(b"")
    return tmp_path


def test_files_are_told_by_their_paths(folder):
    found = files_of(folder)
    assert list(found) == ["inner/more", "weights"]
    assert found["weights"] == (3, sha256_of(folder / "weights"))
    Manifest(run="r", began=0.0, attempt=0, files=found).check(folder)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda file: file.unlink(), "its file weights is missing"),
        (lambda file: file.write_bytes(b"12"), "its file weights has 2 of 3 bytes"),
        (lambda file: file.write_bytes(b"124"), "its file weights has other contents than were written"),
    ],
)
def test_a_file_that_is_not_what_was_written(folder, harm, why):
    manifest = Manifest(run="r", began=0.0, attempt=0, files=files_of(folder))
    harm(folder / "weights")
    with pytest.raises(DamagedError, match=why):
        manifest.check(folder)
