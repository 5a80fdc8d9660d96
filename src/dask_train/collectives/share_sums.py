"""Sums over shares of a batch, to the same bits for any number of ranks that have computed them; on one host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from dask_train.collectives.shared_memory import BLOCK_BYTES, SharedMemory, SumBuffer, part_of, pieces
from dask_train.data.order import block_of

T = TypeVar("T")


class ShareTree:
    """The order in which shares are added: neighbours in pairs, then these sums in pairs, up to the sum of all.

    A node is the range of shares that it is the sum of. Its two halves are those of a tree over all shares, which does
    not depend on the ranks. So a rank adds up what it has to few nodes, and ranks add these.

    Parameters
    ----------
    num_shares
        How many there are.
    """

    def __init__(self, num_shares: int) -> None:
        self.num_shares = num_shares

    def nodes_of(self, shares: range) -> list[range]:
        """Return the fewest nodes that have just these shares, in their order."""
        nodes, start = [], shares.start
        while start < shares.stop:
            width = 1
            while start % (2 * width) == 0 and min(start + 2 * width, self.num_shares) <= shares.stop:
                if start + width >= self.num_shares:
                    break
                width *= 2
            nodes.append(range(start, min(start + width, self.num_shares)))
            start = nodes[-1].stop
        return nodes

    def nodes_among(self, size: int) -> list[list[range]]:
        """Return the nodes of each of ``size`` ranks, each of which has a block of shares."""
        return [self.nodes_of(block_of(rank, size, self.num_shares)) for rank in range(size)]

    def push(self, stack: list[tuple[range, T]], node: range, value: T, add: Callable[[T, T], T]) -> None:
        """Put the value of the next node onto those before it, and add all that are halves of one."""
        stack.append((node, value))
        while len(stack) > 1 and self._are_halves(stack[-2][0], stack[-1][0]):
            (left, first), (right, second) = stack[-2:]
            stack[-2:] = [(range(left.start, right.stop), add(first, second))]

    def _are_halves(self, left: range, right: range) -> bool:
        width = len(left)
        is_left = width & (width - 1) == 0 and left.start % (2 * width) == 0
        return is_left and right.stop == min(left.start + 2 * width, self.num_shares)


class ShareBuffer(SumBuffer):
    """Memory in which ranks of a host add up shares: a slot for each of their nodes, and one for the sum.

    Each rank adds up a part of the elements, of all nodes, in the order of the tree.

    Parameters
    ----------
    shapes, dtype
        Of the arrays of a share.
    num_shares
        How many shares there are.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype | type | str, num_shares: int) -> None:
        super().__init__(shapes, dtype)
        self._tree = ShareTree(num_shares)

    def lie_in(self, memory: SharedMemory, offset: int) -> None:
        """Take room in a file in memory, from there on, for as many ranks as it has."""
        nodes = self._tree.nodes_among(memory.num_ranks)
        first = sum(map(len, nodes[: memory.place]))
        bounds, length = self._laid_out()
        slots = self._mapped(memory, offset, length, sum(map(len, nodes)))
        mine, part = (
            slice(first, first + len(nodes[memory.place])),
            part_of(length, memory.place, memory.num_ranks, self.dtype),
        )
        others = [(0, part[0]), (part[1], length)]
        self._given = [
            (number, at, [slot[place] for slot in slots[mine]])
            for within in others
            for number, at, place in pieces(bounds, within)
        ]
        self._summed = [
            (number, at, [slot[place] for slot in slots], self.total[place])
            for number, at, place in pieces(bounds, part, BLOCK_BYTES // self.dtype.itemsize)
        ]
        self._mine = mine
        self._nodes = [node for several in nodes for node in several]
        longest = max((len(total) for *_, total in self._summed), default=0)
        self._scratches = np.zeros((max(1, self._tree.num_shares.bit_length()), longest), self.dtype)

    def give(self, nodes: Sequence[Sequence[np.ndarray]]) -> None:
        """Write this rank's arrays, of each of its nodes, to where the other ranks add up their parts."""
        for number, at, targets in self._given:
            for target, arrays in zip(targets, nodes, strict=True):
                target[...] = np.reshape(arrays[number], -1)[at]

    def add_up(self, nodes: Sequence[Sequence[np.ndarray]]) -> None:
        """Add up this rank's part; the others have given theirs. As :meth:`give`."""
        for number, at, slots, total in self._summed:
            values = list(slots)
            values[self._mine] = [np.reshape(arrays[number], -1)[at] for arrays in nodes]
            total[...] = self._sum_of(values, len(total))

    def _sum_of(self, values: Sequence[np.ndarray], length: int) -> np.ndarray:
        stack: list[tuple[range, np.ndarray]] = []

        def added(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            # Not more sums are kept than the tree has levels, and each takes the place of its left half if that is one.
            out = left if left.base is self._scratches else self._scratches[len(stack) - 2, :length]
            return np.add(left, right, out=out)

        for node, value in zip(self._nodes, values, strict=True):
            self._tree.push(stack, node, value, added)
        return stack[0][1]
