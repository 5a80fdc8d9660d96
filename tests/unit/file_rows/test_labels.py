"""Labels are numbers of folders' names, or what a function says."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.file_rows.labels import labels_of

PATHS = ("/data/dog/1.jpg", "/data/cat/2.jpg", "bucket/data/dog/3.jpg")


def test_folders_are_numbered_in_the_order_of_their_names():
    labels, classes = labels_of(PATHS, "folder", None)
    assert (labels.tolist(), labels.dtype, classes) == ([1, 0, 1], np.int64, ("cat", "dog"))


def test_given_classes_keep_their_numbers():
    labels, classes = labels_of(PATHS, "folder", ["dog", "bird", "cat"])
    assert (labels.tolist(), classes) == ([0, 2, 0], ("dog", "bird", "cat"))


@pytest.mark.parametrize("classes", [["dog"], ["cat"]])
def test_a_label_that_is_no_class_is_refused(classes):
    with pytest.raises(ValueError, match=r"The label of '.*' is '(cat|dog)', and classes has '(cat|dog)'\. Add it"):
        labels_of(PATHS, "folder", classes)


def test_a_function_gives_names_numbers_or_arrays():
    assert labels_of(PATHS, lambda path: path[-5], None)[1] == ("1", "2", "3")
    labels, classes = labels_of(PATHS, lambda path: [float(path[-5]), 0.0], None)
    assert (labels.tolist(), classes) == ([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], None)


def test_no_labels():
    assert labels_of(PATHS, None, None) == (None, None)


@pytest.mark.parametrize(
    ("label", "classes", "message"),
    [
        ("name", None, "label is 'name'; it is 'folder', a function of a path, or None"),
        (None, ["cat"], "classes= names the classes of labels, and label is None"),
        ("folder", ["cat", "cat"], "pass each name once"),
        (len, ["cat"], "label gives 15, which is no name"),
        (lambda path: [0] * len(path), None, "label gives values of different shapes"),
        (lambda path: None, None, "label gives object"),
    ],
)
def test_what_can_not_be_a_label_is_refused(label, classes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        labels_of(PATHS, label, classes)
