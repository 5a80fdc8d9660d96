"""What ``--json`` prints."""

from __future__ import annotations

import json

import numpy as np

from dask_train.cli.json_output import print_json


def test_numbers_that_json_lacks_are_null_and_objects_texts(capsys):
    print_json({"nan": float("nan"), 1: (np.float64(0.5), None, True), "path": object})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"nan": None, "1": [0.5, None, True], "path": "<class 'object'>"}
    assert printed.count("\n") == 1
