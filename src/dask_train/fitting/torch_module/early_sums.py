"""Sums of gradients during the backward pass: section by section, in a thread."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

Call = Callable[[], None]


class EarlySums:
    """Sums gradients section by section, in order: each begins when it and all sections before it are complete.

    So all ranks make the same calls in the same order, no matter when their gradients are ready.
    :class:`~dask_train.fitting.torch_module.gradients.GradientSums` decides whether sums begin early, and says why that
    changes no bit.

    Parameters
    ----------
    sections
        The parameters of each section, in the order in which sections are summed.
    sum_section
        Sums the gradients of a section over all ranks, given its number; called in a thread.

    Attributes
    ----------
    made_once
        Whether each gradient was added to exactly once in each step so far. Reentrant checkpoints of activations add
        to it several times, and what is added after the first time would come after the sum.

    Notes
    -----
    PyTorch's DistributedDataParallel does so [1]_, with gradients in buckets of 25 MB.

    References
    ----------
    .. [1] Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
    """

    def __init__(self, sections: Sequence[Sequence[torch.nn.Parameter]], sum_section: Callable[[int], None]) -> None:
        self._sections, self._sum_section = [list(map(id, section)) for section in sections], sum_section
        self._section_of = {key: number for number, section in enumerate(self._sections) for key in section}
        self.made_once = True
        self._is_on = False
        self._missing: list[set[int]] = []
        self._made: set[int] = set()
        self._sums: list[Future[None]] = []
        self._calls: queue.SimpleQueue[tuple[Future[None], Call] | None] = queue.SimpleQueue()
        weakref.finalize(self, self._calls.put, None)
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._note) for section in sections for parameter in section
        ]
        # It may wait for a lost rank, so the end of the process must not wait for it.
        threading.Thread(target=_carry_out, args=(self._calls,), name="dask-train-sums", daemon=True).start()

    def begin(self, *, early: bool) -> None:
        """Begin a step; ``early`` to sum gradients as they are made, else they are only looked at."""
        self._is_on = early
        self._missing = [set(section) for section in self._sections]
        self._made, self._sums = set(), []

    def finish(self) -> None:
        """Sum the sections that are left, and wait until all are summed.

        Raises
        ------
        StalledError
            Another rank did not come in time; or whatever else a sum has raised.
        """
        while len(self._sums) < len(self._sections):
            self._begin_next()
        self._is_on = False
        for summed in self._sums:
            summed.result()

    def stop(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _note(self, parameter: torch.nn.Parameter) -> None:
        key = id(parameter)
        if key in self._made:
            self.made_once = False
            if self._is_on and self._section_of[key] < len(self._sums):
                raise ValueError(
                    "A backward pass has added to a gradient once more after it was summed over the workers; in the "
                    "first steps each gradient was added to once. Reentrant checkpoints do so: pass "
                    "use_reentrant=False to torch.utils.checkpoint."
                )
        self._made.add(key)
        if self._is_on:
            self._missing[self._section_of[key]].discard(key)
            while len(self._sums) < len(self._missing) and not self._missing[len(self._sums)]:
                self._begin_next()

    def _begin_next(self) -> None:
        number, summed = len(self._sums), Future[None]()
        self._sums.append(summed)
        sum_section = self._sum_section
        self._calls.put((summed, lambda: sum_section(number)))


def _carry_out(calls: queue.SimpleQueue[Any]) -> None:
    """Make calls in the order in which they come; none after one that failed."""
    failed: BaseException | None = None
    for summed, call in iter(calls.get, None):
        try:
            if failed is not None:
                raise failed
            call()
        except BaseException as error:  # which the thread that waits raises
            failed = error
            summed.set_exception(error)
        else:
            summed.set_result(None)
