"""Files as data of ``fit``: what its columns are, and what can't go with them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import dask_train as dt
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.fitting.data import check_same_classes, run_inputs, split_off, validation_of
from dask_train.inputs.making import input_data


@pytest.fixture
def files(tmp_path) -> dt.FileRows:
    for number in range(4):
        path = tmp_path / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (3, 2), number).save(path)
    return dt.files(tmp_path / "*" / "*.png", label="folder", augment=lambda row, _: row[:, :2])


def test_columns_are_those_of_decoded_rows(files):
    data = input_data("data", files, None, None)
    assert [(one.dtype, one.row_shape) for one in data.columns] == [("|u1", (2, 2, 1)), ("<i8", ())]
    assert (data.columns.features, data.columns.labels) == (0, 1)
    assert data.source("data").columns[0].is_text, "as they lie in memory"


def test_files_to_validate_on_are_not_augmented(files):
    assert validation_of(files, None, None).columns[0].row_shape == (2, 3, 1)
    assert input_data("data", files, None, None, trains=False).columns[0].row_shape == (2, 3, 1)


@pytest.mark.parametrize("given", [{"y": np.zeros(4)}, {"sample_weight": np.ones(4)}, {"label": "y"}])
def test_labels_and_weights_besides_are_refused(files, given):
    with pytest.raises(ValueError, match=r"is a FileRows, which has inputs and labels together"):
        input_data("data", files, **{"y": None, "sample_weight": None, **given})


def test_other_classes_to_validate_on_are_refused(files, tmp_path):
    data, same = input_data("data", files, None, None), validation_of(files[1:], None, None)
    check_same_classes(data, same)
    other = dt.files(tmp_path / "1" / "*.png", label="folder")
    with pytest.raises(ValueError, match="The classes of validation_data are '1', and those of the data '0', '1'"):
        run_inputs(data, validation_of(other, None, None))
    run_inputs(data, validation_of(dt.files(tmp_path / "1/*.png", label="folder", classes=["0", "1"]), None, None))


def test_a_split_of_the_last_rows_is_refused(files):
    with pytest.raises(ValueError, match=r"train, test = files\.split\(0\.25\), and pass validation_data=test"):
        split_off(input_data("data", files, None, None), 0.25)


def test_names_of_classes_are_kept_as_categories_of_the_label(files, tmp_path):
    data = input_data("data", files, None, None)
    assert data.schema.classes == ["0", "1"]
    assert FrameSchema.from_json(json.loads(json.dumps(data.schema.to_json()))) == data.schema
    again = input_data("data", files[1:], None, None, like=Conformer(data.schema))
    assert again.schema == data.schema
    other = dt.files(tmp_path / "*" / "*.png", label="folder", classes=["1", "0"])
    with pytest.raises(ValueError, match="The classes of data are '1', '0', and the model knows '0', '1', so the same"):
        input_data("data", other, None, None, like=Conformer(data.schema))
    assert input_data("data", dt.files(tmp_path / "*" / "*.png"), None, None).schema is None
