"""Which methods of a plug-in clients and Dask workers may call."""

from __future__ import annotations

from types import SimpleNamespace

from dask_train.scheduler.handlers import register_handlers


class Owner:
    """Answers one question."""

    def __init__(self) -> None:
        self.asked = 0

    async def train_question(self) -> int:
        self.asked += 1
        return self.asked

    def constrain(self) -> None:
        """Nobody may call it from elsewhere."""

    def _train_own(self) -> None:
        """Nor this."""


def test_those_with_the_prefix_and_no_others():
    scheduler = SimpleNamespace(handlers={"identity": str, "train_question": None})
    owner = Owner()
    register_handlers(scheduler, owner)
    assert scheduler.handlers == {"identity": str, "train_question": owner.train_question}
