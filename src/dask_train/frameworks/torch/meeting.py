"""Process groups that a loop makes itself, and notices about loops that made none or too many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlparse

from dask_train.compat.torch import collectives_begun, meeting_by

# What torch and Lightning say, and what it means in a role.
_HINTS = {
    "trying to initialize the default process group twice": (
        "The run has made the process group before the function began. Leave init_process_group() out, or call it "
        "only where torch.distributed.is_initialized() is false; framework='torchrun' leaves it to the loop."
    ),
    "EADDRINUSE": (
        "The port is that of a store which is up: the run's own, if it is MASTER_PORT. init_process_group() without "
        "init_method and store meets there, as often as it is called after destroy_process_group()."
    ),
    "does not match the world size": (
        "Leave devices= and num_nodes= out: the run sets what Lightning takes then, as many as there are ranks."
    ),
}


def hint(error: BaseException) -> str:
    """Return what to do about an error that a loop made for other launchers meets in a role; empty for any other."""
    said = str(error)
    return next((hint for words, hint in _HINTS.items() if words in said), "")


class Meetings:
    """Process groups that ``init_process_group()`` of a loop makes, all at the run's store.

    torch's own way binds ``MASTER_PORT`` once more in rank 0; and where a launcher's store is used instead, a second
    group may find the addresses of the first there, and wait for them. Here each group has keys of its own.

    Parameters
    ----------
    store
        At which the ranks have met.
    rank, num_ranks
        The roles that meet.
    makes_group
        Whether the run makes a group before the loop begins. Default: true.
    """

    def __init__(self, store: Any, rank: int, num_ranks: int, *, makes_group: bool = True) -> None:
        self._store, self._who, self._makes_group = store, (rank, num_ranks), makes_group
        self._num_groups = 0
        self._has_stepped = False

    @contextmanager
    def instead_of_torchs(self) -> Iterator[None]:
        """Serve ``env://``, which is what ``init_process_group()`` asks for, and watch optimizers, while this lasts."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        watching = register_optimizer_step_post_hook(self._note_step)
        try:
            with meeting_by(self._meet):
                yield
        finally:
            watching.remove()

    def _note_step(self, *_: Any) -> None:
        self._has_stepped = True

    def _meet(self, url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
        from torch.distributed import PrefixStore

        query = dict(parse_qsl(urlparse(url).query))
        rank, num_ranks = self._who
        wanted = int(query.get("rank", rank)), int(query.get("world_size", num_ranks))
        if wanted != self._who:
            raise ValueError(
                f"init_process_group() for rank {wanted[0]} of {wanted[1]} in rank {rank} of {num_ranks}: the default "
                "group has all ranks of the run. Leave rank and world_size out; new_group() makes smaller ones."
            )
        self._num_groups += 1
        yield PrefixStore(f"group/{self._num_groups}", self._store), rank, num_ranks
        raise RuntimeError("The ranks have met already.")

    def num_collectives(self) -> int:
        """Return how many this rank has begun in the groups that there are."""
        return collectives_begun()

    def trained_apart(self) -> bool:
        """Whether there are several ranks, and this one's optimizers have stepped without a collective or a group."""
        import torch.distributed as dist

        if self._who[1] == 1 or not self._has_stepped:
            return False
        if not dist.is_initialized():  # there is none, or it is gone by now
            return not (self._makes_group or self._num_groups)
        return not collectives_begun()
