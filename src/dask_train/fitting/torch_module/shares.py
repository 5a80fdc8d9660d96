"""What each share of a batch has for itself, where a worker has several: random numbers, and a module's buffers."""

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

# Streams of random numbers besides those of shares, by negative numbers: the one of what all workers do alike (losses
# of all rows, optimizers), and the one of what the first worker alone does (metrics).
ALL, FIRST = -1, -2


class ModuleShares:
    """The shares of this worker, of which the module sees one at a time.

    Each share has random numbers and buffers of its own, as a worker has that computes it alone. A module's tensors are
    put in place, not copied: what a backward pass needs of them stays as it was.

    Parameters
    ----------
    module
        Of this worker. Its own tensors are those of the first share.
    replicas
        All workers.
    num_shares
        Of all workers together.
    random
        The state of torch's random numbers in the client, with which the first share begins.
    """

    def __init__(self, module: torch.nn.Module, replicas: ProcessGroup, num_shares: int, random: np.ndarray) -> None:
        self._replicas, self.num_shares = replicas, num_shares
        self._module, self._buffers = module, _buffers_of(module)
        of_norms = {each.path for each in norms(module)}
        self._is_of_norm = [each.path in of_norms for each in self._buffers]
        numbers = {share: share for share in range(num_shares)} | {ALL: num_shares, FIRST: num_shares + 1}
        self._streams = {share: RandomStreams.seeded(random, number) for share, number in numbers.items()}
        self.mine = block_of(replicas.rank, replicas.size, num_shares)
        self._tensors = {share: self._copies() for share in self.mine[1:]}
        self._tensors[self.mine.start] = [each.tensor for each in self._buffers]
        self._placed, self._drawing = self.mine.start, ALL
        self._moving: tuple[int, list[dict[str, Any]]] | None = None
        self._streams[ALL].set()

    # Passes

    @contextmanager
    def passing(self, share: int) -> Iterator[None]:
        """While it lasts, the module has the buffers of a share. Random numbers are its own until others are drawn."""
        self._place(share)
        self.draw(share)
        try:
            yield
        finally:
            self._tensors[share] = [each.tensor for each in self._buffers]  # a module may put others there
            self._place(self.mine.start)

    def draw(self, stream: int) -> None:
        """Let random numbers be those of a stream from now on: of a share, or of :data:`ALL` or :data:`FIRST`."""
        self._streams[self._drawing] = RandomStreams.taken()
        self._streams[stream].set()  # also if they are: what NumPy holds back does not depend on the number of workers
        self._drawing = stream

    def _place(self, share: int) -> None:
        if share != self._placed:
            self._placed = share
            for each, tensor in zip(self._buffers, self._tensors[share], strict=True):
                each.owner._buffers[each.name] = tensor

    def _copies(self) -> list[torch.Tensor]:
        """Return copies of the buffers in place; of a tensor that two parts have, one."""
        known: dict[int, torch.Tensor] = {}
        tensors = [each.tensor for each in self._buffers]
        return [known.setdefault(id(one), one.detach().clone()) for one in tensors]

    # What is kept, and moves

    def keep(self, state: RankState, loop: TrainingLoop) -> None:
        """Let all of it be mirrored, saved and restored, and move with the shares where the number of workers changes.

        Parameters
        ----------
        state, loop
            Of this worker. What the state has so far is restored before the shares.
        """
        agreement = GroupAgreement(self._replicas)

        def collect() -> None:
            self._moving = loop.position.steps, agreement.of_all(self.own())

        def take_up() -> None:
            self.mine = block_of(self._replicas.rank, self._replicas.size, self.num_shares)
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
        """Return what the shares of this worker have."""
        self._streams[self._drawing] = RandomStreams.taken()
        streams = {str(stream): self._streams[stream].told() for stream in (*self.mine, ALL)}
        if self._replicas.rank == 0:
            streams[str(FIRST)] = self._streams[FIRST].told()
        return {
            "first": self.mine.start,
            "streams": streams,
            "buffers": [[as_array(one).copy() for one in self._tensors[share]] for share in self.mine],
        }

    def set_own(self, own: dict[str, Any]) -> None:
        """Take over what :meth:`own` has returned, as far as it is of shares of this worker."""
        self._streams |= {int(stream): RandomStreams.of_told(state) for stream, state in own["streams"].items()}
        self._streams[self._drawing].set()
        for share, arrays in enumerate(own["buffers"], own["first"]):
            if share in self.mine:
                if share not in self._tensors:
                    self._tensors[share] = self._copies()
                set_all(self._tensors[share], arrays)

    def regrouped(self, everyones: list[dict[str, Any]], rank: int) -> dict[str, Any]:  # noqa: ARG002 - this one's
        """Return what this worker takes over of the values of other workers."""
        buffers = [arrays for own in everyones for arrays in own["buffers"]]
        streams = {stream: state for own in everyones for stream, state in own["streams"].items()}
        return {"first": 0, "streams": streams, "buffers": buffers}

    # What is alike

    def average(self) -> None:
        """Let moving averages of all shares become their means."""
        for number, is_of_norm in enumerate(self._is_of_norm):
            ours = [self._tensors[share][number] for share in self.mine]
            if is_of_norm and ours[0].is_floating_point():
                rows = np.stack([one.detach().double().cpu().numpy() for one in ours])
                mean = means_over(self._replicas, number, rows)
                for one in ours:
                    with torch.no_grad():
                        one.copy_(mean)

    def check_alike(self, advice: Sequence[str]) -> None:
        """Check that shares have the same of all buffers but those of torch's normalisations.

        Parameters
        ----------
        advice
            The likely cause, and what to change.

        Raises
        ------
        DivergedError
            They have not.
        ValueError
            The module has others than when training began.
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
def computing_alike(replicas: ProcessGroup) -> Iterator[None]:
    """While it lasts, this process computes as any worker of shares does: in one thread; afterwards as before.

    The bits of products and sums depend on the number of threads that share them. Random numbers are those of before
    afterwards, as a module may have drawn from those of NumPy and Python.

    Raises
    ------
    ValueError
        The workers are on several hosts.
    """
    if replicas.num_hosts > 1:
        raise ValueError(
            f"virtual_workers= is for workers of one host, and these are on {replicas.num_hosts}. Pass on= the "
            "addresses of Dask workers of one host, or leave virtual_workers= out."
        )
    num_threads, streams, of_numpy = torch.get_num_threads(), RandomStreams.taken(), np.random.get_state(legacy=False)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        streams.set()
        np.random.set_state(of_numpy)
