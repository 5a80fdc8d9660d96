"""State per share of a batch, where a worker has several shares: random streams, and the module's buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.data.order import block_of
from dask_train.errors import DivergedError
from dask_train.fitting.torch_module.agreed import Named, means_over, norms
from dask_train.fitting.torch_module.random_streams import RandomStreams
from dask_train.fitting.torch_module.values import as_array, set_all
from dask_train.trainers.common.agreement import GroupAgreement
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.rank_state import RankState

# Numbers of further random streams, negative as shares count from 0: for computations that all workers repeat (losses
# of all rows, optimizers), and for computations of the first worker alone (metrics).
ALL, FIRST = -1, -2


class ModuleShares:
    """The shares of this worker, which go through the module one at a time.

    Each share has random streams and buffers of its own, as if a worker computed it alone. The module is given another
    share's buffers by reference, not by copying: tensors that a backward pass has saved stay as they were.

    Parameters
    ----------
    module
        This worker's module. Its buffers become those of the worker's first share.
    group
        Process group of all workers.
    num_shares
        Number of shares of all workers together.
    random
        State of torch's random generator in the client: the first share's stream begins there, and others are seeded
        from it.
    """

    def __init__(self, module: torch.nn.Module, group: ProcessGroup, num_shares: int, random: np.ndarray) -> None:
        self._group, self.num_shares = group, num_shares
        self._module, self._buffers = module, _buffers_of(module)
        of_norms = {each.path for each in norms(module)}
        self._is_of_norm = [each.path in of_norms for each in self._buffers]
        numbers = {share: share for share in range(num_shares)} | {ALL: num_shares, FIRST: num_shares + 1}
        self._streams = {share: RandomStreams.seeded(random, number) for share, number in numbers.items()}
        self.mine = block_of(group.rank, group.size, num_shares)
        self._tensors = {share: self._copies() for share in self.mine[1:]}
        self._tensors[self.mine.start] = [each.tensor for each in self._buffers]
        self._placed, self._drawing = self.mine.start, ALL
        self._moving: tuple[int, list[dict[str, Any]]] | None = None
        self._streams[ALL].set()

    # Passes

    @contextmanager
    def passing(self, share: int) -> Iterator[None]:
        """Let the module have a share's buffers inside the context, and its random stream until another is chosen."""
        self._place(share)
        self.draw(share)
        try:
            yield
        finally:
            self._tensors[share] = [each.tensor for each in self._buffers]  # a module may put others there
            self._place(self.mine.start)

    def draw(self, stream: int) -> None:
        """Draw random numbers of a stream from now on: a share's, :data:`ALL` or :data:`FIRST`."""
        self._streams[self._drawing] = RandomStreams.current()
        # Also if the stream is current: that resets NumPy's cached normal draw, which would depend on the number of
        # workers.
        self._streams[stream].set()
        self._drawing = stream

    def _place(self, share: int) -> None:
        if share != self._placed:
            self._placed = share
            for each, tensor in zip(self._buffers, self._tensors[share], strict=True):
                each.owner._buffers[each.name] = tensor

    def _copies(self) -> list[torch.Tensor]:
        """Return copies of the module's buffers; one copy of a tensor that is registered twice."""
        known: dict[int, torch.Tensor] = {}
        tensors = [each.tensor for each in self._buffers]
        return [known.setdefault(id(one), one.detach().clone()) for one in tensors]

    # What is kept, and moves

    def keep(self, state: RankState, loop: TrainingLoop) -> None:
        """Register the shares' state to be mirrored, saved, restored, and moved when the number of workers changes.

        Parameters
        ----------
        state, loop
            State and loop of this worker. Parts that the state has already are restored before the shares.
        """
        agreement = GroupAgreement(self._group)

        def collect() -> None:
            self._moving = loop.position.steps, agreement.of_all(self.own())

        def take_up() -> None:
            self.mine = block_of(self._group.rank, self._group.size, self.num_shares)
            self._restore_moving(self._moving)
            self._place(self.mine.start)
            self._tensors = {share: self._tensors[share] for share in self.mine}
            loop.deal_again()

        def moving() -> list[dict[str, Any]] | None:
            steps, values = self._moving or (-1, None)
            return values if steps == loop.position.steps else None  # not after the next step, which changes them

        state.own("shares", self.own, self.set_own, regroup=self.regrouped)
        state.shared("shares that move", moving, lambda values: self._restore_moving((loop.position.steps, values)))
        loop.on_resize(collect, take_up)

    def _restore_moving(self, moving: Any) -> None:
        if moving is not None and moving[1] is not None:
            self._moving = moving
            for value in moving[1]:
                self.set_own(value)

    def own(self) -> dict[str, Any]:
        """Return the state of this worker's shares."""
        self._streams[self._drawing] = RandomStreams.current()
        streams = {str(stream): self._streams[stream].to_plain() for stream in (*self.mine, ALL)}
        if self._group.rank == 0:
            streams[str(FIRST)] = self._streams[FIRST].to_plain()
        return {
            "first": self.mine.start,
            "streams": streams,
            "buffers": [[as_array(one).copy() for one in self._tensors[share]] for share in self.mine],
        }

    def set_own(self, own: dict[str, Any]) -> None:
        """Restore a value of :meth:`own`, for those of its shares that this worker has."""
        self._streams |= {int(stream): RandomStreams.from_plain(state) for stream, state in own["streams"].items()}
        self._streams[self._drawing].set()
        for share, arrays in enumerate(own["buffers"], own["first"]):
            if share in self.mine:
                if share not in self._tensors:
                    self._tensors[share] = self._copies()
                set_all(self._tensors[share], arrays)

    def regrouped(self, everyones: list[dict[str, Any]], rank: int) -> dict[str, Any]:  # noqa: ARG002 - this one's
        """Return the values of all workers' shares as one value for :meth:`set_own`."""
        buffers = [arrays for own in everyones for arrays in own["buffers"]]
        streams = {stream: state for own in everyones for stream, state in own["streams"].items()}
        return {"first": 0, "streams": streams, "buffers": buffers}

    # What is alike

    def average(self) -> None:
        """Set moving averages of normalisations to their means over all shares."""
        for number, is_of_norm in enumerate(self._is_of_norm):
            ours = [self._tensors[share][number] for share in self.mine]
            if is_of_norm and ours[0].is_floating_point():
                rows = np.stack([one.detach().double().cpu().numpy() for one in ours])
                mean = means_over(self._group, number, rows)
                for one in ours:
                    with torch.no_grad():
                        one.copy_(mean)

    def check_alike(self, advice: Sequence[str]) -> None:
        """Check that shares have equal buffers, except those of torch's normalisations.

        Parameters
        ----------
        advice
            Likely cause, and what to change.

        Raises
        ------
        DivergedError
            A buffer differs between shares.
        ValueError
            The module has other buffers than when training began.
        """
        known = {each.path for each in self._buffers}
        if others_now := sorted({each.path for each in _buffers_of(self._module)} ^ known):
            raise ValueError(
                f"The module makes or removes its buffer {others_now[0]!r} as it is called, and with virtual_workers= "
                "each share has a copy from the beginning. Make it when the module is made."
            )
        first, *others = self.mine
        for number, each in enumerate(self._buffers):
            if self._is_of_norm[number]:
                continue
            wanted = as_array(self._tensors[first][number]).tobytes()
            for share in others:
                if as_array(self._tensors[share][number]).tobytes() != wanted:
                    raise DivergedError(
                        f"Buffer {each.path!r} of the module is not the same after share {share} of a batch as after "
                        f"share {first}.",
                        *advice,
                    )


def _buffers_of(module: torch.nn.Module) -> list[Named]:
    """Return the buffers of a module, under all of their names."""
    return [
        Named(f"{path}.{name}".lstrip("."), part, name)
        for path, part in module.named_modules()
        for name, _ in part.named_buffers(recurse=False, remove_duplicate=False)
    ]


@contextmanager
def computing_alike(group: ProcessGroup) -> Iterator[None]:
    """Compute in one thread inside the context, as every worker of shares does.

    The bits of products and sums depend on the number of threads. On exit, the number of threads and the states of the
    random generators of torch, NumPy and Python are restored.

    Raises
    ------
    ValueError
        The workers are on several hosts.
    """
    if group.num_hosts > 1:
        raise ValueError(
            f"virtual_workers= is for workers of one host, and these are on {group.num_hosts}. Pass on= the "
            "addresses of Dask workers of one host, or leave virtual_workers= out."
        )
    num_threads, streams, of_numpy = torch.get_num_threads(), RandomStreams.current(), np.random.get_state(legacy=False)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        streams.set()
        np.random.set_state(of_numpy)
