"""Arguments of ``start_tensorflow`` that are refused before any client is needed."""

from __future__ import annotations

import pytest

from dask_train import start_tensorflow


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"on": "tcp://10.0.0.5:4011"}, TypeError, r"on is 'tcp://.*'; pass a list of Dask worker addresses"),
        ({"on": [0, 1]}, TypeError, r"on is \[0, 1\]; pass a list"),
        ({"on": 3}, TypeError, "on is 3; pass a list"),
        ({"on": ["a", "b", "a"]}, ValueError, "on names a twice"),
        ({"queue_size": 0}, ValueError, "queue_size is 0; a queue holds at least 1 batch"),
        ({"queue_size": 2.5}, ValueError, r"queue_size is 2\.5"),
        ({"queue_size": True}, ValueError, "queue_size is True"),
        ({"worker": 0}, ValueError, "worker=0 asks for no task"),
        ({"client": {}}, TypeError, r"client is \{\}; pass a distributed\.Client"),
        ({"client": "tcp://10.0.0.5:8786"}, TypeError, r"client is 'tcp://.*'; pass a distributed\.Client"),
        ({"jobs": {"a-b": 1}}, ValueError, "'a-b' can't be a job name"),
    ],
)
def test_bad_arguments_are_refused(settings, error, text):
    with pytest.raises(error, match=text):
        start_tensorflow(**settings)
