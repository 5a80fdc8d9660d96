"""A task that waits leaves its thread to others: on a cluster in this process whose Dask worker has one thread."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from distributed import Client, get_client, get_worker, worker_client

from dask_train.cluster.in_tasks import frees_its_thread, is_in_task, thread_is_free

TIMEOUT_S = 20


@pytest.fixture(scope="module")
def client(local_clusters):
    """A client of a Dask worker with one thread."""
    with local_clusters() as make, Client(make(1, processes=False)) as client:
        yield client


def waits_for_another(value):
    """What only ends where the other task gets the only thread."""
    return get_client().submit(int, value, pure=False).result(timeout=TIMEOUT_S)


def run(client, function, *args):
    return client.submit(function, *args, pure=False).result(timeout=2 * TIMEOUT_S)


def test_another_task_runs_while_one_waits(client):
    def task():
        with thread_is_free():
            return waits_for_another("7")

    assert run(client, task) == 7


def test_a_verb_frees_the_thread_for_as_long_as_it_takes(client):
    @frees_its_thread
    def verb(value, *, plus=0):
        """Waits."""
        return waits_for_another(value) + plus

    def task():
        return [verb(str(number), plus=1) for number in range(3)], threading.current_thread().name

    found, _ = run(client, task)
    assert found == [1, 2, 3], "the task has come back into the pool each time, and leaves it again"
    assert (verb.__name__, verb.__doc__) == ("verb", "Waits.")


def test_the_task_has_its_place_again_when_the_wait_ends_even_with_an_error(client):
    def is_in_pool():
        return threading.current_thread() in get_worker().executors["default"]._threads

    def task():
        inside = []
        with suppress(ZeroDivisionError), thread_is_free():
            inside.append(is_in_pool())
            raise ZeroDivisionError
        return inside, is_in_pool()

    assert run(client, task) == ([False], True)


def test_within_another_such_wait_nothing_happens(client):
    def task():
        with thread_is_free():
            with thread_is_free():
                inner = waits_for_another("1")
            return inner, waits_for_another("2")

    assert run(client, task) == (1, 2)


def test_a_task_that_has_left_the_pool_already(client):
    def task():
        with worker_client():
            with thread_is_free():
                inner = waits_for_another("1")
            return inner, waits_for_another("2"), is_in_task()

    assert run(client, task) == (1, 2, True)


def test_what_it_raises_is_raised(client):
    @frees_its_thread
    def verb():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(client, verb)
    with pytest.raises(KeyError, match="mine"):
        verb()


def test_outside_of_tasks_nothing_happens(client):
    with thread_is_free():
        assert waits_for_another("7") == 7
    assert frees_its_thread(lambda: 3)() == 3
    assert not is_in_task()


def test_a_thread_that_a_task_has_started_is_none_of_the_pool(client):
    def in_thread(found):
        with thread_is_free():
            found.append(is_in_task())

    def task():
        found = []
        thread = threading.Thread(target=in_thread, args=(found,))
        thread.start()
        thread.join(TIMEOUT_S)
        return found, is_in_task()

    assert run(client, task) == ([False], True)
