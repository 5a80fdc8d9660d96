"""Gradients of a module's parameters, summed over all workers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.collectives.shared_memory import SumBuffer
from dask_train.fitting.torch_module.early_sums import EarlySums
from dask_train.fitting.torch_module.table_gradients import TableSums
from dask_train.fitting.torch_module.values import as_array, summed_in

# Between hosts so much is summed by itself; an array that is larger is not cut.
SECTION_BYTES = 1 << 20
# Steps after which it is decided whether sums begin early, and the part of a step that they take then at least.
NUM_LOOKED_AT, LEAST_PART_OF_STEP = 12, 0.4


class _Group(NamedTuple):
    """Parameters whose gradients are summed in one dtype, in the order in which a backward pass makes them.

    Attributes
    ----------
    dtype
        That of torch.
    sections
        Their names, of each section; a section has an array more, which says what gradients a rank has.
    channel
        Memory for their sums.
    """

    dtype: torch.dtype
    sections: list[list[str]]
    channel: SumBuffer


class GradientSums:
    """The sum over all workers, where each has the part of the gradient that its own rows make.

    Parameters
    ----------
    parameters
        By name, in the same order on all workers.
    process_group
        All workers; None for a single process.
    tables
        Names of those whose gradients are sparse. Default: none.
    rounds
        Whether gradients that are summed in float32 travel between hosts as bfloat16; sparse ones travel as they are.
        Default: false.
    early
        Whether sums may begin during a backward pass. Default: true.

    Notes
    -----
    Between hosts gradients lie in sections of about 1 MiB, those of the last parameters first. Where the first steps
    show that sums take a large part of a step, sums of sections begin during the backward pass (:class:`EarlySums`).
    That changes no bit: whether they begin early or not, each section is cut and added up by itself. Where lost ranks
    are replaced in place, sums come at the end.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        process_group: ProcessGroup | None,
        tables: Collection[str] = (),
        *,
        rounds: bool = False,
        early: bool = True,
    ) -> None:
        self._by_name, self._process_group, self._rounds = dict(parameters), process_group, rounds
        self._groups: list[_Group] = []
        self._tables: TableSums | None = None
        self._early: EarlySums | None = None
        self._is_early = False
        self._ends: list[float] = []  # when the sums of the first steps ended
        self._seconds: list[float] = []  # how long they took
        if process_group is None or process_group.size == 1:
            return
        if tables:
            self._tables = TableSums({name: self._by_name[name] for name in tables}, process_group)
        by_dtype: dict[torch.dtype, list[str]] = {}
        for name, one in self._by_name.items():
            if name not in tables:
                by_dtype.setdefault(summed_in(one.dtype), []).append(name)
        for dtype, names in by_dtype.items():
            self._groups.append(self._grouped(dtype, names, process_group))
        self._sections = [(group, number) for group in self._groups for number in range(len(group.sections))]
        on_cpu = all(one.device.type == "cpu" for one in self._by_name.values())
        if early and process_group.may_sum_early and self._groups and on_cpu:
            parameters_of = [
                [self._by_name[name] for name in group.sections[number]] for group, number in self._sections
            ]
            self._early = EarlySums(parameters_of, self._sum_section)

    def _grouped(self, dtype: torch.dtype, names: Sequence[str], process_group: ProcessGroup) -> _Group:
        sections, size = [list[str]()], 0
        for name in reversed(names):
            if size >= SECTION_BYTES and process_group.may_sum_early:
                sections.append([])
                size = 0
            sections[-1].append(name)
            size += self._by_name[name].numel() * dtype.itemsize
        shapes = [
            shape
            for section in sections
            for shape in (*(tuple(self._by_name[name].shape) for name in section), (len(section),))
        ]
        numpy = torch.empty(0, dtype=dtype).numpy().dtype
        # How many ranks have a gradient is rounded as well, and is 0 in any case only if none has.
        rounds = self._rounds and dtype == torch.float32
        counts = [len(section) + 1 for section in sections]
        return _Group(dtype, sections, process_group.channel(shapes, numpy, counts, rounds=rounds))

    def begin(self) -> None:
        """Begin a step, before its backward pass."""
        if self._early is not None:
            self._early.begin(early=self._is_early)

    @torch.no_grad()
    def sum(self, of_all: Sequence[torch.Tensor | None]) -> None:
        """Set ``grad`` of each parameter to the sum over all workers, plus its gradient in ``of_all``.

        That is what all workers have alike, such as the derivative of a penalty.

        Gradients are summed where they are, so that no step asks for memory. A gradient that only other workers have
        counts as zeros here; one that no rank has stays None, so an optimizer skips its parameter.

        Raises
        ------
        ValueError
            A gradient is sparse where a dense one is summed, or the other way round.
        """
        if self._early is not None and self._is_early:
            self._early.finish()
        else:
            began = time.perf_counter()
            for group in self._groups:
                self._sum_group(group)
            if self._early is not None:
                self._look(began)
        if self._tables is not None:
            self._tables.sum()
        for one, own in zip(self._by_name.values(), of_all, strict=True):
            if own is not None and one.grad is None:
                one.grad = own.clone()  # torch gives several parameters the same tensor, and hooks change it in place
            elif own is not None and one.grad.is_sparse:
                one.grad = own + one.grad  # as backward() adds them: dense, unless both are sparse
            elif own is not None:
                one.grad.add_(own)

    def _sum_group(self, group: _Group) -> None:
        assert self._process_group is not None
        arrays = [array for section in group.sections for array in self._arrays(group, section)]
        totals = iter(self._process_group.sum(group.channel, arrays))
        for section in group.sections:
            self._take(section, [next(totals) for _ in range(len(section) + 1)])

    @torch.no_grad()
    def _sum_section(self, number: int) -> None:
        """Sum one section, numbered through all groups."""
        assert self._process_group is not None
        group, own_number = self._sections[number]
        section = group.sections[own_number]
        self._take(section, self._process_group.sum_section(group.channel, own_number, self._arrays(group, section)))

    def _look(self, began: float) -> None:
        """Decide, after the first steps, whether sums begin early; all ranks alike."""
        ended = time.perf_counter()
        self._ends.append(ended)
        self._seconds.append(ended - began)
        if len(self._ends) < NUM_LOOKED_AT:
            return
        assert self._early is not None
        assert self._process_group is not None
        # The shortest sum is what the network takes at least. While a run begins, others may keep the processors busy.
        step_s = min(later - earlier for earlier, later in itertools.pairwise(self._ends))
        mine = np.array([[min(self._seconds), step_s, self._early.made_once]])
        (everyones,) = self._process_group.gather("seconds of sums", [mine])
        # The last rank to come waits for the network alone, so the minimum counts.
        self._is_early = bool(
            everyones[:, 2].all() and everyones[:, 0].min() > LEAST_PART_OF_STEP * everyones[:, 1].max()
        )
        if not self._is_early:
            self._early.stop()
            self._early = None

    def _arrays(self, group: _Group, names: Sequence[str]) -> list[np.ndarray]:
        """Return what is summed of a section: gradients, and which of them there are."""
        has = np.array([self._by_name[name].grad is not None for name in names], group.channel.dtype)
        return [*(self._given(name, group.dtype) for name in names), has]

    def _take(self, names: Sequence[str], totals: Sequence[np.ndarray]) -> None:
        """Copy sums into the gradients: an optimizer may change or keep them, and workers share the sums' memory."""
        *sums, anybody = totals
        for name, total, number in zip(names, sums, anybody.tolist(), strict=True):
            if number:
                one = self._by_name[name]
                if one.grad is None:
                    one.grad = torch.empty_like(one)
                one.grad.copy_(torch.from_numpy(total))

    def _given(self, name: str, dtype: torch.dtype) -> np.ndarray:
        one = self._by_name[name]
        if (gradient := one.grad) is None:
            return torch.zeros((), dtype=dtype).expand(one.shape).numpy()  # no memory, whatever the shape
        if gradient.layout != torch.strided:
            raise ValueError(
                f"The gradient of {name!r} is sparse. Several workers sum sparse gradients of torch.nn.Embedding and "
                "torch.nn.EmbeddingBag only: use such a layer with sparse=True, make the gradient dense, or pass "
                "workers=1."
            )
        return as_array(gradient.to("cpu", dtype))
