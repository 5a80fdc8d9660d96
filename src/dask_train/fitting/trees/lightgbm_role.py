"""An estimator of LightGBM, fitted by ranks.

The estimator's own ``fit`` runs in each rank, so that objectives, classes and parameters are what they are in one
process. Two names that it uses are others meanwhile, in its thread: data sets are made of this rank's parts, one after
the other, with the bins of a sample of all rows; and rounds are trained by a loop that reports scores, keeps
checkpoints and resumes from them. LightGBM's ranks score their own rows only, so the first one scores whole sets, for
all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import lightgbm
import numpy as np
from lightgbm.callback import CallbackEnv, EarlyStopException

from dask_train.compat.lightgbm import (
    continue_stopping,
    forget_class_weight,
    set_best,
    take_over_names,
    with_threads,
)
from dask_train.fitting.trees.callbacks import CallbackChanges, KeptCallbacks
from dask_train.fitting.trees.lightgbm_params import last_scores, not_in_the_model, sums_by_row, training_params
from dask_train.fitting.trees.lightgbm_ranks import add_to_first_tree, parallel
from dask_train.fitting.trees.lightgbm_sets import Asked, DataSets
from dask_train.fitting.trees.parts import TreeRows, classes_of
from dask_train.fitting.trees.replaced import replaced_in_thread
from dask_train.fitting.trees.role import check_same_scores
from dask_train.fitting.trees.spool import rows_to_train_on
from dask_train.fitting.trees.task import TreesTask
from dask_train.role.session import Session
from dask_train.trainers.common.rank_state import RankState
from dask_train.trainers.common.rounds import RoundLoop

# Parameters that may change when rounds resume.
FREE = frozenset({"n_estimators", "n_jobs", "verbosity"})


def grow(task: TreesTask, session: Session, loop: RoundLoop) -> dict[str, Any]:
    """Fit it; the same estimator on all ranks, which is returned by its name, with what callbacks have changed.

    Raises
    ------
    ValueError
        The data or the checkpoint does not fit the estimator, or a rank has no rows.
    """
    estimator = task.estimator
    parts = rows_to_train_on(task, session)
    _check_rows(session, parts)
    is_classifier = isinstance(estimator, lightgbm.LGBMClassifier)
    classes = classes_of(session, parts) if is_classifier else None
    sets = DataSets(session, task, parts, classes)
    del parts  # what is spooled goes when its data set is made
    rounds = LightGBMRounds(task, session, loop, sets)
    # Each class twice: if all labels differ, scikit-learn warns that they could be those of a regression.
    labels = np.zeros(2) if classes is None else np.resize(classes, max(2, 2 * len(classes)))
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
    with (
        with_threads(estimator, session.num_threads),
        replaced_in_thread(lightgbm.sklearn, Dataset=sets.make, train=rounds.train),
    ):
        estimator.fit(stand_in, labels, **settings)
    forget_class_weight(estimator)  # it was counted over all rows before
    callbacks = rounds.changes_of(task.settings.get("callbacks") or ())
    return {"estimator": estimator, "callbacks": callbacks, "num_before": sets.num_before}


def end_with(estimator: Any, number: int) -> None:
    """Let a fitted estimator predict with the rounds up to that number, counted from 0, as after early stopping."""
    scores = last_scores(estimator.evals_result_, number + 1)
    set_best(estimator, number + 1, scores)


def _check_rows(session: Session, parts: Sequence[TreeRows]) -> None:
    counts = session.all_gather(np.array([sum(map(len, parts))]))
    if parts[0].y.ndim > 1:
        raise ValueError(f"Targets have the shape {parts[0].y.shape[1:]} a row, and LightGBM takes one number of each.")
    if not counts.all():
        raise ValueError(
            f"{int((counts == 0).sum())} of {len(counts)} workers have no rows, and LightGBM needs some in each. Cut "
            "the data into more partitions, or pass workers= with a smaller number."
        )


class LightGBMRounds:
    """The rounds of ``lightgbm.train``, in a loop that all ranks pass together.

    Parameters
    ----------
    task, session
        Of the role.
    loop
        In which they are.
    sets
        Makes the data.
    """

    def __init__(self, task: TreesTask, session: Session, loop: RoundLoop, sets: DataSets) -> None:
        self._task, self._session, self._loop, self._sets = task, session, loop, sets
        self._kept = KeptCallbacks((), task.run)
        self._booster: Any = None
        self._objective: Any = None
        self._begin = 0  # the rounds of the model that was gone on with
        self._best = 0  # the best round so far, from early stopping
        self._ended = False  # whether a callback has ended the rounds

    def changes_of(self, passed: Sequence[Any]) -> list[CallbackChanges]:
        """Return what training has changed in each of the callbacks that were passed."""
        return self._kept.changes_of(passed)

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
        """Train as ``lightgbm.train`` does, but begin with the last checkpoint, if there is one."""
        sets = self._sets
        *own, record = callbacks  # the last one keeps the scores for the estimator
        settings, total, stopping = training_params(params, num_boost_round, by_row=sums_by_row(params, *sets.shape))
        leaves_out = self._task.checkpoint is not None
        self._kept = KeptCallbacks([*own, *stopping], self._task.run, leaves_out=leaves_out)
        resumes = self._loop.keep(self._state(record)).steps > 0
        if self._session.world_rank == 0:
            self._kept.tell_of_left_out(self._session.notice)
        if resumes:
            self._tell_of_other_draws(settings)
        elif init_model is not None:
            sets.start = (
                init_model if isinstance(init_model, lightgbm.Booster) else lightgbm.Booster(model_file=init_model)
            )
            self._begin = sets.num_before = sets.start.current_iteration()
            sets.check_start()
        if callable(objective := settings["objective"]):
            self._objective, settings["objective"] = objective, "none"
        self._booster = booster = self._made(settings, train_set, valid_sets, valid_names)
        self._go(settings, 0 if self._ended else total, record, feval)
        booster.best_iteration = self._best
        self._loop.rounds_done()
        booster.best_score = last_scores(record.eval_result, self._best - self._begin)
        booster.free_network()
        return booster

    def _tell_of_other_draws(self, params: Mapping[str, Any]) -> None:
        found = not_in_the_model(params)
        if not self._ended and found and self._session.world_rank == 0:
            self._session.notice(
                f"{', '.join(found)}: the trees from round {self._loop.position.steps} on are not those of a fit that "
                "was never stopped: a checkpoint holds the model, and LightGBM's rounds depend on more, such as its "
                "streams of random numbers."
            )

    def _made(self, params: dict[str, Any], train_set: Asked, valid_sets: Any, names: Any) -> Any:
        together = parallel(params, self._session)
        rows = self._sets.train(params)
        take_over_names(train_set, rows)
        booster = lightgbm.Booster(params=together, train_set=rows)
        booster.best_iteration = 0
        for number, _ in enumerate(valid_sets or ()):
            valid_set = self._sets.evaluated(number, params)
            if valid_set is not None:
                booster.add_valid(valid_set, names[number])
        return booster

    def _go(self, params: Any, stop: int, record: Any, feval: Any) -> None:
        booster, callbacks = self._booster, [*self._kept.callbacks, record]
        for place, callback in enumerate(callbacks):
            callback.__dict__.setdefault("order", place - len(callbacks))
        in_order = sorted(callbacks, key=attrgetter("order"))
        end = self._begin + stop
        first, unmatched = self._begin + self._loop.position.epoch, {id(each) for each in self._kept.unmatched}
        for done in self._loop.rounds(stop):
            number, self._best = self._begin + done, 0  # the best one of fewer rounds need not be that of more
            env = CallbackEnv(booster, params, number, self._begin, end, None)
            for callback in in_order:
                if getattr(callback, "before_iteration", False):
                    callback(env)
            booster.update(fobj=self._objective)
            if number == 0 and self._sets.first_score:
                add_to_first_tree(booster, self._sets.first_score)
            env.evaluation_result_list = self._scored(feval)
            if self._kept.resumed and number == first:
                then = [(name, metric) for name, by_metric in record.eval_result.items() for metric in by_metric]
                check_same_scores(then, [each[:2] for each in env.evaluation_result_list])
                for callback in in_order:
                    continue_stopping(callback, env)
            anew = replace(env, begin_iteration=first)  # where callbacks begin that were not there before
            try:
                for callback in in_order:
                    if not getattr(callback, "before_iteration", False):
                        callback(anew if id(callback) in unmatched else env)
            except EarlyStopException as early:
                self._best = early.best_iteration + 1
                self._ended = number + 1 < end  # after the last round it only tells which one was the best
            self._loop.round_done(**self._task.last_scores(record.eval_result))
            if self._ended:
                return

    def _scored(self, feval: Any) -> list[Any]:
        """Return the scores of whole sets, as the first rank has found them."""
        scores = self._booster.eval_valid(feval) if self._session.world_rank == 0 else []
        content = np.frombuffer(cloudpickle.dumps(scores) if scores else b"", np.uint8)
        everyones = self._session.all_gather(content)
        return list(cloudpickle.loads(everyones.tobytes())) if len(everyones) else []

    def _state(self, record: Any) -> RankState:
        """Return what survives a round: the booster, and callbacks with the scores that they look at."""

        def take() -> bytes:
            return self._kept.dumps(record.eval_result, self._begin, self._best, self._ended)

        def restore(content: bytes) -> None:
            scores, self._begin, self._best, ended = self._kept.take(content)
            self._ended = ended and self._kept.as_before
            self._sets.num_before = self._begin
            record.eval_result.update(scores)

        def begin_with(model: str) -> None:
            self._sets.start = lightgbm.Booster(model_str=model)

        state = RankState().shared("booster", lambda: self._booster.model_to_string(num_iteration=-1), begin_with)
        return state.shared("callbacks", take, restore)
