"""``jax.distributed`` over the ranks of a run: meeting at the coordinator, and leaving without hanging."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from dask_train.errors import LaunchError
from dask_train.frameworks.environment import bypass_proxies, environment_restored, names_proxy
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.words import RankPlace, words_of_all

# How long leaving may take: it waits for all others.
LEAVE_S = 5.0
# After how much silence, in seconds, JAX takes a process for dead, and ends the others. Collectives on the CPU find it
# out at once; this is for one that is frozen. 100 s are JAX's own.
HEARTBEAT_S = 20


@contextmanager
def process_group(place: RankPlace, timeout_s: float) -> Iterator[None]:
    """``jax.distributed`` while it lasts; the environment is as it was afterwards.

    Raises
    ------
    LaunchError
        A rank did not come within ``timeout_s``, or can't be reached.
    """
    with environment_restored(), ExitStack() as stack:
        try:
            _join_or_explain(place, timeout_s, stack)
            yield
        finally:
            _leave()


def _join_or_explain(place: RankPlace, timeout_s: float, stack: ExitStack) -> None:
    import jax

    coordinator = _coordinator(place, timeout_s, stack)
    if names_proxy():  # else JAX would warn of no_proxy alone
        bypass_proxies([coordinator])
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=place.num_ranks,
            process_id=place.rank,
            cluster_detection_method="deactivate",  # else under srun or mpirun each rank has one device of its host
            initialization_timeout=max(1, round(timeout_s)),
            **_deadlines(),
        )
    except RuntimeError as error:
        if "must be called before" in str(error):
            raise LaunchError(
                f"Rank {place.rank} of {place.num_ranks} could not join the others: JAX has computed before in this "
                "process, or has made an array.",
                "The role's function refers to an array of JAX, or a module that it imports makes one.",
                "Make arrays of JAX within the function, and pass others as NumPy's: numpy.asarray(array).",
            ) from error
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LaunchError(
            f"Rank {place.rank} of {place.num_ranks} could not meet the others at {place.meeting} within "
            f"{timeout_s:g} s: {said}.",
            "A rank did not start or was lost, or a firewall lies between the hosts of the Dask workers.",
            "Look at the other roles' logs, open the ports between the hosts, or allow a longer launch.",
        ) from error


def _deadlines() -> dict[str, int]:
    """Return JAX's deadlines as far as this version of it lets them be chosen, which none before 0.7 does."""
    import jax

    wanted = {"heartbeat_timeout_seconds": HEARTBEAT_S, "shutdown_timeout_seconds": round(LEAVE_S)}
    known = inspect.signature(jax.distributed.initialize).parameters
    return {name: seconds for name, seconds in wanted.items() if name in known}


def _coordinator(place: RankPlace, timeout_s: float, stack: ExitStack) -> str:
    """Where JAX's coordinator will be, once all ranks are there: where one is missing, JAX aborts those that wait."""
    word = ""
    if not place.rank:
        port_holder = stack.enter_context(hold_port())  # until the end: JAX serves on the port that it holds
        word = address_of(place.meeting.rpartition(":")[0].strip("[]"), port_holder)
    return words_of_all(place, word, timeout_s)[0]


def _leave() -> None:
    """Leave the others, and return after :data:`LEAVE_S` if that waits for one that is gone."""
    import jax

    def leave() -> None:
        with suppress(Exception):  # the others may be gone, and this process ends anyhow
            jax.distributed.shutdown()

    if jax.distributed.is_initialized():
        leaving = threading.Thread(target=leave, name="dask-train-leave-jax", daemon=True)
        leaving.start()
        leaving.join(LEAVE_S)
