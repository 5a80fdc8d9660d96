"""The seam between replicas and the backend that Keras computes with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np


class Backend(Protocol):
    """What replicas ask of a backend. Tensors, gradients and variables are the backend's own."""

    def compiled(self, step: Callable[[Any], Any], model: Any, batch: Any) -> Callable[[Any], Any]:
        """A step of that model as ``fit`` would run it, for batches of any number of rows.

        Parameters
        ----------
        step
            ``train_step`` or ``test_step``: takes a batch, returns logs.
        model : keras.Model
            Whose it is.
        batch
            One, for its shapes and dtypes.
        """

    def on_host(self, function: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[Any]) -> list[Any]:
        """Call a function on the values of tensors, inside a step as outside; it returns arrays like them.

        Arrays and tensors may share memory. Calls keep their order.
        """

    def dense(self, gradient: Any) -> Any:
        """A gradient as one tensor of its variable's shape."""

    def parts_of_sparse(self, gradient: Any) -> list[Any] | None:
        """Row numbers, and the gradients of those rows; None for a gradient that is dense."""

    def sparse(self, parts: list[Any], gradient: Any) -> Any:
        """A gradient like that one, of these parts."""

    def num_rows(self, column: Any) -> int:
        """Rows of a column of a batch."""

    def rows(self, column: Any, num_rows: int) -> Any:
        """The first rows of a column."""

    def zeros(self, row_shape: tuple[int, ...], dtype: str) -> Any:
        """A column of one row of zeros."""

    def as_floatx(self, column: Any, floatx: str) -> Any:
        """Floating-point numbers in the precision that Keras is set to, as its own ``fit`` takes arrays in."""

    def counted(self, num_steps: int) -> Any:
        """A data set that makes Keras' ``fit`` count so many steps an epoch; their batches come from elsewhere."""

    def tell_host(self, function: Callable[[list[np.ndarray]], None], tensors: Sequence[Any]) -> None:
        """As :meth:`on_host`, for a function that returns nothing."""

    def assigning(self, variables: Sequence[Any]) -> Callable[[Sequence[np.ndarray]], None]:
        """What assigns arrays to all of these variables at once."""

    def applying(self, optimizer: Any, variables: Sequence[Any], gradients: Sequence[np.ndarray]) -> Callable[[], None]:
        """What applies the gradients that lie in these arrays when it is called; they are aligned to 64 bytes."""

    def forgetting(self) -> AbstractContextManager[None]:
        """When it is left, the backend lets go of the graphs that were made within, and of the weights in them."""
