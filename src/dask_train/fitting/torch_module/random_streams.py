"""Random numbers of a process: those of torch, NumPy and Python, which a module may draw, taken and set at once."""

from __future__ import annotations

import random
import zlib
from typing import Any, NamedTuple, Self

import numpy as np
import torch


class RandomStreams(NamedTuple):
    """The states of all global generators of random numbers on the CPU."""

    of_torch: torch.Tensor
    of_numpy: Any
    of_python: tuple[Any, ...]

    @classmethod
    def taken(cls) -> Self:
        """Return those of this process."""
        return cls(torch.get_rng_state(), np.random.get_state(), random.getstate())

    def set(self) -> None:
        """Let the process continue from here."""
        torch.set_rng_state(self.of_torch)
        np.random.set_state(self.of_numpy)
        random.setstate(self.of_python)

    @classmethod
    def seeded(cls, state: np.ndarray, number: int) -> Self:
        """Return those of one of several streams that begin with a state of torch's random numbers.

        That state is the one of stream 0; all else is seeded.
        """
        seeds = np.random.SeedSequence([zlib.crc32(state.tobytes()), number]).generate_state(3).tolist()
        of_torch = torch.Generator().manual_seed(seeds[0]).get_state()
        if number == 0:
            of_torch = torch.from_numpy(np.array(state))
        return cls(of_torch, np.random.RandomState(seeds[1]).get_state(), random.Random(seeds[2]).getstate())  # noqa: S311 - not for secrets

    def told(self) -> list[Any]:
        """Return them as values that can be stored; :meth:`of_told` takes them."""
        name, keys, *others = self.of_numpy
        version, numbers, gauss = self.of_python
        of_numpy, of_python = [name, keys, *others], [version, np.array(numbers, np.uint32), gauss]
        return [self.of_torch.numpy().copy(), of_numpy, of_python]

    @classmethod
    def of_told(cls, told: list[Any]) -> Self:
        """Return what :meth:`told` has told of."""
        of_torch, of_numpy, (version, numbers, gauss) = told
        return cls(torch.from_numpy(np.array(of_torch)), tuple(of_numpy), (version, tuple(numbers.tolist()), gauss))
