"""Start a network: reserve places, compare environments, bind and send ports, start servers; or leave nothing."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client

from dask_train.cluster import installed as environment
from dask_train.cluster.by_value import ByValue
from dask_train.cluster.own_cluster import Shield
from dask_train.cluster.peer import Peer
from dask_train.config import Deadlines
from dask_train.errors import ClosedError, LaunchError, PlacementError, RoleLostError, VersionMismatchError
from dask_train.extras import install_command
from dask_train.roles import AddressBook
from dask_train.tensorflow_network import member
from dask_train.tensorflow_network.plugin import ensure_networks_plugin

# How much of a version must be the same on both sides: pickled code and gRPC messages cross between them.
_SAME_PARTS = {"python": 2, "dask_train": 3, "tensorflow": 2}


# After a failure, members are asked to drop what they hold, but one that hangs is not waited for longer than this.
UNDO_S = 5.0


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """What was asked for.

    Attributes
    ----------
    id
        Names the network in messages, errors and the scheduler.
    counts
        Tasks by job; empty for job ``worker`` on every free Dask worker.
    on
        The Dask workers to choose from, in this order; None for all, spread over the hosts.
    leave_servers
        Whether closing leaves the servers in their processes instead of restarting the Dask workers.
    queue_size
        How many batches each member's queue holds.
    start_server
        Starts the server of one task, in a thread of the Dask worker.
    """

    id: str
    counts: dict[str, int]
    on: Sequence[str] | None
    leave_servers: bool
    queue_size: int
    start_server: Callable[[AddressBook, str, int], Any]


async def launch(client: Client, plan: NetworkPlan, deadlines: Deadlines) -> tuple[AddressBook, AddressBook]:
    """Raise the network; what its servers and its Dask workers are called.

    Raises
    ------
    PlacementError, LaunchError, VersionMismatchError
        It can't be raised. Nothing is left behind: where servers had started, their Dask workers were restarted.
    """
    peer = Peer(client)
    await ensure_networks_plugin(peer)
    try:
        dask_spec = await _reserve(peer, plan, deadlines)
    except PlacementError:  # nothing was leased
        raise
    except BaseException:  # it may be by now, or come to be
        await _to_its_end(_give_back(peer, plan))
        raise
    members = _Members(peer, dask_spec, deadlines.launch_s)
    shield = Shield(peer)
    try:
        await shield.up()
        probe = ByValue(environment.installed_versions, environment)
        _compare_versions(dask_spec.tasks(), await members.run("tell its versions", probe))
        queue_settings = (plan.queue_size, deadlines.progress_s)
        addresses = iter(await members.run("bind a port", member.join, plan.id, dask_spec, *queue_settings))
        tf_spec = AddressBook({job: [next(addresses) for _ in places] for job, places in dask_spec.items()})
    except BaseException:
        await _to_its_end(_drop(peer, plan, dask_spec, shield))
        raise
    try:
        await members.run("start its server", member.start, plan.id, plan.start_server, tf_spec)
        await _check_alive(peer, plan)
    except BaseException as error:
        await _to_its_end(_end(peer, plan, dask_spec, deadlines, shield, error))
        raise
    return tf_spec, dask_spec


async def _to_its_end(undoing: Coroutine[Any, Any, None]) -> None:
    """Await what undoes a launch; also where the wait is cancelled meanwhile, which is raised afterwards."""
    task = asyncio.ensure_future(undoing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _give_back(peer: Peer, plan: NetworkPlan) -> None:
    """Give back a lease of which no answer has come; the scheduler refuses a request for it that comes later."""
    with suppress(TimeoutError, RoleLostError):
        await asyncio.wait_for(peer.ask("train_forget", network=plan.id, spent=False), UNDO_S)


async def _drop(peer: Peer, plan: NetworkPlan, dask_spec: AddressBook, shield: Shield) -> None:
    """Undo a launch in which no server was started yet."""
    await shield.down()
    await _undo(peer, plan, dask_spec)
    await peer.ask("train_forget", network=plan.id, spent=False)


async def _end(
    peer: Peer,
    plan: NetworkPlan,
    dask_spec: AddressBook,
    deadlines: Deadlines,
    shield: Shield,
    error: BaseException,
) -> None:
    """Undo a launch in which servers were started."""
    try:
        await _restart(peer, plan, dask_spec, deadlines, error)
    finally:
        await shield.down()


class _Members:
    """The Dask workers of a network that is being raised, with one deadline for all that they are asked to do."""

    def __init__(self, peer: Peer, dask_spec: AddressBook, launch_s: float) -> None:
        self._peer = peer
        self._tasks = list(dask_spec.tasks())
        self._launch_s = launch_s
        self._deadline = asyncio.get_running_loop().time() + launch_s

    async def run(self, what: str, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run ``function`` on all of them at once; the results in order.

        Raises
        ------
        LaunchError
            It failed on one of them, or the deadline passed.
        """

        async def one(address: str) -> Any:
            answer = await self._peer.on_workers(function, *args, workers=[address])
            return answer[address]

        running = {asyncio.create_task(one(task[2])): task for task in self._tasks}
        try:
            left_s = max(0.0, self._deadline - asyncio.get_running_loop().time())
            done, late = await asyncio.wait(running, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in running:
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for task in done:
            if (error := task.exception()) is not None:
                job, index, address = running[task]
                raise LaunchError(f"{job} {index} could not {what} on {address}: {_words(error)}") from error
        if late:
            self._raise_late(what, [running[task] for task in late])
        return [task.result() for task in running]

    def _raise_late(self, what: str, late: list[tuple[str, int, str]]) -> None:
        missing = ", ".join(f"{job} {index} on {address}" for job, index, address in sorted(late))
        raise LaunchError(
            f"{len(late)} of {len(self._tasks)} Dask workers did not {what} within {self._launch_s:g} s: {missing}.",
            "Importing TensorFlow takes seconds of a core for each of them.",
            "Look at what these Dask workers do, or raise train.launch.timeout.",
        )


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, LaunchError) else f"{type(error).__name__}: {error}."


