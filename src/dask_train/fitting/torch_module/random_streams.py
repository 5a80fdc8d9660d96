"""Random numbers of a process: those of torch, NumPy and Python, which a module may draw, taken and set at once."""

from __future__ import annotations

import random
import zlib
from typing import Any, NamedTuple, Self

import numpy as np
import torch


class RandomStreams(NamedTuple):
    """The states of all global generators of random numbers on the CPU.

    That of NumPy is the generator itself, which is put in place in 0.3 us; to copy its state and set it takes 180 us.
    A number that NumPy's ``randn`` holds back for its next call is forgotten when a generator is put in place.
    """

    of_torch: torch.Tensor
    of_numpy: Any
    of_python: tuple[Any, ...]

    @classmethod
    def taken(cls) -> Self:
        """Return those of this process."""
        of_numpy = np.random.get_bit_generator()  # type: ignore[attr-defined] # NumPy's stubs leave it out
        return cls(torch.get_rng_state(), of_numpy, random.getstate())

    def set(self) -> None:
        """Let the process continue from here."""
        torch.set_rng_state(self.of_torch)
        np.random.set_bit_generator(self.of_numpy)  # type: ignore[attr-defined] # as before
        random.setstate(self.of_python)

    def copied(self) -> Self:
        """Return the same ones, which stay as they are while these are drawn from."""
        of_numpy: Any = type(self.of_numpy)(0)
        of_numpy.state = self.of_numpy.state
        return self._replace(of_numpy=of_numpy)

    @classmethod
    def seeded(cls, state: np.ndarray, number: int) -> Self:
        """Return those of one of several streams that begin with a state of torch's random numbers.

        That state is the one of stream 0; all else is seeded.
        """
        seeds = np.random.SeedSequence([zlib.crc32(state.tobytes()), number]).generate_state(3).tolist()
        of_torch = torch.Generator().manual_seed(seeds[0]).get_state()
        if number == 0:
            of_torch = torch.from_numpy(np.array(state))
        return cls(of_torch, np.random.MT19937(seeds[1]), random.Random(seeds[2]).getstate())  # noqa: S311

    def to_plain(self) -> list[Any]:
        """Return them as values that can be stored; :meth:`from_plain` takes them."""
        key, pos = (self.of_numpy.state["state"][name] for name in ("key", "pos"))
        version, numbers, gauss = self.of_python
        return [self.of_torch.numpy().copy(), [key, pos], [version, np.array(numbers, np.uint32), gauss]]

    @classmethod
    def from_plain(cls, values: list[Any]) -> Self:
        """Return what :meth:`told` has told of."""
        of_torch, (key, pos), (version, numbers, gauss) = values
        of_numpy = np.random.MT19937(0)
        of_numpy.state = {"bit_generator": "MT19937", "state": {"key": np.array(key), "pos": pos}}
        return cls(torch.from_numpy(np.array(of_torch)), of_numpy, (version, tuple(numbers.tolist()), gauss))
