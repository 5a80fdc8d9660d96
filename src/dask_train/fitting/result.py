"""What ``fit`` returns: the result of its run, and the model."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.account import BatchRange
from dask_train.data.ledger import Ledger, LedgerLine, balance
from dask_train.driver.result import Result, RunAccount
from dask_train.fitting.finite import describe_bad_validation, describe_bad_weights
from dask_train.fitting.saved import save_model, saved
from dask_train.fitting.schemas import note_schema, row_of_zeros
from dask_train.input_errors import warn_at_the_call
from dask_train.report import charts
from dask_train.report.account import MetricCurves, epochs_apart
from dask_train.report.formats import score_text
from dask_train.run.stop_rule import number
from dask_train.trainers.common.outcome import Outcome

if TYPE_CHECKING:
    from dask_train.fitting.roles.variables import Variables


@dataclass(frozen=True, kw_only=True, repr=False)
class FitResult(RunAccount):
    """Result of ``fit``: the trained model, its history, and what every run leaves.

    Attributes
    ----------
    model
        The trained model, the very object that was passed: with its weights; of Keras, with optimizer state and
        ``history`` as well.
    history
        As ``History.history`` of Keras: a list for each metric, of one value per epoch.
    epoch
        The numbers of those epochs.
    best_epoch
        Epoch whose weights the model holds, with ``Checkpoint(restore_best=True)``; else None.
    all_reduce_s
        Seconds that the first worker has spent on sums with the others, and on waiting for them in these.
    waiting_s
        Seconds that the first worker has waited for the others of its host, in sums and in whatever else they do
        together: how much more even the workers could be. Both are 0 with parameter servers, where workers do not wait
        for each other.
    schema
        What the columns of the frame are that the model was fitted with; None of arrays. It travels with the model
        where :meth:`save` writes it.
    scores, ledger, attempts, stop_reason, run_id, notices
        As in :class:`~dask_train.Result`; the ledger is of the rows that the model was trained on.
    """

    model: Any = field(repr=False)
    history: dict[str, list[Any]]
    epoch: list[int]
    all_reduce_s: float
    waiting_s: float
    best_epoch: int | None = None
    schema: FrameSchema | None = field(default=None, repr=False)

    def save(self, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write the model with its schema, so that ``dt.predict(path, frame)`` gives the same predictions anywhere.

        Parameters
        ----------
        path
            A folder or URL, of any file system of fsspec: it gets the model in the format of its framework, and
            ``schema.json``. Keras models are ``model.keras``, modules of torch ``model.pt``, estimators of XGBoost
            ``model.ubj``, all others ``model.pickle``. Of a Keras model it may also be a file that ends with
            ``.keras``, which has the schema within; Keras opens it as any other. What an earlier call has written
            there is replaced.
        storage_options
            Keywords for the file system of a URL, such as credentials. Never shown. Default: what the environment says.

        Raises
        ------
        TypeError
            A category is of a type that JSON can't represent; nothing has been written.
        ValueError
            There are other files in the folder; or a store can't be written to.
        """
        save_model(self.model, self.schema, path, storage_options)

    def _save(self, folder: Path) -> Iterator[Path]:
        """Write what training has left into a folder: the ledger, the model, and the page of :meth:`report`."""
        yield from super()._save(folder)
        if self.epoch:
            yield saved(self.model, folder)
            yield from self._page(folder)

    def _trained(self) -> Any:
        """Return the model, if it was trained at all."""
        return self.model if self.epoch else None

    def _example(self) -> Any:
        """Return a row of zeros of the frame's features; None of arrays, and of other columns than numbers."""
        return None if self.schema is None else row_of_zeros(self.schema)

    def _page(self, folder: Path) -> list[Path]:
        """Write the page of :meth:`report` if matplotlib is installed: it is optional here."""
        if find_spec("matplotlib") is None:
            return []
        path = folder / "report.html"
        self.report(path)
        return [path]

    def _model_name(self) -> str:
        name = getattr(self.model, "name", None)
        return name if isinstance(name, str) else type(self.model).__name__

    def _metrics(self) -> MetricCurves:
        apart = epochs_apart(self.history, self.epoch, self.scores)
        return MetricCurves(self.history, self.epoch, apart=apart)

    def _values(self) -> list[tuple[str, str]]:
        last = {name: values[-1] for name, values in self.history.items() if values}
        best = [] if self.best_epoch is None else [("best epoch", f"{self.best_epoch + 1}")]
        epochs = f"{self.epoch[-1] + 1}" if self.epoch else "none"
        numbers = [
            (name, score_text(value))
            for name, value in last.items()
            if isinstance(value, int | float) and not (math.isnan(value) and self._was_not_validated(name))
        ]
        return [("model", self._model_name()), ("epochs", epochs), *best, *numbers]

    def _was_not_validated(self, name: str) -> bool:
        """Return whether a score that is not a number may be so because the last epoch was not validated."""
        return name.startswith("val_") and not all(math.isnan(number(value)) for value in self.history[name])

    def _curves(self) -> charts.Curves:
        curves = charts.Curves()
        for name, lines in self._metrics().lines().items():
            for rows, points in lines.items():
                for point in points:
                    curves.add(name, rows, point)
        return curves


AnyFitResult = TypeVar("AnyFitResult", bound=FitResult)


