"""The seam between replicas and the backend that Keras computes with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dask_train.data.columns import Column
from dask_train.fitting.backends.tried_gathers import TriedGathers


class StepError(ValueError):
    """Workers can't take a step together."""


# Why a trial that rows have passed tells nothing of others.
OTHER_ROWS = (
    "each row of the first batch counts as much as the next, and where the same values are in other rows, parts of a "
    "batch do not add up to the whole, as with a mean over what a mask leaves"
)


@dataclass
class Slices:
    """Gradients of those rows of a table that a model has looked up in one place.

    Attributes
    ----------
    indices, values
        Tensors: which rows, and the gradient of each.
    alike
        Whether all workers look up the same rows, once a batch; False if each does for its rows of the batch; None
        where only running tells.
    distinct
        Whether each row is in it once, however often it was looked up.
    """

    indices: Any
    values: Any
    alike: bool | None
    distinct: bool = False


@dataclass(frozen=True, kw_only=True)
class Derived:
    """What is known of the logs of a step; by default nothing.

    Attributes
    ----------
    names
        Logs that depend on nothing but what metrics have counted.
    again
        Computes these anew, in that order, from what the metrics' variables hold when it is called.
    raw
        Names of logs that do not depend on that at all.
    """

    names: tuple[str, ...] = ()
    again: Callable[[], Sequence[Any]] = tuple
    raw: frozenset[str] = frozenset()


def flat(logs: Any) -> dict[str, Any]:
    """Return logs by name, as Keras' callbacks see them, with what is in a dict among them."""
    flat_logs: dict[str, Any] = {}
    for name, log in logs.items() if isinstance(logs, Mapping) else ():
        flat_logs.update(flat(log) if isinstance(log, Mapping) else {name: log})
    return flat_logs


def has_number_of_all(rows: int, own_rows: int, all_rows: int) -> bool:
    """Return whether that many rows may be those of all workers; those of one that has all are its own."""
    return own_rows < all_rows and rows > 0 and rows % all_rows == 0


