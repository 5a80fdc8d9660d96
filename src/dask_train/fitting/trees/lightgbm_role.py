"""An estimator of LightGBM, fitted by ranks.

The estimator's own ``fit`` runs in each rank, so that objectives, classes and parameters are what they are in one
process. Two names that it uses are others meanwhile: data sets are made of this rank's parts, one after the other, with
the bins of a sample of all rows; and rounds are trained by a loop that tells scores, keeps checkpoints and goes on with
them. LightGBM's ranks score their own rows only, so the first one scores whole sets, for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import cloudpickle  # type: ignore[import-untyped]
import lightgbm
import numpy as np
from lightgbm.callback import CallbackEnv, EarlyStopException

from dask_train.fitting.trees.lightgbm_params import last_scores, settled, sums_by_row
from dask_train.fitting.trees.lightgbm_ranks import add_to_first_tree, parallel
from dask_train.fitting.trees.lightgbm_sets import Asked, DataSets
from dask_train.fitting.trees.parts import Part, classes_of
from dask_train.fitting.trees.rounds import Rounds, fits_of
from dask_train.fitting.trees.spool import taken
from dask_train.fitting.trees.task import Grown, TreesTask
from dask_train.role.session import Session


def grow(task: TreesTask, session: Session) -> Grown:
    """Fit it; the same estimator on all ranks.

    Raises
    ------
    ValueError
        The data or the checkpoint does not fit the estimator, or a rank has no rows.
    """
    estimator = task.estimator
    parts = taken(task, session)
    _check_rows(session, parts)
    is_classifier = isinstance(estimator, lightgbm.LGBMClassifier)
    classes = classes_of(session, parts) if is_classifier else None
    estimator.set_params(n_jobs=session.num_threads)
    rounds = Rounds(session, task, fits_of(task, session, free={"n_estimators", "n_jobs", "verbosity"}))
    sets = DataSets(session, task, parts, classes)
    del parts  # what is spooled goes when its data set is made
    loop = Loop(rounds, session, sets)
    labels = np.zeros(2) if classes is None else np.resize(classes, max(2, len(classes)))
    stand_in = np.zeros((len(labels), *task.columns.matrix.row_shape))
    settings = {**task.settings, "init_model": task.start}
    if task.columns.groups is not None:
        settings["group"] = np.array([len(labels)])
    if task.evals:
        settings["eval_X"] = tuple(stand_in.copy() for _ in task.evals)
        settings["eval_y"] = tuple(labels for _ in task.evals)
        settings["eval_names"] = [each.name for each in task.evals]
        if task.columns.groups is not None:
            settings["eval_group"] = [settings["group"] for _ in task.evals]
    with patch.object(lightgbm.sklearn, "Dataset", sets.make), patch.object(lightgbm.sklearn, "train", loop.train):
        estimator.fit(stand_in, labels, **settings)
    estimator._class_weight = None  # as before: it was counted over all rows
    callbacks = task.settings.get("callbacks")
    return Grown(
        estimator=estimator,
        history=rounds.history,
        num_rounds=rounds.num_rounds,
        callbacks=loop.own_callbacks(callbacks),
    )


def _check_rows(session: Session, parts: Sequence[Part]) -> None:
    counts = session.all_gather(np.array([sum(map(len, parts))]))
    if parts[0].y.ndim > 1:
        raise ValueError(f"Targets have the shape {parts[0].y.shape[1:]} a row, and LightGBM takes one number of each.")
    if not counts.all():
        raise ValueError(
            f"{int((counts == 0).sum())} of {len(counts)} workers have no rows, and LightGBM needs some in each. Cut "
            "the data into more partitions, or pass workers= with a smaller number."
        )


class Loop:
    """The rounds of ``lightgbm.train``, between which a rank does what a run wants of it.

    Parameters
    ----------
    rounds
        What is done between them.
    session
        Of the role.
    sets
        Makes the data.
    """

    def __init__(self, rounds: Rounds, session: Session, sets: DataSets) -> None:
        self._rounds, self._session, self._sets = rounds, session, sets
        self._callbacks: list[Any] = []
        self._objective: Any = None

    def own_callbacks(self, given: Sequence[Any] | None) -> list[Any]:
        """The user's callbacks as they are in the end."""
        return self._callbacks[: len(given or ())]

    def train(
        self,
        params: Mapping[str, Any],
        train_set: Asked,
        num_boost_round: int,
        valid_sets: Sequence[Asked] = (),
        valid_names: Sequence[str] | None = None,
        feval: Any = None,
        init_model: Any = None,
        callbacks: Sequence[Any] = (),
        **_: Any,
    ) -> Any:
        """As ``lightgbm.train``, but that it begins with the last checkpoint, if there is one."""
        rounds, sets, kept = self._rounds, self._sets, self._rounds.load()
        *own, record = callbacks  # the last one keeps the scores for the estimator
        settings, total, stopping = settled(params, num_boost_round, by_row=sums_by_row(params, *sets.shape))
        begin, best = 0, 0
        if kept is not None:
            model, own, history, begin, best = kept.state
            record.eval_result.update(history)
            sets.start = lightgbm.Booster(model_str=model)
            self._tell_of_other_draws(settings, ended=kept.ended)
        else:
            own += stopping
        if kept is None and init_model is not None:
            sets.start = (
                init_model if isinstance(init_model, lightgbm.Booster) else lightgbm.Booster(model_file=init_model)
            )
            begin = sets.start.current_iteration()
            sets.check_start()
        if callable(objective := settings["objective"]):
            self._objective, settings["objective"] = objective, "none"
        booster = self._booster(settings, train_set, valid_sets, valid_names)
        self._callbacks = list(own)
        self._ended = kept is not None and kept.ended
        numbers = range(begin + rounds.num_rounds, begin + total)
        if self._ended or not numbers:
            booster.best_iteration = best
        else:
            self._go(booster, settings, numbers, begin, [*own, record], feval)
        rounds.end(lambda: self._state(booster, record, begin), ended=self._ended)
        booster.best_score = last_scores(record.eval_result, booster.best_iteration - begin)
        booster.free_network()
        return booster

    def _tell_of_other_draws(self, params: Mapping[str, Any], *, ended: bool) -> None:
        names = ("subsample", "bagging_fraction", "colsample_bytree", "feature_fraction", "feature_fraction_bynode")
        drawn = [name for name in names if params.get(name) not in (None, 1)]
        goss = "goss" in (params.get("boosting_type"), params.get("data_sample_strategy"))
        if not ended and (drawn or goss) and self._session.world_rank == 0:
            self._session.notice(
                f"{', '.join(drawn) or 'goss'}: the trees from round {self._rounds.num_rounds} on are not those of a "
                "fit that was never stopped: a checkpoint does not hold LightGBM's streams of random numbers."
            )

    def _booster(self, params: dict[str, Any], train_set: Asked, valid_sets: Any, names: Any) -> Any:
        together = parallel(params, self._session)
        rows = self._sets.train(params)
        train_set._has_non_default_feature_names = rows._has_non_default_feature_names
        booster = lightgbm.Booster(params=together, train_set=rows)
        booster.best_iteration = 0
        for number, _ in enumerate(valid_sets or ()):
            made = self._sets.evaluated(number, params)
            if made is not None:
                booster.add_valid(made, names[number])
        return booster

    def _go(self, booster: Any, params: Any, numbers: range, begin: int, callbacks: Sequence[Any], feval: Any) -> None:
        for place, callback in enumerate(callbacks):
            callback.__dict__.setdefault("order", place - len(callbacks))
        in_order = sorted(callbacks, key=attrgetter("order"))
        record = callbacks[-1]
        for number in numbers:
            env = CallbackEnv(booster, params, number, begin, numbers.stop, None)
            for callback in in_order:
                if getattr(callback, "before_iteration", False):
                    callback(env)
            booster.update(fobj=self._objective)
            if number == 0 and self._sets.first_score:
                add_to_first_tree(booster, self._sets.first_score)
            env.evaluation_result_list = self._scored(booster, feval)
            try:
                for callback in in_order:
                    if not getattr(callback, "before_iteration", False):
                        callback(env)
            except EarlyStopException as stop:
                booster.best_iteration = stop.best_iteration + 1
                self._ended = number + 1 < numbers.stop  # after the last round it only tells which one was the best
            stops = self._rounds.past(record.eval_result, lambda: self._state(booster, record, begin))
            if stops or self._ended:
                return

    def _scored(self, booster: Any, feval: Any) -> list[Any]:
        """The scores of whole sets, as the first rank has found them."""
        found = booster.eval_valid(feval) if self._session.world_rank == 0 else []
        content = np.frombuffer(cloudpickle.dumps(found) if found else b"", np.uint8)
        everyones = self._session.all_gather(content)
        return list(cloudpickle.loads(everyones.tobytes())) if len(everyones) else []

    def _state(self, booster: Any, record: Any, begin: int) -> tuple[Any, ...]:
        model, scores = booster.model_to_string(num_iteration=-1), deepcopy(record.eval_result)
        return model, self._callbacks, scores, begin, booster.best_iteration
