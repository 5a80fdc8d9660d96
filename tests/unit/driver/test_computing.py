"""A run that waits for what Dask computes."""

from __future__ import annotations

import asyncio

from dask_train.driver.computing import while_computed


class Peer:
    """Asks a scheduler that computes as long as ``computes`` is true."""

    computes = True

    def __init__(self):
        self.asked = []
        self.answered = asyncio.Event()

    async def ask(self, handler, *, keys):
        self.asked.append((handler, keys))
        if len(self.asked) > 3:
            self.answered.set()
        return {"status": "OK", "computes": self.computes}


async def waited(peer, told):
    async with while_computed(peer, lambda: ["a", ("b", 1)], 0.001, lambda: told.append(1)):
        await asyncio.wait_for(peer.answered.wait(), 60)
    known = len(peer.asked)
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert len(peer.asked) == known, "nobody asks any more"


def test_it_is_told_as_long_as_it_is_computed():
    async def story(*, computes):
        peer, told = Peer(), []
        peer.computes = computes
        await waited(peer, told)
        assert set(map(repr, peer.asked)) == {repr(("train_run_computes", ["a", ("b", 1)]))}
        return len(told)

    assert asyncio.run(story(computes=True)) >= 3
    assert asyncio.run(story(computes=False)) == 0
