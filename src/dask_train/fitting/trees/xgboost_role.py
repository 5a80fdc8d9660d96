"""An estimator of XGBoost, fitted by ranks.

The estimator's own ``fit`` runs in each rank, so that objectives, classes and parameters are what they are in one
process. Two names that it uses are others meanwhile, in its thread: matrices are made of this rank's parts, one after
the other, and rounds are trained by a loop that reports scores, keeps checkpoints and resumes from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xgboost
from xgboost.callback import CallbackContainer, EarlyStopping, LearningRateScheduler, TrainingCallback

from dask_train.compat.xgboost import count_from
from dask_train.data.columns import Column
from dask_train.fitting.trees.callbacks import CallbackChanges, KeptCallbacks
from dask_train.fitting.trees.parts import TreeRows, classes_of, frame_of, parts_of
from dask_train.fitting.trees.replaced import replaced_in_thread
from dask_train.fitting.trees.role import check_same_scores
from dask_train.fitting.trees.spool import rows_to_train_on
from dask_train.fitting.trees.task import TreesTask
from dask_train.fitting.trees.xgboost_ranks import exact, tell, unused_told
from dask_train.role.session import Session
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.rounds import RoundLoop

# Parameters that may change when rounds resume.
FREE = frozenset({"n_estimators", "n_jobs", "callbacks", "verbosity"})
# Matrices that are made of parts.
OF_PARTS = (xgboost.QuantileDMatrix, xgboost.ExtMemQuantileDMatrix)
# Attributes of callbacks that choose the score that these look at.
_LOOKS_AT = {EarlyStopping: ("data", "metric_name")}


def grow(task: TreesTask, session: Session, loop: RoundLoop) -> dict[str, Any]:
    """Fit it; the same estimator on all ranks, which is returned by its name, with what callbacks have changed.

    Raises
    ------
    ValueError
        The data or the checkpoint does not fit the estimator.
    """
    estimator = task.estimator
    parts = rows_to_train_on(task, session)
    matrices = Matrices(session, task, parts)
    own = {"n_jobs": estimator.n_jobs, "eval_metric": estimator.eval_metric}
    estimator.set_params(n_jobs=session.num_threads, eval_metric=exact(estimator.eval_metric, session))
    is_classifier = isinstance(estimator, xgboost.XGBClassifier)
    labels = classes_of(session, parts) if is_classifier else parts[0].y[:0].copy()
    del parts  # what is spooled goes when its matrix is made
    rounds = XGBoostRounds(task, session, loop)
    tell(estimator.get_params(), own["eval_metric"] if task.evals else (), session)
    with (
        unused_told(session),
        replaced_in_thread(xgboost.sklearn, QuantileDMatrix=matrices.make, train=rounds.train),
    ):
        estimator.fit(matrices.stand_ins[""], labels, verbose=False, **_rest(task, matrices, labels))
    callbacks = rounds.changes_of(estimator.callbacks or ())
    vars(estimator).update(own, callbacks=None)  # set_params would tell the booster
    return {"estimator": estimator, "callbacks": callbacks, "num_before": rounds.num_before}


def end_with(estimator: Any, number: int) -> None:
    """Let a fitted estimator predict with the rounds up to that number, counted from 0, as after early stopping."""
    booster = estimator.get_booster()
    booster.best_iteration = number
    if booster.attr("best_score") is not None:
        booster.set_attr(best_score=None)  # of the round that early stopping has found


def _rest(task: TreesTask, matrices: Matrices, labels: np.ndarray) -> dict[str, Any]:
    """Return the arguments of ``fit`` besides its rows, which stand-ins take the place of."""
    arguments: dict[str, Any] = {"xgb_model": task.start, **task.settings}
    if task.evals:
        arguments["eval_set"] = [(matrices.stand_ins[each.dataset], labels) for each in task.evals]
    if task.columns.groups is not None:
        arguments["qid"] = matrices.queries
        if task.evals:
            arguments["eval_qid"] = [matrices.queries for _ in task.evals]
    return arguments


class Matrices:
    """Makes the matrices that ``fit`` asks for.

    Parameters
    ----------
    session, task
        Of the role.
    parts
        Its rows to train on.

    Attributes
    ----------
    stand_ins
        What ``fit`` is given for rows, by data set; the empty name is for those to train on.
    queries
        What it is given for the numbers of queries.
    """

    def __init__(self, session: Session, task: TreesTask, parts: Sequence[TreeRows]) -> None:
        self._session, self._task = session, task
        known = {"": task.columns, **{each.dataset: each.columns for each in task.evals}}
        self.stand_ins = {name: np.empty((0, *columns.matrix.row_shape)) for name, columns in known.items()}
        self.queries = np.empty(0, np.int64)
        self._known, self._parts = known, {"": parts}

    def make(self, *, data: Any, ref: Any = None, feature_weights: Any = None, **settings: Any) -> Any:
        """Make a ``QuantileDMatrix`` of the rows, one byte or two a cell; on disk if they are streamed.

        Raises
        ------
        ValueError
            XGBoost can't make one of such rows. Else its ``fit`` would go wrong with a matrix of the stand-in.
        """
        name = next(name for name, stand_in in self.stand_ins.items() if stand_in is data)
        options = {
            key: settings[key] for key in ("missing", "nthread", "max_bin", "enable_categorical") if key in settings
        }
        columns = self._known[name]
        types = settings.get("feature_types") if columns.matrix.categories is None else _categories_of(self._task.start)
        if (parts := self._parts.pop(name, None)) is None:
            parts = parts_of(self._session, self._session.dataset(name), columns)
        kind: Any = xgboost.QuantileDMatrix
        pages = None
        if self._task.streamed and not name:
            kind, pages = xgboost.ExtMemQuantileDMatrix, str(self._session.scratch / "bins")
        try:
            matrix = kind(Batches(parts, columns.matrix, pages, types), ref=ref, **options)
        except TypeError as error:
            raise ValueError(f"XGBoost makes no QuantileDMatrix of these rows: {error}") from error
        if feature_weights is not None:
            matrix.set_info(feature_weights=feature_weights)
        return matrix


class Batches(xgboost.DataIter):
    """Parts as XGBoost goes through them, some times over.

    Parameters
    ----------
    parts
        This rank's.
    column
        What they are.
    pages
        With what the names of files of bins begin; None if bins are kept in memory.
    types
        What XGBoost takes for ``feature_types``: of arrays a word for each, of frames the categories of a model to
        continue, whose codes theirs become.
    """

    def __init__(self, parts: Sequence[TreeRows], column: Column, pages: str | None = None, types: Any = None) -> None:
        super().__init__(cache_prefix=pages)
        self._parts, self._column, self._types, self._next = parts, column, types, 0

    def reset(self) -> None:
        """Begin with the first."""
        self._next = 0

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Give the next one; whether there was one."""
        if self._next == len(self._parts):
            return False
        part, column = self._parts[self._next], self._column
        self._next += 1
        arguments: dict[str, Any] = {"label": part.y, "weight": part.sample_weight, "base_margin": part.margin}
        if part.qid is not None:
            arguments |= {"group": part.group_sizes(), "weight": part.group_weights()}
        if column.categories is None:
            # A new view: XGBoost knows a batch that it has seen by its identity.
            arguments |= {"data": part.x[:], "feature_names": None if column.names is None else list(column.names)}
        else:
            arguments["data"] = frame_of(part.x, column)
        arguments["feature_types"] = self._types
        input_data(**{name: value for name, value in arguments.items() if value is not None})
        return True


