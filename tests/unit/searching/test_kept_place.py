"""The place of a search, and what it refuses."""

from __future__ import annotations

import pytest

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError
from dask_train.searching.kept_place import KeptPlace


def test_a_state_comes_back_and_one_of_other_arguments_is_refused(tmp_path):
    def opened(resume, **arguments):
        place = CheckpointPlace(url=str(tmp_path / "kept"), run=f"run-{resume}", resume=resume)
        return KeptPlace(place, arguments, "state.pickle")

    first = opened(False, seed=1)
    assert first.load() is None
    first.check_same({"data": "3 rows"})
    first.store({"found": [1, 2]})
    first.close()
    again = opened(True, seed=1)
    told, _ = again.load()
    assert told == {"found": [1, 2], "arguments": {"seed": 1, "data": "3 rows"}}
    with pytest.raises(CheckpointError, match="data was '3 rows', and is '4 rows'"):
        again.check_same({"data": "4 rows"})
    again.close()
    other = opened(True, seed=2)
    with pytest.raises(CheckpointError, match="seed was 1, and is 2"):
        other.load()
    other.close()
