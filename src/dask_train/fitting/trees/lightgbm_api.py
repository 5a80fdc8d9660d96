"""``fit`` of boosted trees: what is checked in the client for estimators of LightGBM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask_train.arguments import takes
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.driver.handle import Run
from dask_train.fitting.trees.api import TRAINING, TreesFit, evals_of, is_same, start
from dask_train.fitting.trees.lightgbm_ranks import has_linear_trees
from dask_train.fitting.trees.result import TreesResult
from dask_train.fitting.trees.settings import LightGBMSettings
from dask_train.training.settings import RunSettings


@frees_its_thread
@takes(LightGBMSettings, RunSettings, without=("gpus",))
def fit_lightgbm(model: Any, x: Any = None, y: Any = None, **given: Any) -> TreesResult | Run[TreesResult]:
    """Fit an estimator of LightGBM on the Dask cluster that holds the rows; :func:`dask_train.fit` calls it.

    Parameters
    ----------
    model : lightgbm.LGBMModel
        ``LGBMClassifier``, ``LGBMRegressor`` or ``LGBMRanker``. It is fitted in place. ``n_jobs`` is the share of the
        host's cores that each worker has.
    x, y
        As of the estimator's own ``fit``: Dask or NumPy arrays, or frames and columns of one frame; or a data set of
        :func:`dask_train.get_dataset`, with the targets. Categories of frames have to be known, and are encoded alike
        on all workers.
    **given
        Fields of :class:`LightGBMSettings` and :class:`~dask_train.training.settings.RunSettings`. ``qid`` stands in
        place of LightGBM's ``group``. The first worker scores whole sets, so that scores are those of all rows: it
        takes a byte or two per cell for that. Rows to train on that are scored, too, lie in memory once more. With
        ``streaming``, Dask computes the rows a group at a time, once in all, onto the local disks of the Dask workers,
        where they stay until their bins are made; these, a byte or two per cell, have to fit in memory, as have
        validation sets, targets and weights. The rest is as in :func:`dask_train.fitting.trees.api.fit_xgboost`.

    Returns
    -------
    TreesResult, or Run where ``wait`` is false; awaitables of them with an asynchronous client.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid; nothing has been started.
    PlacementError, LaunchError, RoleFailedError, RoleLostError, StalledError, DataError
        How the run ended; see :func:`dask_train.train`. What LightGBM refuses is raised as it is, a LightGBMError above
        all, with the worker's traceback as a note.

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
    ``force_row_wise``, which is sooner done, and keeps bins twice. What resumes from a checkpoint differs from what was
    never stopped in the last digits of leaves; and, with ``subsample`` or ``colsample_bytree`` below 1, in its trees:
    LightGBM draws from a stream of random numbers that a checkpoint does not hold, and ``notices`` says so.

    References
    ----------
    .. [1] Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017.
    """
    from dask_train.fitting.trees.lightgbm_checks import check_metrics  # imports LightGBM

    settings, run = LightGBMSettings.of(given), RunSettings.of(given, gpus=None)
    qid = settings.qid
    _check_ranker(model, qid)
    check_metrics(model.get_params(), settings.eval_metric)
    rows = (x, y, {"sample_weight": settings.sample_weight, "margin": settings.init_score, "qid": qid})
    evals = evals_of(settings, settings.eval_sample_weight, settings.eval_init_score, by_name=rows[2])
    names = [TRAINING if is_same(each, rows) else f"valid_{number}" for number, each in enumerate(evals)]
    if run.window is not None:
        _check_streamed(model, qid, names)
    if settings.eval_names is not None:
        if len(settings.eval_names) != len(names):
            raise ValueError(
                f"eval_names has {len(settings.eval_names)} names, and there are {len(names)} sets to score."
            )
        names = [own if own == TRAINING else str(name) for own, name in zip(names, settings.eval_names, strict=True)]
        if twice := [each for number, each in enumerate(names) if each in names[:number]]:
            raise ValueError(f"eval_names calls two sets {twice[0]!r}, and scores go by name. Name each otherwise.")
    options = {name: getattr(settings, name) for name in ("eval_metric", "categorical_feature", "callbacks")}
    if settings.eval_at is not None:
        options["eval_at"] = tuple(settings.eval_at)
    fitting = TreesFit(
        library="lightgbm",
        model=model,
        rows=rows,
        evals=evals,
        eval_names=names,
        first=getattr(settings.init_model, "booster_", settings.init_model),
        options=options,
    )
    return start(fitting, settings, run)


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
    """Check that queries are given where rows are ranked within them.

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
