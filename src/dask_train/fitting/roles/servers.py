"""All parameter servers of a run as one worker sees them: gradients out, weights back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

import keras
import numpy as np

from dask_train.fitting.roles.shards import columns_of, shards_of, slot_of
from dask_train.fitting.roles.weights import others_of, value_of
from dask_train.fitting.roles.worker_counts import WorkerCounts
from dask_train.fitting.spec import FitTask
from dask_train.role.session import Session
from dask_train.role.time_spent import OTHERS, TimeSpent
from dask_train.transport.channels import ask
from dask_train.transport.connections import Credentials
from dask_train.transport.dialling import dial

# How long a server may take to listen, at least, and as a part of the time for an answer: it is up, and puts its model
# together. A run in which no worker makes progress for two thirds of that time is ended, and knows less of the cause.
_LISTENS_S, _LISTENS_PART = 30.0, 0.6

# Of each worker: how many steps it has taken, and how often it has applied gradients in the step after.
Progress = dict[int, tuple[int, int]]
# An array; or indices of rows of a table, and values for them.
Gradient = tuple[np.ndarray, ...]


class Servers:
    """Lines to all of them.

    Parameters
    ----------
    model : keras.Model
        Built like theirs.
    addresses
        Of the servers.
    host, credentials
        Which host this is, and what servers of other hosts ask for.
    answer_timeout_s
        Timeout of a server's answer, in seconds.
    spent
        The account of this role's time, to which the waits for their answers go.

    Attributes
    ----------
    counts
        How many workers share the batches, as the first server has said last.
    """

    def __init__(
        self,
        model: Any,
        addresses: Sequence[str],
        host: str,
        credentials: Credentials,
        answer_timeout_s: float,
        spent: TimeSpent,
    ) -> None:
        self._answer_timeout_s, self._spent = answer_timeout_s, spent
        self.counts = WorkerCounts(())
        listens_s = max(_LISTENS_S, answer_timeout_s * _LISTENS_PART)
        self.shards = shards_of(model, len(addresses))
        with ExitStack() as undone:
            self._lines = [
                undone.enter_context(closing(dial(address, slot_of(model, shard), host, credentials, listens_s)))
                for address, shard in zip(addresses, self.shards, strict=True)
            ]
            undone.pop_all()
        self._columns = [columns_of(model, shard) for shard in self.shards]
        self._others, self._version, self._newest = others_of(model), 0, 0
        self._place_on_line = {
            place: (line, number)
            for line, shard in enumerate(self.shards)
            for number, place in enumerate(shard.weights)
        }

    def begin(self, rank: int, wait_s: float) -> tuple[bool, int, Any]:
        """Return whether they have weights, which this model takes over, with the moving averages of all workers.

        With them come this worker's steps, and what was passed to :meth:`remember`. Workers but the first, which brings
        the weights, wait up to ``wait_s`` seconds for them.
        """
        answers = self._ask("begin", rank=rank, wait_s=wait_s)
        ready, self._newest = all(each["ready"] for each in answers), answers[0]["version"]
        self.counts = answers[0]["counts"]
        if ready:
            self._take(range(len(self.shards)), "weights")
            self._take([0], "statistics")
            self.take_others()
        return ready, min(each["steps"] for each in answers), answers[0]["remembered"]

    def bring(
        self, progress: Sequence[Progress], counted: dict[int, list[np.ndarray]], counts: WorkerCounts, num_steps: int
    ) -> None:
        """Give them this model's weights, optimizer state and moving averages, to begin with.

        Parameters
        ----------
        progress
            For each server.
        counted
            What metrics have counted, by epoch.
        counts
            How many workers share the batches.
        num_steps
            Number of steps whose rows have been counted, of all workers.
        """
        self.counts = counts
        for line, columns in zip(self._lines, self._columns, strict=True):
            line.put(0, map(value_of, columns))
        shared = {"counted": counted, "counts": counts, "num_steps": num_steps}
        self._ask_each("bring", [{"progress": each} for each in progress], **shared)

    def share(self, first: int, workers: int) -> tuple[bool, int]:
        """Let that many workers share the batches from a step on.

        Returns
        -------
        bool, int
            Whether they do: no worker had begun that step. And the most steps that any of them had taken.
        """
        (answer,) = ask(self._lines[:1], [("share", {"first": first, "workers": workers})], self._answer_timeout_s)
        self.counts = answer["counts"]
        return answer["accepted"], answer["reached"]

    def wait_for_counts(self, wait_s: float) -> None:
        """Wait up to ``wait_s`` seconds until another number of workers shares the batches."""
        with self._spent.on(OTHERS):
            order = ("counts", {"known": self.counts, "wait_s": wait_s})
            (self.counts,) = ask(self._lines[:1], [order], self._answer_timeout_s)

    def skip(self, rank: int, steps: int) -> None:
        """Let a worker continue after that many steps, of which it has no share."""
        self._ask("skip", rank=rank, steps=steps)

    def apply(self, places: Sequence[int], gradients: Sequence[Gradient], **arguments: Any) -> list[np.ndarray]:
        """Let an optimizer apply gradients of some trainable variables; one copy, to where the servers read them.

        Parameters
        ----------
        places
            Of the variables, in ``model.trainable_variables``.
        gradients
            Theirs: an array each; or, of an embedding, indices of rows and values for them, which go with the message.
        **arguments
            ``rank``, ``steps`` with this one, ``index`` of this call in the step, ``optimizer`` by number, and the
            ``scale`` of the loss.

        Returns
        -------
        list of np.ndarray
            The new weights, where the line has them, good until servers are asked again.
        """
        numbers: list[list[int]] = [[] for _ in self._lines]
        slices: list[dict[int, Gradient]] = [{} for _ in self._lines]
        for place, gradient in zip(places, gradients, strict=True):
            line, number = self._place_on_line[place]
            if len(gradient) == 1:
                self._lines[line].put(number, gradient)
            else:
                slices[line][number] = gradient
            numbers[line].append(number)
        each = [{"places": tuple(some), "slices": sparse} for some, sparse in zip(numbers, slices, strict=True)]
        self._ask_each("apply", each, **arguments)
        return [self.given(place) for place in places]

    def given(self, place: int) -> np.ndarray:
        """Return a trainable variable as a server gave it last."""
        line, number = self._place_on_line[place]
        return self._lines[line].into[number]

    def step(self, *, statistics: bool, **arguments: Any) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Report a step; return the current weights, valid until servers are asked again, and the answer."""
        if statistics:
            first = len(self.shards[0].weights) + len(self.shards[0].slots)
            self._lines[0].put(first, map(value_of, self._columns[0][first:]))
        answers = self._ask_each(
            "step", [{"statistics": statistics and not n} for n in range(len(self._lines))], **arguments
        )
        self._newest, self.counts = answers[0]["version"], answers[0]["counts"]
        return [self.given(place) for place in range(len(self._place_on_line))], answers[0]

    def pull(self, seen: int, wait_s: float) -> dict[str, Any]:
        """Let this model take over the weights and moving averages of the moment.

        Wait up to ``wait_s`` seconds until the answer has another number of ``steps`` than ``seen``; -1 while not all
        servers have weights.
        """
        answers = self._ask("weights", seen=seen, wait_s=wait_s)
        if any(each["steps"] < 0 for each in answers):
            return {"steps": -1}
        self._newest = answers[0]["version"]
        self._take(range(len(self.shards)), "weights")
        self._take([0], "statistics")
        self.take_others()
        answer: dict[str, Any] = answers[0]
        return answer

    def remember(self, value: Any) -> None:
        """Let the first server keep something for a worker that takes the first one's place."""
        ask(self._lines[:1], [("remember", {"value": value})], self._answer_timeout_s)

    def give(self, variables: Sequence[Any]) -> None:
        """Give them this model's values of some weights, optimizer variables or moving averages."""
        wanted = {id(variable) for variable in variables}
        if any(id(variable) in wanted for variable in self._others):
            values = [np.array(value_of(variable)) for variable in self._others]
            ask(self._lines[:1], [("set_others", {"values": values})], self._answer_timeout_s)
        numbers: list[list[int]] = []
        for line, columns in zip(self._lines, self._columns, strict=True):
            numbers.append([number for number, variable in enumerate(columns) if id(variable) in wanted])
            for number in numbers[-1]:
                line.put(number, [value_of(columns[number])])
        self._ask_each("set", [{"places": each} for each in numbers])

    def take_others(self) -> bool:
        """Let this model take over what :func:`others_of` tells, where the first worker has set it since."""
        if self._version == self._newest:
            return False
        (answer,) = ask(self._lines[:1], [("others", {})], self._answer_timeout_s)
        self._version = answer["version"]
        for variable, value in zip(self._others, answer["values"], strict=True):
            variable.assign(keras.ops.cast(value, variable.dtype))
        return True

    def everything(self) -> dict[str, Any]:
        """Let this model take over weights, optimizer state and moving averages; what else a checkpoint holds.

        Returns
        -------
        dict
            ``steps`` by worker, ``progress`` of each server, ``counted``, ``num_steps`` with rows of all workers.
        """
        answers = self._ask("everything")
        servers = range(len(self.shards))
        for part in ("weights", "slots"):
            self._take(servers, part)
        self._take([0], "statistics")
        progress = [each["progress"] for each in answers]
        steps = {rank: min(each.get(rank, (0, 0))[0] for each in progress) for rank in progress[0]}
        first = answers[0]
        return {"steps": steps, "progress": progress, "counted": first["counted"], "num_steps": first["num_steps"]}

    def end(self, rank: int, *, stop: bool = False) -> None:
        """Report that this worker has gone through all of its batches; ``stop`` that the others are to end, too."""
        self._ask("end", rank=rank, stop=stop)

    def ended(self, known: set[int], wait_s: float) -> tuple[set[int], dict[int, int]]:
        """Return which workers have called :meth:`end`, and how many steps each has taken.

        Wait up to ``wait_s`` seconds until others than ``known`` have ended.
        """
        with self._spent.on(OTHERS):
            (answer,) = ask(self._lines[:1], [("ended", {"known": known, "wait_s": wait_s})], self._answer_timeout_s)
        return answer["ended"], answer["steps"]

    def close(self) -> None:
        """Hang up."""
        for line in self._lines:
            line.close()

    def _ask(self, order: str, **arguments: Any) -> list[Any]:
        return self._ask_each(order, [{}] * len(self._lines), **arguments)

    def _ask_each(self, order: str, each: Sequence[dict[str, Any]], **arguments: Any) -> list[Any]:
        with self._spent.on(OTHERS):
            return ask(self._lines, [(order, {**arguments, **one}) for one in each], self._answer_timeout_s)

    def _take(self, servers: Sequence[int], part: str) -> None:
        """Assign what has come: these servers' weights, slots, or statistics."""
        for server in servers:
            shard, columns = self.shards[server], self._columns[server]
            ends = [0, len(shard.weights), len(shard.weights) + len(shard.slots), len(columns)]
            number = ("weights", "slots", "statistics").index(part)
            some = slice(ends[number], ends[number + 1])
            for variable, value in zip(columns[some], self._lines[server].into[some], strict=True):
                variable.assign(keras.ops.cast(np.array(value), variable.dtype))


def servers_of(task: FitTask, model: Any, session: Session) -> Servers:
    """Lines to all parameter servers of a run."""
    credentials, spent = task.credentials(session), session._link.spent
    return Servers(model, session.peers["ps"], session.host, credentials, task.collective_timeout_s, spent)
