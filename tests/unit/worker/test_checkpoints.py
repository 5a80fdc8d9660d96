"""Whether checkpoints can be kept at a place, as a Dask worker sees it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.worker.checkpoints import why_none_are_kept

TEST_S = 20.0


def test_a_folder_that_can_be_made_will_do(tmp_path):
    assert asyncio.run(why_none_are_kept(CheckpointPlace(url=str(tmp_path / "new" / "one")))) == ""
    assert list((tmp_path / "new" / "one").iterdir()) == [], "nothing of the trial is left"


@pytest.mark.parametrize("below", ["", "inside"])
def test_a_place_that_will_not_do_is_told_in_a_sentence(tmp_path, below):
    (tmp_path / "file").write_text("")
    why = asyncio.run(why_none_are_kept(CheckpointPlace(url=str(tmp_path / "file" / below))))
    assert str(tmp_path / "file") in why
    assert why.endswith(".")


def test_the_event_loop_goes_on_while_a_slow_place_is_tried(monkeypatch):
    looked = threading.Event()
    monkeypatch.setattr(CheckpointFolder, "check", lambda _: looked.wait(TEST_S) or pytest.fail("the loop stands"))

    async def run() -> str:
        asking = asyncio.ensure_future(why_none_are_kept(CheckpointPlace(url="/anywhere")))
        await asyncio.sleep(0)
        looked.set()
        return await asking

    assert asyncio.run(run()) == ""


def test_an_error_of_ours_is_not_taken_for_an_answer(monkeypatch):
    def fails(_: CheckpointFolder) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(CheckpointFolder, "check", fails)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(why_none_are_kept(CheckpointPlace(url="/anywhere")))
