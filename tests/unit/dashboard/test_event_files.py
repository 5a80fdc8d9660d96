"""Event files of TensorBoard, read back as they were written."""

from __future__ import annotations

import math

import pytest

from dask_train.dashboard.event_files import logged_values
from dask_train.logging.event_file import EventFile


@pytest.fixture
def written(tmp_path):
    file = EventFile(tmp_path)
    file.text("parameters", "| lr | 0.1 |", 99.5)
    file.scalars([("loss", 0.5, 0, 100.0), ("val_loss", math.nan, 300, 101.0)])
    file.plugin("_hparams_/x", "hparams", b"content", 102.0)
    file.scalars([("loss", -0.25, 1 << 40, 103.0)])
    return file.path.read_bytes()


def test_numbers_and_texts_come_back(written):
    found = list(logged_values(written))
    assert found[0] == ("parameters", "| lr | 0.1 |", 0, 99.5)
    assert found[1] == ("loss", 0.5, 0, 100.0)
    assert (found[2].tag, found[2].step) == ("val_loss", 300)
    assert math.isnan(found[2].value)
    assert found[-1] == ("loss", -0.25, 1 << 40, 103.0)
    assert {each.tag for each in found} == {"parameters", "loss", "val_loss"}, "what a plug-in reads is no score"


def test_a_file_that_is_being_written_ends_with_its_last_whole_record(written):
    whole = list(map(repr, logged_values(written)))
    for end in range(len(written)):
        found = list(map(repr, logged_values(written[:end])))
        assert found == whole[: len(found)]
    assert len(list(logged_values(written[:-20]))) == 3


def test_another_file_is_refused_or_empty():
    assert list(logged_values(b"no event file at all")) == []
    with pytest.raises(ValueError, match="An event file"):
        list(logged_values(b"\x02" + b"\0" * 11 + b"\xff\xff" + b"\0" * 4))
