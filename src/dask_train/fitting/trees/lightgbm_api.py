"""``fit`` of boosted trees: what is checked in the client for estimators of LightGBM."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dask_train.checkpoint.policy import Checkpoint
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.driver.handle import Run
from dask_train.fitting import checks as fit_checks
from dask_train.fitting.trees.api import TRAINING, evals_of, is_same, start
from dask_train.fitting.trees.lightgbm_ranks import has_linear_trees
from dask_train.fitting.trees.result import TreesResult
from dask_train.fitting.trees.task import TreesTask
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import StopRule
from dask_train.shared_data.streaming import check_streaming
from dask_train.training.launch import DEFAULT, check_start

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


@frees_its_thread
def fit_lightgbm(  # noqa: PLR0913 - LightGBM's own arguments, and ours
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    init_score: Any = None,
    qid: Any = None,
    validation_data: Any = None,
    eval_set: Sequence[tuple[Any, Any]] | None = None,
    eval_names: Sequence[str] | None = None,
    eval_sample_weight: Sequence[Any] | None = None,
    eval_init_score: Sequence[Any] | None = None,
    eval_qid: Sequence[Any] | None = None,
    eval_metric: Any = None,
    eval_at: Sequence[int] | None = None,
    categorical_feature: Any = "auto",
    callbacks: Sequence[Any] | None = None,
    init_model: Any = None,
    verbose: str | int | bool = "auto",
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    workers: int | None = None,
    streaming: bool | int = False,
    stop: str | StopRule | Callable[[list[dict[str, Any]]], Any] | Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    recovery: str | RecoveryPolicy | None = DEFAULT,
    on: Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    client: Client | None = None,
    wait: bool = True,
    name: str | None = None,
    log: Any = None,
) -> TreesResult | Run[TreesResult]:
    """Fit an estimator of LightGBM on the Dask cluster that holds the rows; :func:`dask_train.fit` calls it.

    Parameters
    ----------
    model : lightgbm.LGBMModel
        ``LGBMClassifier``, ``LGBMRegressor`` or ``LGBMRanker``. It is fitted in place. ``n_jobs`` is the share of the
        host's cores that each worker has.
    x, y, sample_weight, init_score
        As of the estimator's own ``fit``: Dask or NumPy arrays, or frames and columns of one frame; or a data set of
        :func:`dask_train.get_dataset`, with the targets. Categories of frames have to be known, and are encoded alike
        on all workers.
    qid
        For rankers, the number of each row's query, in any order, in place of LightGBM's ``group``. A query whose rows
        lie in several partitions is brought together on one worker.
    validation_data, eval_set, eval_names, eval_sample_weight, eval_init_score, eval_qid
        Rows that are scored after each round: ``(X, y)`` or ``(X, y, sample_weight)``, or a frame like ``x``; or what
        LightGBM takes. The first worker scores whole sets, so that scores are those of all rows: it takes a byte or two
        a cell for that. Rows to train on that are scored, too, lie in memory once more.
    eval_metric, eval_at, categorical_feature, callbacks, init_model
        As of the estimator's own ``fit``. Callbacks run in every worker, with the same scores; those that were passed
        hold in the end what those of the first worker hold.
    streaming
        True, or how many partitions make a group: rows larger than memory. Dask computes them a group at a time, once
        in all, onto the local disks of the Dask workers, where they stay until their bins are made. These, a byte or
        two a cell, have to fit in memory, as have validation sets, targets and weights.
    verbose, features, label, workers, stop, checkpoint, resume, recovery, on, resources, client, wait, name, log
        As for estimators of XGBoost: see :func:`dask_train.fitting.trees.api.fit_xgboost`.

    Returns
    -------
    TreesResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument can't be; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`.

    Notes
    -----
    Ranks sum histograms (``tree_learner="data"`` [1]_, or what the estimator is set to). Bins are of a sample of
    ``subsample_for_bin`` rows of all workers, the same on each: where there are not more rows, they are those of one
    process. Trees are nearly so: LightGBM guesses from hessians how many rows of all workers a leaf has, and chooses
    other splits now and then where hessians differ (less often with ``min_child_samples=1``). Leaves of
    ``"l1"``, ``"quantile"`` and ``"mape"`` are means over workers, and ``notices`` says so. ``linear_tree`` is refused
    of several workers.
    ``deterministic`` and ``force_col_wise`` are set unless they are given, so that trees are the same from run
    to run. Of a million rows or more with few features (``num_features * max_bin`` of 32,768 at most) it is
    ``force_row_wise``, which is sooner done, and keeps bins twice. What goes on with a checkpoint differs from what was
    never stopped in the last digits of leaves; and, with ``subsample`` or ``colsample_bytree`` below 1, in its trees:
    LightGBM draws from a stream of random numbers that a checkpoint does not hold, and ``notices`` says so.

    References
    ----------
    .. [1] Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017.
    """
    fit_checks.check_counts(workers=workers)
    check_start(name=name, wait=wait)
    is_streamed = check_streaming(streaming) is not None
    _check_ranker(model, qid)
    rows = (x, y, {"sample_weight": sample_weight, "margin": init_score, "qid": qid})
    evals = evals_of(validation_data, eval_set, eval_sample_weight, eval_init_score, eval_qid, by_name=rows[2])
    names = [TRAINING if is_same(each, rows) else f"valid_{number}" for number, each in enumerate(evals)]
    if is_streamed:
        _check_streamed(model, qid, names)
    if eval_names is not None:
        if len(eval_names) != len(names):
            raise ValueError(f"eval_names has {len(eval_names)} names, and there are {len(names)} sets to score.")
        names = [own if own == TRAINING else str(given) for own, given in zip(names, eval_names, strict=True)]
        if twice := [each for number, each in enumerate(names) if each in names[:number]]:
            raise ValueError(f"eval_names calls two sets {twice[0]!r}, and scores go by name. Name each otherwise.")
    settings = {"eval_metric": eval_metric, "categorical_feature": categorical_feature, "callbacks": callbacks}
    if eval_at is not None:
        settings["eval_at"] = tuple(eval_at)
    return start(
        TreesTask,
        library="lightgbm",
        model=model,
        rows=rows,
        evals=evals,
        eval_names=names,
        columns=(features, label),
        first=getattr(init_model, "booster_", init_model),
        settings=settings,
        verbose=verbose,
        workers=workers,
        stop=stop,
        checkpoint=checkpoint,
        resume=resume,
        client=client,
        streaming=streaming,
        by_validation_data=validation_data is not None,
        launched={"recovery": recovery, "on": on, "resources": resources, "wait": wait, "name": name, "log": log},
    )


def _check_streamed(model: Any, qid: Any, evals: Sequence[str]) -> None:
    """Refuse what takes all rows in memory.

    Raises
    ------
    ValueError
        It is asked for.
    """
    why = {
        "qid": (qid is not None, "a query's rows have to be together"),
        "linear_tree": (has_linear_trees(model.get_params()), "LightGBM keeps all features for the models in leaves"),
        "the rows to train on in eval_set": (TRAINING in evals, "the first worker scores whole sets, from memory"),
    }
    for what, (is_asked, reason) in why.items():
        if is_asked:
            raise ValueError(
                f"streaming with {what}: {reason}, and data that is streamed is never all in memory. Leave either out."
            )


def _check_ranker(model: Any, qid: Any) -> None:
    """See that queries are given where rows are ranked within them.

    Raises
    ------
    ValueError
        They are not, or where they mean nothing.
    """
    is_ranker = any(kind.__name__ == "LGBMRanker" for kind in type(model).__mro__)
    if is_ranker != (qid is not None):
        kind = type(model).__name__
        raise ValueError(
            f"{kind} ranks rows within queries. Pass qid=, the number of each row's query."
            if is_ranker
            else f"qid is for rankers, and model is a {kind}. Leave it out."
        )
