"""Feeds on real Dask workers: each batch once, what lies there without a copy, bounded, and ended by an error."""

from __future__ import annotations

import asyncio
from queue import Empty

import numpy as np
import pytest
from distributed import Client, Event, get_worker, wait

import dask_train as dt


def take(num_items):
    """Take batches; the first number of each, and whether it is the object that Dask holds here."""
    worker = get_worker()
    batches = [worker.tensorflow_queue.get(timeout=30) for _ in range(num_items)]
    held = {id(value) for value in worker.data.values()}
    return [(int(batch[0]), id(batch) in held) for batch in batches]


def take_until(name):
    """Take batches until the event is set and none is left; the first number of each."""
    over, taken = Event(name), []
    while True:
        try:
            taken.append(int(get_worker().tensorflow_queue.get(timeout=0.05)[0]))
        except Empty:
            if over.is_set():
                return taken


def arrays(numbers):
    return [np.full(3, number) for number in numbers]


def test_what_lies_there_is_handed_over_and_nothing_twice(client):
    with dt.start_tensorflow(client, worker=2, ps=1, queue_size=3, leave_servers=True) as net:
        first, second = net.dask_spec["worker"]
        local = [
            client.scatter(arrays(numbers), workers=[place], hash=False)
            for place, numbers in ((first, range(3)), (second, range(3, 6)))
        ]
        # one from here, one from there: what is told first must not matter
        feed = net.feed([batch for pair in zip(*reversed(local), strict=True) for batch in pair], to="worker")
        assert feed.wait(60) is feed
        assert (feed.waiting, feed.delivered) == (0, 6)
        assert repr(feed) == "<Feed to worker: 6 delivered, 0 waiting>"
        taken = client.gather(net.submit("worker", take, 3))
        assert [sorted(items) for items in taken] == [[(n, True) for n in range(3)], [(n, True) for n in range(3, 6)]]
        assert all(len(holders) == 1 for holders in client.who_has([*local[0], *local[1]]).values()), "none was moved"


def test_what_lies_elsewhere_is_moved_to_one_of_them(client, wait_for):
    with dt.start_tensorflow(client, worker=2, ps=1, queue_size=2, leave_servers=True) as net:
        feed = net.feed(client.scatter(arrays(range(8)), workers=net.dask_spec["ps"], hash=False), to="worker")
        wait_for(lambda: feed.delivered == 4, "both queues are full")
        roles = net.submit("worker", take_until, "all fed")
        feed.wait(60)
        Event("all fed", client=client).set()
        taken = client.gather(roles)
        assert sorted(taken[0] + taken[1]) == list(range(8))
        assert min(map(len, taken)) >= 2


def put_own(num_items):
    for _ in range(num_items):
        get_worker().tensorflow_queue.put("mine", timeout=30)


def take_any(num_items):
    queue, taken = get_worker().tensorflow_queue, []
    for _ in range(num_items):
        assert len(queue) <= queue.maxsize
        taken.append(queue.get(timeout=30))
    return sorted(item if isinstance(item, str) else str(item[0]) for item in taken)


def test_a_role_may_use_the_queue_itself(client):
    with dt.start_tensorflow(client, worker=1, queue_size=1, leave_servers=True) as net:
        net.feed(client.map(lambda n: np.full(3, n), range(20)), to="worker")
        putting = net.submit("worker", put_own, 20)
        taking = net.submit("worker", take_any, 40)
        assert taking[0].result(timeout=60) == sorted([*map(str, range(20)), *["mine"] * 20])
        putting[0].result(timeout=60)


def queue_length(dask_worker):
    return len(dask_worker.tensorflow_queue)


def test_a_full_queue_blocks_neither_the_event_loop_nor_the_only_thread(client, wait_for):
    with dt.start_tensorflow(client, worker=1, queue_size=2, leave_servers=True) as net:
        place = net.dask_spec["worker"]
        feed = net.feed(client.map(lambda n: np.full(3, n), range(10), workers=place, pure=False), to="worker")
        wait_for(lambda: feed.delivered == 2, "the queue is full")
        assert client.submit(sum, [1, 2], workers=place, pure=False).result(timeout=60) == 3
        assert client.run(queue_length, workers=place) == {place[0]: 2}
        with pytest.raises(dt.StalledError, match=r"The delivery of all 10 batches did not happen within 0\.2 s"):
            feed.wait(0.2)
        assert repr(feed) == "<Feed to worker: 2 delivered, 8 waiting>"
        taken = net.submit("worker", take, 10)[0].result(timeout=60)
        assert sorted(number for number, _ in taken) == list(range(10))


def number_when_told(number, name):
    assert Event(name).wait(60)
    return np.full(3, number)


def test_one_thread_prepares_feeds_and_trains(client):
    with dt.start_tensorflow(client, worker=2, ps=1, queue_size=1, leave_servers=True) as net:
        roles = net.submit("worker", take_until, "all prepared and fed")
        # none is ready when they are fed, and each Dask worker has one thread for all that it does
        batches = client.map(number_when_told, range(10), name="prepared", pure=False)
        feed = net.feed(batches, to="worker")
        assert feed.delivered == 0
        Event("prepared", client=client).set()
        feed.wait(60)
        Event("all prepared and fed", client=client).set()
        taken = client.gather(roles)
        assert sorted(taken[0] + taken[1]) == list(range(10))