def trained(
    result: Result,
    model: Any,
    callbacks: Sequence[Any],
    params: Mapping[str, Any],
    schema: FrameSchema | None,
    variables: Variables,
) -> FitResult:
    """Return the result of ``fit``; the user's model and callbacks take over what was trained.

    Where the run was ended before its first worker could tell, they stay as they are, and the history is empty.
    """
    from dask_train.fitting.roles.sent_callbacks import take_states
    from dask_train.keras_models.serialization import load_parts

    outcome: Outcome | None = result.results["worker"][0]
    if outcome is None:
        return loop_result(result, outcome, model, schema)
    if outcome.header:  # else it is the very model that was trained
        load_parts(model, outcome.header, outcome.arrays)
        model.stop_training = outcome.stop_training
    if unchanged := take_states(callbacks, outcome.callbacks, variables, keep_changed=True):
        warn_at_the_call(
            f"{', '.join(unchanged)} changed here while callbacks changed the copy in the first worker, and stays as "
            "it is here. Hand each call of fit a list or dict of its own."
        )
    params = {**params, "steps": outcome.num_steps}
    if outcome.header:
        for callback in callbacks:
            # Not by their own set_model, which has run in the first worker; TensorBoard's writes files.
            vars(callback).update(_model=model, params=params)
    model.history = _history(model, callbacks, params, outcome)
    return loop_result(result, outcome, model, schema)


def _history(model: Any, callbacks: Sequence[Any], params: dict[str, Any], outcome: Outcome) -> Any:
    """Return what Keras' own ``fit`` returns, and leaves with the model: among its callbacks, if there is one."""
    from keras.callbacks import History

    history = next((callback for callback in callbacks if isinstance(callback, History)), None) or History()
    history.set_model(model)
    history.set_params(params)
    history.history, history.epoch = outcome.history, outcome.epoch
    return history


def loop_result(result: Result, outcome: Outcome | None, model: Any, schema: FrameSchema | None) -> FitResult:
    """Return the result of a run whose first worker has returned this, or could not; the model has taken it over."""
    if outcome is None:
        return result_of(FitResult, result, None, model=model, schema=schema, all_reduce_s=0.0, waiting_s=0.0)
    note_schema(model, schema)
    not_finite = describe_bad_weights(model) or describe_bad_validation(outcome.history)
    notices = [] if not_finite is None else [not_finite]
    for message in [*outcome.warnings, *notices]:
        warn_at_the_call(message)
    return result_of(
        FitResult,
        result,
        outcome,
        model=model,
        all_reduce_s=outcome.all_reduce_s,
        waiting_s=outcome.waiting_s,
        best_epoch=outcome.best_epoch,
        schema=schema,
        ledger=ledger_of_training(result.ledger, outcome),
        notices=[*result.notices, *notices],
    )


def result_of(kind: type[AnyFitResult], result: Result, outcome: Outcome | None, **known: Any) -> AnyFitResult:
    """Return the result of a fit: what its run leaves, and the history of its first worker.

    Parameters
    ----------
    kind
        The class of the result.
    outcome
        Returned by the first worker; None if it could not return.
    known
        Further fields of the class, which replace those of the run.
    """
    account = {each.name: getattr(result, each.name) for each in fields(RunAccount)}
    history, epoch = ({}, []) if outcome is None else (outcome.history, outcome.epoch)
    if outcome is not None and outcome.stop_reason:
        account["stop_reason"] = outcome.stop_reason
    return kind(**{**account, "history": history, "epoch": epoch, **known})


def warn_not_fitted(model: Any, result: Result, step: str) -> None:
    """Warn that an estimator stays as it is, since its run was stopped in the middle of a ``step``."""
    warn_at_the_call(
        f"{type(model).__name__} has not been fitted: the run was stopped ({result.stop_reason}) before its first "
        f"worker could return. Raise train.stop.timeout where a {step} takes longer, or resume from a checkpoint."
    )


def ledger_of_training(ledger: Ledger, outcome: Outcome) -> Ledger:
    """Return the rows that the model was trained on, also before it was resumed; those of validation are left out."""
    lines = [line for line in ledger.lines if line.role == "worker" and line.dataset == 0]
    # A worker that was killed may have brought a batch that it did not come back from, and a Dask worker that was lost
    # takes the accounts of its roles with it: what has gone into the weights is known anyway.
    applied = {(line.rank, line.epoch): line for line in _lines(outcome, outcome.applied)}
    for place, line in enumerate(lines):
        known = applied.pop((line.rank, line.epoch), None)
        rows = 0 if known is None else known.trained
        lines[place] = replace(line, trained=rows, read=max(line.read, rows))
    lines += applied.values()
    for _, size, by_rank in outcome.read:
        lines += _lines(outcome, by_rank, size)
    return replace(Ledger.of_lines(lines, lambda _: outcome.num_rows), skipped=ledger.skipped)


def _lines(outcome: Outcome, by_rank: dict[int, list[BatchRange]], size: int | None = None) -> tuple[LedgerLine, ...]:
    """Return what workers have trained on, as lines of a ledger."""
    accounts = {("worker", rank): [stretches] for rank, stretches in by_rank.items()}
    counts, rows = {"worker": size or len(by_rank)}, {("worker", 0): outcome.num_rows}
    return balance(accounts, counts, rows).lines