async def _undo(peer: Peer, plan: NetworkPlan, dask_spec: AddressBook) -> None:
    """Let the Dask workers drop what was made there for the network; those that are gone or hang need not."""
    addresses = [address for _, _, address in dask_spec.tasks()]
    with suppress(TimeoutError, OSError):
        leaving = peer.on_workers(member.leave, plan.id, workers=addresses, on_error="ignore")
        await asyncio.wait_for(leaving, UNDO_S)


async def _restart(
    peer: Peer, plan: NetworkPlan, dask_spec: AddressBook, deadlines: Deadlines, error: BaseException
) -> None:
    """End the network after a launch that failed."""
    answer = await peer.ask("train_close", network=plan.id, force=False, timeout_s=deadlines.close_s)
    if plan.leave_servers:
        await _undo(peer, plan, dask_spec)
    if answer["status"] == "held":
        await _undo(peer, plan, dask_spec)
        await peer.ask("train_forget", network=plan.id, spent=True)
        error.add_note(
            "Its Dask workers were not restarted, so servers that had started stay in their processes: "
            f"{len(answer['keys'])} results lie only there and can't be moved: {', '.join(answer['keys'][:10])}."
        )


async def _reserve(peer: Peer, plan: NetworkPlan, deadlines: Deadlines) -> AddressBook:
    # Pickled here, in the text protocol, because the scheduler may lack the classes; the mark is replaced there.
    lost = RoleLostError("@reason@", change="Close the network and start it again.")
    errors = {"lost": pickle.dumps(lost, protocol=0), "closed": pickle.dumps(ClosedError("@reason@"), protocol=0)}
    answer = await peer.ask(
        "train_reserve",
        network=plan.id,
        client=peer.id,
        counts=plan.counts,
        on=list(plan.on) if plan.on is not None else None,
        leave_servers=plan.leave_servers,
        errors=errors,
        close_s=deadlines.close_s,
    )
    match answer["status"]:
        case "OK":
            return AddressBook({job: list(places) for job, places in answer["jobs"].items()})
        case "unknown":
            raise PlacementError(
                f"on= names {', '.join(answer['addresses'])}, which the cluster does not have.",
                f"Its Dask workers are {', '.join(answer['known']) or 'none'}.",
                "A restarted Dask worker comes back at a new address; look them up with client.scheduler_info().",
            )
        case "no nanny":
            raise PlacementError(
                f"{len(answer['addresses'])} of the Dask workers have no nanny: {', '.join(answer['addresses'])}.",
                "A TensorFlow server can't be stopped, so the end of a network restarts its Dask workers.",
                "Start them with a nanny, or pass leave_servers=True to leave the servers in their processes.",
            )
        case "forgotten":
            raise ClosedError(f"Network {plan.id} was given up before it was reserved.", change="Start a new one.")
        case "no client":
            raise PlacementError(
                f"The Dask scheduler does not know the client {peer.id}.",
                "Its connection was lost, and perhaps it is about to connect again.",
            )
        case _:
            raise _too_few(plan, answer)


def _too_few(plan: NetworkPlan, answer: dict[str, Any]) -> PlacementError:
    requested_tasks = ", ".join(f"{job}={count}" for job, count in plan.counts.items()) or "worker on every Dask worker"
    where = "in on=" if plan.on is not None else "in the cluster"
    if not answer["free"] and not answer["taken"]:
        return PlacementError(
            f"{requested_tasks}: there are no Dask workers {where}.",
            change="Start some (dask worker, or cluster.scale), and wait for them with client.wait_for_workers.",
        )
    return PlacementError(
        f"{requested_tasks} needs {answer['need'] or 'at least 1'} Dask workers, one a task, "
        f"and {answer['free']} of {answer['free'] + len(answer['taken'])} {where} are free.",
        " ".join(f"{address} {why}." for address, why in answer["taken"].items()),
        "Ask for fewer tasks, add Dask workers, or close what holds them (client.restart_workers frees them, too).",
    )


def _compare_versions(tasks: Iterable[tuple[str, int, str]], versions: Iterable[dict[str, str]]) -> None:
    """Refuse Dask workers that lack what a network needs, or have another version than the client or each other."""
    versions_by_address = {address: there for (_, _, address), there in zip(tasks, versions, strict=True)}
    for package in ("dask_train", "tensorflow"):
        if missing := [address for address, there in versions_by_address.items() if package not in there]:
            raise LaunchError(
                f"{package} is not installed on {len(missing)} of {len(versions_by_address)} Dask workers: "
                f"{', '.join(missing)}.",
                change=f"Install the same on every Dask worker: {install_command('tensorflow')}.",
            )
    ours = environment.installed_versions()
    for package, num_parts in _SAME_PARTS.items():
        # A client needs no TensorFlow; then the Dask workers need only agree with each other.
        where, want = next(iter(versions_by_address.items())) if package not in ours else ("the client", ours)
        for address, there in versions_by_address.items():
            if there[package].split(".")[:num_parts] != want[package].split(".")[:num_parts]:
                raise VersionMismatchError(
                    f"{package} is {there[package]} on {address} and {want[package]} on {where}.",
                    "Code and messages that cross between them would not fit.",
                    "Install the same version on both sides.",
                )


async def _check_alive(peer: Peer, plan: NetworkPlan) -> None:
    answer = await peer.ask("train_started", network=plan.id)
    if answer["state"] != "running":
        raise LaunchError(answer["loss"] or f"Network {plan.id} was closed while it started.")
