"""Boosted trees of XGBoost as ``fit`` and ``search`` take them; this module imports XGBoost."""

from __future__ import annotations

from typing import Any

from dask_train.compat.xgboost import is_ranker
from dask_train.data.columns import Column
from dask_train.fitting.model_kind import FitCall, FitRows
from dask_train.fitting.trees.api import GivenRows, Trees, evals_of
from dask_train.fitting.trees.checks import check_xgboost
from dask_train.fitting.trees.settings import XGBoostSettings
from dask_train.fitting.trees.xgboost_checks import check_labels, check_params
from dask_train.fitting.trees.xgboost_ranks import check_together


class XGBoostTrees(Trees):
    """Estimators of XGBoost, which are fitted in place on the Dask cluster that holds the rows.

    These are ``XGBClassifier``, ``XGBRegressor``, ``XGBRanker``, and the random forests; with ``tree_method="hist"``
    (the default). ``n_jobs`` is the share of the host's cores that each worker has.

    ``x`` and ``y`` are as of the estimator's own ``fit``: Dask or NumPy arrays, or frames and columns of one frame; or
    a data set of :func:`dask_train.get_dataset`, with the targets. Missing values are NaN, or the estimator's
    ``missing``; categories of frames have to be known, and are encoded alike on all workers.

    A row's weight is that of its query, for rankers. ``stop`` looks at scores by their names in ``history``, and
    ``round``; it ends training after a round that is the same for all workers. A checkpoint holds the booster, the
    callbacks and all scores, by default one per minute and the last one. What resumes makes the same trees as what was
    never stopped; ``n_estimators`` may be another one. A log gets the booster in its library's own format. Without
    ``checkpoint`` a lost worker means that all begin again. With ``streaming``, Dask computes the rows a group at a
    time, once in all, onto the local disks of the Dask workers, where their bins stay for as long as they are trained
    on (``xgboost.ExtMemQuantileDMatrix``); validation sets, targets and weights have to fit in memory. What XGBoost
    refuses is raised as it is, an XGBoostError above all, with the worker's traceback as a note.

    Notes
    -----
    Each worker makes a ``QuantileDMatrix`` of its partitions, one after the other, from shared memory: one or two bytes
    a cell besides the data itself, and never a copy of it. Histograms are summed over workers in float64 [1]_. Which
    splits are looked at comes of a sketch of each feature, merged over workers [2]_: features of no more than
    ``max_bin`` different values have the very splits of one process, others have splits that are as good and not the
    same. With ``subsample`` below 1 each worker draws of its own rows, and with ``lambdarank_pair_method="mean"`` of
    its own queries. From run to run the trees are the same where the partitions lie on the same hosts and workers have
    as many threads.

    A metric that is a function is given the rows of all workers. Of XGBoost's own, ``auc`` and ``aucpr`` are means over
    workers, and so are leaves of ``"reg:absoluteerror"`` and ``"reg:quantileerror"`` before XGBoost 3.4; ``notices``
    says so.

    References
    ----------
    .. [1] Chen, Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016.
    .. [2] Chen, Guestrin, as before, appendix A: weighted quantile sketch.
    """

    name = "xgboost"
    settings = XGBoostSettings

    def given(self, call: FitCall) -> GivenRows:
        """Return the rows, with sets that are called ``validation_0`` and so on."""
        settings = call.settings
        others = {"sample_weight": settings.sample_weight, "margin": settings.base_margin, "qid": settings.qid}
        evals = evals_of(settings, settings.sample_weight_eval_set, settings.base_margin_eval_set, by_name=others)
        names = [f"validation_{number}" for number in range(len(evals))]
        return GivenRows(rows=(call.x, call.y, others), evals=evals, names=names)

    def first(self, call: FitCall) -> Any:
        """Return ``xgb_model``."""
        return call.settings.xgb_model

    def traits(self, call: FitCall) -> list[str]:
        """Return whether rows have queries, and whether a device other than CPUs is asked for."""
        is_so = {"ranker": is_ranker(call.model), "device": call.model.device not in (None, "cpu")}
        return [trait for trait, is_it in is_so.items() if is_it]

    def prepared(self, call: FitCall, rows: FitRows) -> None:
        """Check labels that are in this process, too."""
        check_labels(call.model, call.x, call.y, call.settings.label)
        super().prepared(call, rows)

    def check_estimator(self, model: Any, settings: Any, qid: Any) -> None:  # noqa: ARG002 - of the other library
        """Check what XGBoost does in one process alone."""
        check_xgboost(model, qid)

    def check_params(self, model: Any, features: Column) -> None:
        """Let XGBoost configure a booster."""
        check_params(model.get_xgb_params(), features.row_shape[0], features.names)

    def check_together(self, model: Any, settings: Any, workers: int) -> None:  # noqa: ARG002 - as before
        """Check objectives and metrics of several workers."""
        check_together(model.get_params(), workers)


XGBOOST = XGBoostTrees()