def _categories_of(start: Any) -> Any:
    """Return the categories of a model to continue, as XGBoost refers to them; None if it has none."""
    if start is None:
        return None
    booster = start.get_booster() if isinstance(start, xgboost.XGBModel) else start
    booster = booster if isinstance(booster, xgboost.Booster) else xgboost.Booster(model_file=booster)
    # XGBoost before 3.1 keeps none.
    categories = booster.get_categories() if hasattr(booster, "get_categories") else None
    return None if categories is None or categories.empty() else categories


class SameScores(TrainingCallback):
    """Refuses a call that resumes if its first round has other scores than those before.

    It comes before callbacks that look at scores.

    Parameters
    ----------
    history
        The scores of the rounds before, by data set and metric.
    """

    def __init__(self, history: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], int] | None = _counts(history)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002 - as XGBoost calls it
        """Check the scores of the first round."""
        if self._counts is not None:
            now = [pair for pair, count in _counts(evals_log).items() if count > self._counts.get(pair, 0)]
            check_same_scores(self._counts, now)
            self._counts = None
        return False


def _counts(history: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[tuple[str, str], int]:
    """Return the number of scores by data set and metric."""
    return {(name, metric): len(values) for name, scores in history.items() for metric, values in scores.items()}


class XGBoostRounds:
    """The rounds of ``xgboost.train``, in a loop that all ranks pass together.

    Parameters
    ----------
    task, session
        Of the role.
    loop
        In which they are.

    Attributes
    ----------
    num_before
        How many rounds the model had that this fit continues.
    """

    def __init__(self, task: TreesTask, session: Session, loop: RoundLoop) -> None:
        self._task, self._session, self._loop = task, session, loop
        self.num_before = 0
        self._booster: Any = None
        self._model: Any = None  # with which the booster begins
        self._ended = False  # whether a callback has ended the rounds
        self._callbacks = KeptCallbacks((), task.run)

    def changes_of(self, passed: Sequence[Any]) -> list[CallbackChanges]:
        """Return what training has changed in each of the callbacks that were passed."""
        return self._callbacks.changes_of(passed)

    def train(  # noqa: PLR0913 - as xgboost.train
        self,
        params: Mapping[str, Any],
        dtrain: Any,
        num_boost_round: int,
        *,
        evals: Sequence[Any] = (),
        early_stopping_rounds: int | None = None,
        evals_result: dict[str, Any] | None = None,
        obj: Any = None,
        custom_metric: Any = None,
        xgb_model: Any = None,
        callbacks: Sequence[Any] | None = None,
        **_: Any,
    ) -> Any:
        """Train as ``xgboost.train`` does, but begin with the last checkpoint, if there is one.

        Raises
        ------
        ValueError
            The estimator has made another matrix, of what stands in for the rows.
        """
        if not all(isinstance(rows, OF_PARTS) for rows in (dtrain, *(rows for rows, _ in evals))):
            raise ValueError(
                f"With device={params.get('device')!r} this estimator makes a {type(dtrain).__name__} of its rows, and "
                "only a QuantileDMatrix is made of partitions where they lie. Leave device out, or set another one."
            )
        callbacks = list(callbacks or ())
        if early_stopping_rounds:
            callbacks.append(EarlyStopping(rounds=early_stopping_rounds))
        container = CallbackContainer(callbacks, metric=custom_metric, output_margin=callable(obj))
        self._callbacks = KeptCallbacks(
            container.callbacks, self._task.run, _LOOKS_AT, leaves_out=self._task.checkpoint is not None
        )
        container.callbacks = self._callbacks.callbacks
        loop, self._model = self._loop, xgb_model
        resumes = loop.keep(self._state(container)).steps > 0
        if self._session.world_rank == 0:
            self._callbacks.tell_of_left_out(self._session.notice)
        if self._callbacks.resumed:
            container.callbacks = [SameScores(container.history), *self._callbacks.callbacks]
        if draws := _draws(params):
            params = {**params, "seed_per_iteration": True}
        booster = xgboost.Booster(params, [dtrain, *(rows for rows, _ in evals)], model_file=self._model)
        self.num_before = booster.num_boosted_rounds() - loop.position.steps
        self._booster = booster = self._resumed(booster) if resumes else container.before_training(booster)
        stop = 0 if self._ended else num_boost_round
        if resumes and loop.position.epoch < stop:
            self._schedule(container)
        for number in loop.rounds(stop):
            if container.before_iteration(booster, number, dtrain, evals):
                break
            if draws:
                # What it draws in a round is by the round's number then, as after a checkpoint: XGBoost's streams of
                # random numbers begin anew with the configuration, and would else continue from round to round.
                booster.load_config(booster.save_config())
            booster.update(dtrain, iteration=number, fobj=obj)
            self._ended = container.after_iteration(booster, number, dtrain, evals)
            loop.round_done(**self._task.last_scores(container.history))
            if self._ended:
                break
        loop.rounds_done()
        booster = container.after_training(booster)
        if evals_result is not None:
            evals_result.update(container.history)
        return booster.reset()

    def _resumed(self, booster: Any) -> Any:
        """Let callbacks that were not there before the checkpoint begin, and all count rounds as those before."""
        for callback in self._callbacks.unmatched:
            booster = callback.before_training(booster)
        if self._callbacks.resumed:
            for callback in self._callbacks.callbacks:
                count_from(callback, self.num_before)
        return booster

    def _schedule(self, container: CallbackContainer) -> None:
        """Set the learning rate of the next round, which a scheduler sets after a round, and no model holds."""
        for callback in container.callbacks:
            if isinstance(callback, LearningRateScheduler):
                callback.after_iteration(self._booster, self._loop.position.epoch - 1, container.history)

    def _state(self, container: CallbackContainer) -> RankState:
        """Return what survives a round: the booster, and callbacks with the scores that they look at."""

        def callbacks() -> bytes:
            return self._callbacks.dumps(container.history, self._ended)

        def set_callbacks(content: bytes) -> None:
            container.history, ended = self._callbacks.take(content)
            self._ended = ended and self._callbacks.as_before

        def begin_with(model: bytes) -> None:
            self._model = bytearray(model)

        state = RankState().shared("booster", lambda: bytes(self._booster.save_raw("ubj")), begin_with)
        return state.shared("callbacks", callbacks, set_callbacks)


def _draws(params: Mapping[str, Any]) -> bool:
    """Return whether trees are of some of the rows or features."""
    names = [name for name in params if name == "subsample" or name.startswith("colsample_")]
    return params.get("booster") == "dart" or any(params[name] not in (None, 1) for name in names)
