"""JAX in a run: batches as its arrays, the devices of each rank, and ``jax.distributed`` where it is asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from dask_train.errors import DataError, LaunchError
from dask_train.frameworks.base import TRAINING_ROLES, Framework, RoleInfo
from dask_train.frameworks.jax.arrays import shared_array
from dask_train.frameworks.jax.environment import JAX_IMPORTS, take_threads
from dask_train.frameworks.jax.group import process_group
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.ranks import first_address, num_ranks, rank_of
from dask_train.frameworks.words import RankPlace
from dask_train.roles import AddressBook
from dask_train.spelling import passed


class JaxFramework(Framework):
    """What users name ``framework="jax"``, or ``"jax-distributed"``.

    ``session.mesh`` is a :class:`jax.sharding.Mesh` of this rank's own devices, along one axis, ``"devices"``.

    Parameters
    ----------
    distributed
        Whether ``jax.distributed`` is up in the chief and the workers while the user's function runs:
        ``jax.devices()`` has the devices of all then, ``jax.process_index()`` is the rank (the chief's is 0, or worker
        0's without a chief), and computations on arrays that are sharded over them are of all processes at once.

    Notes
    -----
    Floating-point numbers of 64 bits are rounded to 32 in batches, as everywhere in JAX, unless its
    ``jax_enable_x64`` is set. With ``jax.distributed`` the end of one process in mid-run ends all others: JAX
    aborts them.
    """

    name = "jax"
    imports = JAX_IMPORTS
    views = "read-only"
    role_bytes = 150 << 20  # 105 just imported (PSS, jax 0.10, CPU), 140 with a device

    def __init__(self, *, distributed: bool = False) -> None:
        self._distributed = distributed
        self._port_holder: socket.socket | None = None

    def check(self, counts: Mapping[str, int]) -> None:
        """See :meth:`Framework.check <dask_train.frameworks.base.Framework.check>`."""
        if "ps" in counts:
            raise ValueError(
                f"ps={counts['ps']} with {passed('framework', 'jax')}: JAX has no parameter server. Leave ps out, "
                f"or use {passed('framework', 'tensorflow')}."
            )
        if self._distributed and not num_ranks(counts):
            raise ValueError(
                f"{passed('framework', 'jax-distributed')} with no role that trains, only "
                f"{', '.join(counts) or 'none'}: its processes are the chief and the workers. Ask for worker=1 or more."
            )

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Return whether several compute together."""
        return self._distributed and num_ranks(counts) > 1

    def stays_until_the_end(self, counts: Mapping[str, int]) -> bool:
        """Return whether several compute together: one that leaves waits for the others, which it ends soon after."""
        return self.agrees_every_step(counts)

    def can_replace(self, role: str) -> bool:
        """No process can join ``jax.distributed`` later; others can start again."""
        return not self._distributed or role not in TRAINING_ROLES

    def load(self, me: RoleInfo) -> None:
        """Import JAX with this role's threads; its devices are made when they are first used.

        Raises
        ------
        LaunchError
            JAX can't be imported.
        """
        take_threads(me.num_threads)
        try:
            import jax  # noqa: F401
        except ImportError as error:
            raise LaunchError(
                f"JAX can't be imported for {me.role} {me.rank}: {error}.",
                change="Install it on every Dask worker: pip install jax.",
            ) from error

    def prepare(self, me: RoleInfo) -> str:
        """Load JAX; rank 0 holds the port at which it awaits the others."""
        self.load(me)
        if not self._distributed or me.role not in TRAINING_ROLES or rank_of(me):
            return ""
        self._port_holder = hold_port()
        return address_of(me.host, self._port_holder)

    @contextmanager
    def rendezvous(self, me: RoleInfo, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """Meet the others if ``jax.distributed`` is asked for; else do not wait.

        Raises
        ------
        LaunchError
            The others did not come within ``timeout_s``, or can't be reached.
        """
        extras = {"mesh": _mesh}
        if not self._distributed or me.role not in TRAINING_ROLES:
            yield extras
            return
        place = RankPlace(
            rank=rank_of(me),
            num_ranks=num_ranks(me.counts),
            meeting=first_address(peers, me.counts),
            port_holder=self._port_holder,
        )
        self._port_holder = None  # closed when all have met
        with process_group(place, timeout_s):
            yield extras

    @contextmanager
    def alone(self, me: RoleInfo) -> Iterator[Mapping[str, Any]]:
        """JAX as it is in this process.

        Raises
        ------
        ValueError
            ``jax.distributed`` is asked for, which has to come before all else that JAX does in a process.
        """
        if self._distributed:
            raise ValueError(
                f"framework='jax-distributed' with {me.role} {me.rank} in the client's own process, where JAX may have "
                "computed before. Pass framework='jax', or roles={'worker': 1}."
            )
        yield {"mesh": _mesh}

    def lack_of_device(self) -> str:
        """See :meth:`Framework.lack_of_device <dask_train.frameworks.base.Framework.lack_of_device>`."""
        import jax

        if jax.default_backend() != "cpu":
            return ""
        platforms = os.environ.get("JAX_PLATFORMS")
        return f"JAX_PLATFORMS is {platforms!r}" if platforms else "jax.default_backend() is 'cpu'"

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """Arrays of JAX on the arrays' own memory, where this is aligned and the device is the CPU.

        Raises
        ------
        DataError
            JAX has no such dtype, as text, dates and objects; or no room for such large whole numbers.
        """
        try:
            return tuple(map(shared_array, arrays))
        except TypeError as error:
            raise DataError(
                f"Columns of {', '.join(str(array.dtype) for array in arrays)} can't all become arrays of JAX: {error}",
                change="Turn text, dates and categories into numbers before the run.",
            ) from error
        except ValueError as error:
            raise DataError(str(error)) from error


def distributed() -> JaxFramework:
    """Return the adapter with ``jax.distributed``."""
    return JaxFramework(distributed=True)


def _mesh() -> Any:
    import jax

    return jax.sharding.Mesh(np.array(jax.local_devices()), ("devices",))
