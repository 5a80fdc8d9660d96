"""Torch modules as ``fit`` and ``evaluate`` take them; this module imports torch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from dask_train.arguments import takes
from dask_train.checkpoint.best import AUTO, mode_by_name
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.driver.result import Result
from dask_train.driver.settings import RunSettings
from dask_train.fitting.data import run_inputs
from dask_train.fitting.finite import warn_of_evaluation
from dask_train.fitting.model_kind import FitCall, FitRows, FitWork, ModelKind, TrialRows, TrialSpec
from dask_train.fitting.result import FitResult, loop_result
from dask_train.fitting.schemas import schema_for
from dask_train.fitting.settings import run_fields, trial_fields
from dask_train.fitting.spec import InProcess
from dask_train.fitting.start import started
from dask_train.fitting.stop_checks import names_logged
from dask_train.fitting.torch_module import checkpoints, checks
from dask_train.fitting.torch_module.entry import EvaluationRole, ModuleRole
from dask_train.fitting.torch_module.optimizers import load_state
from dask_train.fitting.torch_module.prepared import PreparedModule
from dask_train.fitting.torch_module.settings import ModuleEvaluation, ModuleSettings
from dask_train.fitting.torch_module.share_checks import check_number, check_shared, check_size
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining, logged_params
from dask_train.fitting.torch_module.values import from_plain, set_state
from dask_train.fitting.wire import check_dtypes
from dask_train.frameworks.torch.adapter import TorchFitFramework
from dask_train.frameworks.torch.modules import unpickle_parts
from dask_train.inputs.making import input_data
from dask_train.report.parts_progress import RowsDisplay
from dask_train.report.progress import progress_of
from dask_train.trainers.common.outcome import Outcome

# Settings of how the workers of a fit share their work, which trials have none of.
_OF_FITS = frozenset({"virtual_workers", "wire", "sync_every", "outer_learning_rate", "outer_momentum"})


class Modules(ModelKind):
    """Modules of torch, trained by the loop that one writes by hand, on many workers.

    All workers train one module: each takes its share of every global batch, the loss is that of the whole global
    batch, and gradients are summed before the optimizer applies them. So the module, its metrics and its history are
    those of a loop in one process, whatever the number of workers, except for the order in which numbers are added up.

    A module is any that can be pickled, or whose class can; it is sent to each worker. One of ``torch.compile`` is
    trained without its compiled code, and a notice says so. Several inputs are its arguments, those in a dict by name.
    Afterwards it holds what was trained, in the tensors that it had. It is trained in training mode and validated in
    evaluation mode, and keeps the mode that it was in. Floats are given to it in the dtype of its parameters, whole
    numbers among targets as int64.

    With ``sample_weight`` the loss of a batch is the weighted mean of its rows' losses, which ``loss`` has to give with
    ``reduction="none"``, except targets that are its ``ignore_index``; of a loss with ``reduction="sum"``, their
    weighted sum. ``stop`` looks at metrics of torchmetrics when an epoch has ended. For ``dt.Checkpoint(best=...)`` of
    another score than a loss say ``mode=`` as well. What resumes comes to the same end to the last bit; ``epochs``,
    ``workers``, metrics, validation and what concerns the run may change. A log gets the module's ``state_dict``.

    Notes
    -----
    Dropout draws other numbers in each worker; those of the first one begin with the state of torch's random numbers
    here, as ``torch.manual_seed`` sets it. BatchNorm normalises each worker's share by itself, as in torch's
    DistributedDataParallel; its moving averages are averaged at the end of each epoch. With ``virtual_workers`` each of
    so many shares of a batch does both, on any number of workers, in one thread of each. The outputs of the module and
    the targets of each step go to all workers, except losses of torch that are means or sums over rows, without
    metrics: of one worker outputs need one row for each row that goes in.
    """

    name = "torch"
    settings = ModuleSettings
    grows = True

    def check(self, call: FitCall) -> None:
        """Check that it is a module."""
        module = checks.check_module(call.model)
        for workers in (call.workers or 0, call.run.follows.high if call.run.follows is not None else 0):
            check_number(workers, call.settings.virtual_workers)
        if call.settings.virtual_workers is not None:
            check_shared(module, call.workers)

    def scores(self, call: FitCall) -> Collection[str] | None:
        """Return the loss and the metrics; None if one of these names its scores itself."""
        return checks.scores_of(checks.named_metrics(call.settings.metrics))

    def check_best(self, call: FitCall) -> None:
        """Check that it is known which way the best score goes, too."""
        super().check_best(call)
        policy = call.run.checkpoint
        if policy is not None and policy.best is not None and mode_by_name(policy.best, policy.mode) == AUTO:
            checkpoints.mode_of(checks.check_module(call.model), policy.best)

    def prepared(self, call: FitCall, rows: FitRows) -> PreparedModule:
        """Check that rows go through the module, its loss and its metrics."""
        prepared = PreparedModule.checked(call.model, call.settings, rows)
        trained = prepared.training.module.named_parameters()
        named = ((name, str(one.dtype).removeprefix("torch.")) for name, one in trained if one.requires_grad)
        check_dtypes(call.settings.wire, named)
        return prepared

    def check_together(self, model: Any, settings: ModuleSettings, workers: int) -> None:
        """Check the layers, which have as many shares of a batch as there are workers, or a fixed number."""
        check_size(settings.rows, settings.virtual_workers, workers)
        shares = settings.virtual_workers or workers
        checks.check_together(checks.check_module(model), shares)
        if settings.sync_every is not None and workers == 1:
            raise ValueError(
                f"sync_every={settings.sync_every} is for several workers, which share weights, and there is one. "
                "Leave sync_every= out, or pass workers=2 or more."
            )

    def needs_one_host(self, call: FitCall) -> bool:
        """Return whether shares are added up in a fixed order, in memory that all workers map."""
        return getattr(call.settings, "virtual_workers", None) is not None

    def size_check(self, call: FitCall) -> Callable[[int], None]:
        """Check that each worker has a share, too."""
        return partial(check_size, call.settings.rows, call.settings.virtual_workers)

    def work(self, call: FitCall, rows: FitRows, prepared: PreparedModule) -> FitWork:
        """Return what the workers do."""
        task = prepared.task(call.model, call.settings, rows, run_fields(call.run))
        return FitWork(
            functions=ModuleRole(task),
            params=logged_params(task),
            display=call.settings.display,
            finish=partial(
                module_trained,
                model=call.model,
                module=prepared.training.module,
                optimizer=call.settings.optimizer,
                schema=rows.data.schema,
            ),
        )

    @property
    def trial_settings(self) -> tuple[str, ...]:
        """Names of settings that ``build`` may return: none of how the workers of a fit share their work."""
        return tuple(name for name in super().trial_settings if name not in _OF_FITS)

    def framework(self, *, in_place: bool = False) -> TorchFitFramework:
        """Return that of torch."""
        return TorchFitFramework(in_place=in_place)

    def trial(self, model: Any, settings: ModuleSettings, rows: TrialRows) -> TrialSpec:
        """Check a module as ``fit`` does; the best model is a copy of it."""
        prepared = PreparedModule.checked(model, settings, rows)
        self.check_together(model, settings, rows.workers)
        task = prepared.task(model, settings, rows, trial_fields())
        names = checks.scores_of(checks.named_metrics(settings.metrics))
        scores = None if names is None else names_logged(names, validates=rows.validation is not None)
        return TrialSpec(work=ModuleRole(task), model=lambda trained: _module_of(task, trained), scores=scores)


def _module_of(task: ModuleTask, trained: dict[str, Any]) -> Any:
    """Return a module like the one that was built, which may be changed meanwhile, with the trained tensors."""
    module = unpickle_parts(task.header["training"], task.arrays).module
    set_state(module, from_plain(trained["training"], copies=False)["module"])
    return module


MODULES = Modules()


class _Evaluations(Modules):
    """Modules that are evaluated, not trained."""

    grows = False

    def check_together(self, model: Any, settings: ModuleEvaluation, workers: int) -> None:  # type: ignore[override]
        """Check nothing: a worker may have no rows of a batch, since layers in evaluation mode share nothing."""

    def work(self, call: FitCall, rows: FitRows, prepared: ModuleTraining) -> FitWork:  # type: ignore[override]
        """Return what the workers do."""
        (source,) = rows.inputs.data.values()
        here = call.workers == 0
        header, arrays = (b"", []) if here else checks.sent(prepared)
        task = ModuleTask(
            header={"training": header},
            arrays=arrays,
            in_process=InProcess(model=replace(prepared, loss=checks.copy_of(prepared.loss))) if here else None,
            columns=rows.data.columns,
            validation_columns=rows.data.columns,
            validation_batch_size=call.settings.batch_size,
            random=checks.random_state(),
            **run_fields(call.run),
        )
        display = partial(RowsDisplay, rows=source.num_rows, batch_size=call.settings.batch_size)
        return FitWork(functions=EvaluationRole(task), display=display, finish=evaluated)


@takes(ModuleEvaluation)
def evaluate_module(model: Any, x: Any, y: Any = None, **arguments: Any) -> dict[str, float]:
    """Evaluate a torch module on all rows of a Dask collection, as one process does in the same batches.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode; it keeps the mode that it is in.
    x, y
        As :class:`Modules` has them.
    **arguments
        Fields of :class:`ModuleEvaluation`.

    Returns
    -------
    dict of str to float
        ``loss``, and metrics by name. An awaitable with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid, or the data does not fit the module, its loss or its metrics; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        As :func:`dask_train.train`.
    """
    settings = ModuleEvaluation.of(arguments)
    module, loss = checks.check_module(model), settings.loss
    metrics = checks.named_metrics(settings.metrics)
    like = Conformer(schema_for(model, settings.schema), learns=False)
    columns: dict[str, Any] = {"features": settings.features, "label": settings.label}
    data = input_data("data", x, y, settings.sample_weight, **columns, like=like, trains=False)
    checks.check_loss(loss, module)
    checks.check_rows(module, loss, metrics, data, "The data", trains=False)
    rows = FitRows(data=data, inputs=run_inputs(data, None))
    run = RunSettings(client=settings.client, gpus=None, name="evaluate", progress=progress_of(settings.verbose))
    call = FitCall(model=model, x=x, y=y, settings=settings, run=run, workers=settings.workers)
    results: dict[str, float] = started(
        _Evaluations(), call, rows, ModuleTraining(module=module, loss=loss, metrics=metrics)
    )
    return results


def module_trained(
    result: Result, model: Any, module: torch.nn.Module, optimizer: Any, schema: FrameSchema | None
) -> FitResult:
    """Return the result of a run; the ``module``, and an ``optimizer`` that was passed, hold what was trained.

    Where the run was ended before its first worker could tell, they stay as they are, and the history is empty.
    """
    outcome: Outcome | None = result.results["worker"][0]
    if outcome is not None and outcome.header:  # else it is the very module that was trained
        state = from_plain(outcome.header["training"], copies=False)
        set_state(module, state["module"])
        if isinstance(optimizer, torch.optim.Optimizer):
            load_state(optimizer, state["optimizer"])
    return loop_result(result, outcome, model, schema)


def evaluated(result: Result) -> dict[str, float]:
    """Return loss and metrics by name; warn where the loss is NaN.

    Raises
    ------
    ValueError
        The run was ended before they were known.
    """
    metrics: dict[str, float] | None = result.results["worker"][0]
    if metrics is None:
        raise ValueError(f"The evaluation was ended before it was through: {result.stop_reason}.")
    warn_of_evaluation(metrics)
    return metrics