def test_what_is_delivered_is_kept_alive_no_longer(client, wait_for):
    with dt.start_tensorflow(client, worker=1, queue_size=4, leave_servers=True) as net:
        batches = client.map(lambda n: np.full(3, n), range(6), pure=False)
        keys = {batch.key for batch in batches}
        feed = net.feed(batches, to="worker")
        del batches
        wait_for(lambda: feed.delivered == 4, "the queue is full")
        wait_for(lambda: len(keys & set(client.futures)) == 2, "the four that were delivered are released")
        net.submit("worker", take, 6)[0].result(timeout=60)
        feed.wait(60)


def no_such_row(number):
    if number == 1:
        raise LookupError("no such row: 17")
    return np.full(3, number)


def test_a_batch_that_fails_is_told_and_the_others_are_delivered(client, wait_for):
    with dt.start_tensorflow(client, worker=1, leave_servers=True) as net:
        batches = client.map(no_such_row, range(4))
        wait(batches)
        for feed in (
            net.feed(batches, to="worker"),
            net.feed(client.map(no_such_row, range(4), pure=False), to="worker"),
        ):
            with pytest.raises(
                dt.DataError,
                match=r"1 of 4 batches can't be fed; the first, no_such_row-.*, ended in an error: "
                r"LookupError\('no such row: 17'\)\. Mend what computes it",
            ):
                feed.wait(60)
            taken = net.submit("worker", take, 3)[0].result(timeout=60)
            assert sorted(number for number, _ in taken) == [0, 2, 3]
            wait_for(lambda feed=feed: not feed.waiting, "the others are delivered")


def test_a_batch_that_is_released_is_told(client):
    with dt.start_tensorflow(client, worker=1, leave_servers=True) as net:
        batches = client.map(number_when_told, range(2), name="released", pure=False)
        feed = net.feed(batches, to="worker")
        client.cancel(batches[:1])
        with pytest.raises(dt.DataError, match=r"1 of 2 .* was released, or lost with its Dask worker, before it was"):
            feed.wait(60)
        Event("released", client=client).set()
        gone = client.submit(sum, [1])
        client.cancel([gone])
        with pytest.raises(dt.DataError, match=f"1 of 1 batches were cancelled or released; the first is {gone.key}"):
            net.feed([gone], to="worker")
        assert net.submit("worker", take, 1)[0].result(timeout=60)[0][0] == 1


def test_a_cancelled_feed_delivers_no_more(client, wait_for, state):
    with dt.start_tensorflow(client, worker=1, queue_size=1, leave_servers=True) as net:
        feed = net.feed(client.map(lambda n: np.full(3, n), range(3)), to="worker")
        wait_for(lambda: feed.delivered == 1, "the queue is full")
        feed.cancel()
        with pytest.raises(dt.ClosedError, match="<Feed to worker: 1 delivered, 2 waiting> was cancelled"):
            feed.wait(60)
        assert state(client)["feeds"] == ()
        net.submit("worker", take, 1)[0].result(timeout=60)
        assert client.run(queue_length, workers=net.dask_spec["worker"]) == {net.dask_spec["worker"][0]: 0}


def take_all():
    return [int(batch[0]) for batch in get_worker().tensorflow_queue]


def test_closing_ends_feeds_and_queues(client, wait_for):
    net = dt.start_tensorflow(client, worker=1, queue_size=1, leave_servers=True)
    idle = net.submit("worker", take_all)
    feed = net.feed(client.map(number_when_told, range(3), name="never", pure=False), to="worker")
    net.close()
    with pytest.raises(dt.ClosedError, match="The network was closed with 3 batches waiting"):
        feed.wait(60)
    with pytest.raises(dt.ClosedError, match=f"Network {net.id} was closed"):
        idle[0].result(timeout=60)
    with pytest.raises(dt.ClosedError, match=f"Network {net.id} is closed"):
        net.feed(client.scatter([1]), to="worker")
    Event("never", client=client).set()


def test_wrong_arguments_are_refused(client):
    with dt.start_tensorflow(client, worker=1, leave_servers=True) as net:
        batch = client.scatter([1], hash=False)
        for batches, to, error, text in (
            ([], "worker", ValueError, "feed was given no batches"),
            (batch, "chief", ValueError, "no job 'chief'; its jobs are worker"),
            ([*batch, *batch], "worker", ValueError, "the same batch twice. Feed it in two calls"),
            ([*batch, 3], "worker", TypeError, r"Dask futures, not a int\. client\.compute\("),
        ):
            with pytest.raises(error, match=text):
                net.feed(batches, to=to)
        with pytest.raises(ValueError, match="timeout_s is 0; a deadline is a finite number"):
            net.feed(batch, to="worker").wait(0)
        assert net.submit("worker", lambda: get_worker().tensorflow_queue.get(timeout=30))[0].result(timeout=60) == 1


def test_with_an_asynchronous_client(client, without_tensorflow):
    async def run():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            async with await dt.start_tensorflow(other, worker=1, leave_servers=True) as net:
                scores = await dt.board("asynchronous scores", client=other)
                roles = net.submit("worker", take_and_score, "asynchronous scores")
                feed = await net.feed([other.submit(np.full, 3, 7)], to="worker")
                assert await feed.wait(60) is feed
                assert await scores.wait_until(lambda s: s[-1] == 7, 30) is scores
                assert await roles[0] == 7
                with pytest.raises(dt.StalledError, match=rf"A loss in network {net.id} did not happen within 0\.01 s"):
                    await net.wait_lost(0.01)
                await scores.append("last")
                assert scores[-1] == "last"
                await scores.delete()
            assert net.status == "closed"
            await net.close()

    asyncio.run(run())


def take_and_score(name):
    number = int(get_worker().tensorflow_queue.get(timeout=30)[0])
    dt.board(name).append(number)
    return number