class Backend(Protocol):
    """What replicas ask of a backend. Tensors, gradients and variables are the backend's own.

    Attributes
    ----------
    symbolic_build
        Whether Keras' own ``fit`` builds model, metrics and losses by shapes before the first step; it is done with the
        run's columns then, since the batches that ``fit`` sees only count.
    looked_at_rows
        How many rows the batch has by whose shape it is done; None if the number can stay open.
    takes_text
        Whether there are tensors of text.
    graphs_tell_more
        Whether the graph of a step shows what its losses are, so that :meth:`learn` is not called, and less is known of
        models that are compiled with ``run_eagerly=True``.
    refuses_losses
        Whether :meth:`learn` refuses losses by a trial on a few rows, so that it can be asked before anything
        starts, too. Where it doesn't, workers compare their first batch with its parts.
    """

    symbolic_build: bool
    looked_at_rows: int | None
    takes_text: bool
    graphs_tell_more: bool
    refuses_losses: bool

    @property
    def may_lack_gradients(self) -> bool:
        """Whether a step may give no gradient of a variable on one worker, and one on another: where it runs as Python.

        Asked in a step.
        """

    def refusal(self, model: Any, workers: int = 1) -> str | None:
        """Why a compiled model can't be trained on this backend; a sentence without its subject, and what to change.

        Asked in the client, before anything starts, and again once the number of workers is known.
        """

    def compiled(
        self, step: Callable[[Any], Any], model: Any, batch: Any, *, at_once: bool = False
    ) -> Callable[[Any], Any]:
        """Return a step of that model as ``fit`` would run it, for batches of any number of rows.

        Parameters
        ----------
        step
            ``train_step`` or ``test_step``: takes a batch, returns logs.
        model : keras.Model
            Whose it is.
        batch
            One, for its shapes and dtypes.
        at_once
            Whether a graph is made now, with the variables of metrics, not when the step is first called. Default:
            false.
        """

    def functions_run_as_written(self) -> AbstractContextManager[None]:
        """Let functions that code of the user's own has decorated for tracing run as they are written, while it lasts.

        They keep what is traced, and would take a step in earnest as they took one that was tried.
        """

    def as_function(self, steps: Callable[[Any], Any], model: Any) -> Callable[..., Any]:
        """Return what Keras' ``fit`` and ``evaluate`` of that model call in place of functions of their own.

        Parameters
        ----------
        steps
            Takes an iterator, which it leaves alone, and returns logs.
        """

    def derived(self, step: Callable[[Any], Any], variables: Sequence[Any]) -> Derived:
        """Return what the logs of a step are made of, which :meth:`compiled` has returned and which was run.

        Parameters
        ----------
        variables
            Of metrics.
        """

    def is_constant(self, number: Any) -> bool:
        """Return whether a number in a step is the same for any rows; as far as that can be seen."""

    def on_host(self, function: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[Any]) -> list[Any]:
        """Call a function on the values of tensors, inside a step as outside; it returns arrays like them.

        Arrays and tensors may share memory. Calls keep their order.
        """

    def at_end(self, outcome: Any, model: Any, function: Callable[[], None]) -> Any:
        """Call a function as the last part of a training step.

        Parameters
        ----------
        outcome
            What the step returns without it: logs, and on some backends what variables are to hold.
        model : keras.Model
            Whose step it is.
        function
            Variables have the values that they have at the end of the step, and what it sets counts.

        Returns
        -------
        object
            What the step returns with it.
        """

    def at_this_point(self, function: Callable[[], None], variables: Sequence[Any]) -> Sequence[Any]:
        """Call a function when a step that is made, or taken, comes to this point.

        Parameters
        ----------
        variables
            These have the values then that they have in the step at this point.

        Returns
        -------
        sequence
            Tensors that are there when the function has returned; none if steps run as they are written.
        """

    def after(self, tensors: Sequence[Any]) -> AbstractContextManager[None]:
        """Let what a step does while this lasts begin when all of these tensors are there; some may be None."""

    def gathering(self, global_rows: Callable[[], int]) -> AbstractContextManager[None]:
        """Let steps gather rows while it lasts.

        Parameters
        ----------
        global_rows
            How many rows all workers have of the batch of the step in hand.
        """

    def gathered(
        self,
        gather: Callable[[list[np.ndarray]], list[np.ndarray]],
        tensors: Sequence[Any],
        rows_of: Callable[[int], int],
    ) -> list[Any]:
        """Return the rows of all workers for those of this one, without derivatives, inside a step as outside.

        Parameters
        ----------
        gather
            Makes arrays of all workers' rows of arrays of this one's.
        rows_of
            Returns the number of rows of all workers in the current step, given this worker's.
        """

    def derived_through(self, spread: Callable[[list[np.ndarray]], list[np.ndarray]], own: Any, everyones: Any) -> Any:
        """Return what was gathered, with a derivative by this worker's part.

        Parameters
        ----------
        spread
            Makes the derivative by ``own`` of that by ``everyones``.
        """

    def has_rows_of_all(self, tensor: Any, own_rows: int, all_rows: int) -> bool:
        """Return whether a tensor in a step has the rows of all workers, which were gathered.

        Parameters
        ----------
        own_rows, all_rows
            How many rows this worker has in the step in hand, and all workers together.
        """

    def row_shape_may_vary(self, tensor: Any, *, by_code: bool) -> bool:
        """Return whether a tensor's rows may have another shape in another step, or on another worker.

        Parameters
        ----------
        by_code
            Whether code that runs as it is written may change it; a graph shows it.
        """

    def key_of(self, variable: Any) -> Any:
        """Return a variable's identity, the same in a step as outside: for a Keras variable, or the backend's own."""

    def parts_of(self, gradient: Any, dtype: Any) -> list[Any]:
        """Return a gradient in that dtype: one tensor; or, of an embedding, indices of rows and values for them."""

    def slices_of(self, gradient: Any) -> list[Slices]:
        """By place in which a table is looked up, the gradients of its rows; empty for a gradient that is dense."""

    def sparse(self, slices: list[Slices], gradient: Any) -> Any:
        """Return a gradient like that one, of these slices."""

    def may_be_kept(self, tensor: Any) -> bool:
        """Return whether a step may keep what :meth:`on_host` has returned in a variable, without a copy.

        Asked when all that takes the tensor is known.
        """

    def sums_multiplied(self, factor: Callable[[Any], Any], rows: Callable[[], int]) -> AbstractContextManager[None]:
        """While it lasts, sums over the rows of a batch count that many times in gradients of losses.

        Parameters
        ----------
        factor
            Called in a step, with a dtype; a tensor.
        rows
            How many rows go into the step in hand.
        """

    def moments_of_all(
        self,
        forward: Callable[[Sequence[Any]], list[Any]],
        backward: Callable[[Sequence[Any]], list[Any]],
        is_aside: Callable[[], bool],
    ) -> AbstractContextManager[None]:
        """Give layers with ``synchronized=True`` the statistics of all workers' rows, while it lasts.

        Parameters
        ----------
        forward, backward
            Sum tensors over all workers, and derivatives by these sums.
        is_aside
            Whether what is made at that moment is of this worker alone.
        """

    def mark_multiplied(self, loss: Any) -> Any:
        """Mark a loss as multiplied with what it needs, so that :meth:`sums_multiplied` leaves it as it is.

        Or it is one of all workers' rows.
        """

    def is_by_row(self, loss: Any, rows: int) -> bool:
        """Return whether a loss has values by row, so that their sum is one over rows.

        False if its graph tells that.
        """

    def learn(
        self, tried: Callable[[int], Any], gradients: Callable[[], list[Any]], model: Any, gathers: TriedGathers
    ) -> str | None:
        """Find in tried steps what the current step does not show by itself.

        Parameters
        ----------
        tried
            Called with how often the rows of a batch are gone through in a step. What steps do is undone.
        gradients
            What optimizers were given in such steps since this was called last.
        model : keras.Model
            Whose step it is.
        gathers
            What plays the other workers in such steps.

        Returns
        -------
        str or None
            Why it is not known whether workers compute what one does; None if it is.

        Raises
        ------
        StepError
            Workers can't take that step together.
        """

    def draws(self, step: Callable[[Any], Any]) -> bool:
        """Return whether a step that :meth:`compiled` has returned shows that it draws random numbers."""

    def traced(self, function: Callable[[list[Any]], Any], columns: Sequence[Column]) -> None:
        """Let a function see columns of any number of rows by shape and dtype; nothing is computed.

        It raises what it raises where these do not fit it. Weights that layers make when they are first called are
        there afterwards.
        """

    def as_floatx(self, column: Any, floatx: str) -> Any:
        """Floating-point numbers in the precision that Keras is set to, as its own ``fit`` takes arrays in."""

    def counted(self, num_steps: int) -> Any:
        """Return a data set for which Keras' ``fit`` counts that many steps an epoch; batches come from elsewhere."""

    def exchanged(
        self, function: Callable[[list[np.ndarray]], Sequence[np.ndarray]], tensors: Sequence[Any], into: Sequence[Any]
    ) -> None:
        """Do as :meth:`on_host`, for a function that returns values for variables, which are copied into them.

        What a step does after this sees the new values.
        """

    def assigning(self, variables: Sequence[Any]) -> Callable[[Sequence[np.ndarray]], None]:
        """Return what assigns arrays to all of these variables at once."""

    def applying(
        self, optimizer: Any, variables: Sequence[Any], gradients: Sequence[np.ndarray | None]
    ) -> Callable[[Sequence[tuple[np.ndarray, ...]]], None]:
        """Return what applies the gradients that lie in these arrays when it is called; they are aligned to 64 bytes.

        Where there is None, it is called with indices of rows and values for them, one pair after the other. Without
        any gradients it counts a step in which other weights were changed.
        """

    def forgetting(self) -> AbstractContextManager[None]:
        """On exit, release the graphs that were made within, and the weights in them."""
