"""Trials of a search are rows of TensorBoard's HParams page: what its plug-in reads is what was tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_train.logging.base import Ending, Start
from dask_train.logging.tensorboard import TensorBoard


def told_of(file: Path, events: Callable[[Path], list[Any]]) -> dict[str, Any]:
    """What a file says to the plug-in, by tag, read with TensorBoard's own messages."""
    from tensorboard.plugins.hparams import plugin_data_pb2

    values = [value for event in events(file) for value in event.summary.value]
    found = {}
    for value in values:
        if value.metadata.plugin_data.plugin_name == "hparams":
            assert value.metadata.data_class == 2, "a tensor"
            found[value.tag] = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
    return found


@pytest.mark.parametrize(("status", "code"), [("finished", 1), ("stopped", 1), ("failed", 2)])
def test_a_trial_tells_its_parameters_and_its_end(tmp_path, events, status, code):
    search = TensorBoard(tmp_path).open(Start(run="s", params={"trials": 2}, time=1.0), None)
    params = {"units": 8, "rate": 0.25, "nesterov": True, "kind": "ädam", "layers": (1, 2)}
    trial = TensorBoard(tmp_path).open(Start(run="trial-0", params=params, time=2.0), search)
    trial.write([{"epoch": 0, "num_steps": 1, "loss": 0.5}])
    trial.end(Ending(status=status, reason="", time=3.0))
    search.end(Ending(status="finished", reason="", time=4.0))
    (file,) = (tmp_path / "s" / "trial-0").iterdir()
    told = told_of(file, events)
    start = told["_hparams_/session_start_info"].session_start_info
    assert start.start_time_secs == 2.0
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
    assert values == {"units": 8.0, "rate": 0.25, "nesterov": True, "kind": "ädam", "layers": "(1, 2)"}
    assert values["nesterov"] is True
    end = told["_hparams_/session_end_info"].session_end_info
    assert (end.status, end.end_time_secs) == (code, 3.0)
    (of_search,) = (tmp_path / "s").glob("events.*")
    assert told_of(of_search, events) == {}, "a search is no row beside its trials"
