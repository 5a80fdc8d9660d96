"""The candidates of a grid on all folds, as slots are handed them, and what comes back. Knows no cluster."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from dask_train.errors import CheckpointError, RoleFailedError
from dask_train.input_errors import warn_at_the_call
from dask_train.searching.estimators.folds import Split
from dask_train.searching.estimators.prefixes import FoldScore, candidate_of
from dask_train.searching.estimators.scoring import Scoring
from dask_train.searching.estimators.table import results_table
from dask_train.searching.estimators.units import Candidates, Refit
from dask_train.searching.kept import KeptSearch
from dask_train.searching.logged import SearchLog
from dask_train.searching.study import FinishedTrial, Handed, Study
from dask_train.searching.texts import text_of
from dask_train.searching.worker import TrialDone, TrialRequest


@dataclass(kw_only=True)
class GridState:
    """What a checkpoint of a grid holds, besides the best candidate, fitted on all rows.

    Attributes
    ----------
    scores
        Of candidates on folds, by their numbers.
    warnings
        What estimators have warned of.
    num_fits, refit_s
        As in :class:`GridStudy`.
    best
        Number and value of the candidate that was fitted on all rows; None before.
    """

    kind: ClassVar[str] = "grid"

    scores: dict[tuple[int, int], FoldScore]
    warnings: list[str]
    num_fits: int
    refit_s: float
    best: tuple[int, float] | None = None


class GridStudy(Study):
    """All candidates of a grid on all folds, and then the best one on all rows.

    What is handed out is a unit: all candidates of a first step on one fold, or the best candidate. Those that are
    finished are candidates. See :class:`~dask_train.searching.study.Study` for attributes of all studies.

    Parameters
    ----------
    estimator
        The estimator that candidates are copies of.
    candidates
        Their parameters.
    splits
        The folds.
    scoring
        How they are scored.
    refit
        The score by which the best one is chosen and fitted on all rows; None for none.
    kept
        Where the grid is kept, and what of it there is to resume; None if it is not.
    **of_all
        As of any study.

    Attributes
    ----------
    table
        As ``cv_results_``, once all candidates are scored.
    scorer_names, num_splits, refit
        The scores, the number of folds, and the score that chooses the best one.
    best_index
        The candidate that is best by that score; None before.
    num_fits
        How many steps of pipelines were fitted on folds.
    refit_s
        Seconds that the best candidate took on all rows.
    """

    def __init__(
        self,
        estimator: Any,
        candidates: Sequence[Mapping[str, Any]],
        splits: Sequence[Split],
        scoring: Scoring,
        refit: str | None,
        *,
        kept: KeptSearch[GridState] | None = None,
        **of_all: Any,
    ) -> None:
        super().__init__(**of_all)
        self._estimator, self._candidates, self._splits = estimator, candidates, splits
        self._scoring, self.refit = scoring, refit
        self.scorer_names, self.num_splits = list(scoring.scorers), len(splits)
        self._kept, self._logged = kept, set[int]()
        self._num_handed = 0
        self._scores: dict[tuple[int, int], FoldScore] = {}
        self.table: dict[str, Any] = {}
        self.best_index: int | None = None
        self.refit_s = 0.0
        self.num_fits = 0
        if kept is not None and kept.state is not None:
            state = kept.state
            # What failed may have failed for want of memory, of a file or of a host.
            self._scores = {key: score for key, score in state.scores.items() if not score.error}
            self.warnings = dict.fromkeys(state.warnings, 0)
            self.num_fits, self.refit_s = state.num_fits, state.refit_s
        self._units: deque[tuple[Candidates | Refit, bool]] = deque((unit, False) for unit in self._all_units())
        if self._scores:
            self._note_ended(range(len(candidates)))

    def _keep(self, *, now: bool = False) -> None:
        """Keep the grid as it is, where it is kept; unless it is to be now, only if it is time to."""
        if self._kept is None:
            return
        number, value, model = self.best or (None, None, None)
        state = GridState(
            scores=self._scores,
            warnings=[*self.warnings],
            num_fits=self.num_fits,
            refit_s=self.refit_s,
            best=None if number is None or value is None else (number, value),
        )
        self._kept.save(state, model, num_steps=None if now else len(self._scores))

    def _all_units(self) -> list[Candidates]:
        """Return all candidates of a first step on a fold that have no scores, and so on: the largest ones first."""
        groups: dict[Any, dict[int, Mapping[str, Any]]] = {}
        for number, params in enumerate(self._candidates):
            candidate = candidate_of(number, self._estimator, params)
            groups.setdefault((len(candidate.steps) > 1, candidate.keys[0]), {})[number] = params
        units = []
        for group in sorted(groups.values(), key=len, reverse=True):
            for fold, split in enumerate(self._splits):
                left = {number: params for number, params in group.items() if (number, fold) not in self._scores}
                if left:
                    unit = Candidates(
                        estimator=self._estimator, params=left, fold=fold, split=split, scoring=self._scoring
                    )
                    units.append(unit)
        return units

    @property
    def num_left(self) -> int:
        """How many units are still to be begun."""
        return len(self._units)

    @property
    def best_ended(self) -> FinishedTrial | None:
        """The best candidate so far, for the display."""
        scored = [each for each in self.ended if each.value is not None and not math.isnan(each.value)]
        return max(scored, key=lambda each: each.value or 0.0, default=None)

    def next(self) -> Handed | None:
        """Return the next unit; None if there are no more."""
        if not self._units:
            return None
        unit, is_repeat = self._units.popleft()
        number, self._num_handed = self._num_handed, self._num_handed + 1
        if self.log is not None and isinstance(unit, Candidates):
            self._log_begun(self.log, unit)
        shown = unit.params if isinstance(unit, Refit) else {"fold": unit.fold, "candidates": len(unit.params)}
        request = TrialRequest(number=number, work=unit, metric="score", mode="max", to_beat=None)
        handed = Handed(number=number, params=dict(shown), request=request, is_repeat=is_repeat)
        self.handed[number] = handed
        return handed

    def _unit_of(self, handed: Handed) -> Candidates | Refit:
        """Return the unit of a trial that has ended."""
        del self.handed[handed.number]
        assert handed.request is not None
        unit: Candidates | Refit = handed.request.work
        return unit

    def done(self, handed: Handed, done: TrialDone) -> None:
        """Take what a unit has given."""
        unit = self._unit_of(handed)
        self._note_warnings(done)
        if isinstance(unit, Refit):
            self.refit_s = done.seconds
            self._take_best(done.parts)
            return  # which is kept at the end
        scores, num_fits = done.parts
        self.num_fits += num_fits
        self._take(unit, scores)

    def failed(self, handed: Handed, error: str, *, traceback: str = "", seconds: float | None = None) -> None:  # noqa: ARG002
        """Note that a unit has raised as a whole."""
        unit = self._unit_of(handed)
        if isinstance(unit, Refit):
            raise RoleFailedError(f"The best candidate could not be fitted on all rows: {error}", traceback)
        self._take(unit, [FoldScore(candidate=number, error=f"{error}\n{traceback}") for number in unit.params])

    def lost(self, handed: Handed, error: str) -> None:
        """Note that the process of a unit is gone: it is begun once more, if it is no repeat."""
        if handed.is_repeat:
            self.failed(handed, error)
        else:
            self._units.append((self._unit_of(handed), True))

    def _take(self, unit: Candidates, scores: Sequence[FoldScore]) -> None:
        for score in scores:
            self._scores[score.candidate, unit.fold] = score
            if self.log is not None and score.scores:
                self.log.write(score.candidate, {"step": unit.fold, **score.scores})
        self._keep()
        self._note_ended(unit.params)

    def _take_best(self, fitted: Any) -> None:
        assert self.best_index is not None
        self.best = self.best_index, float(self.table[f"mean_test_{self.refit}"][self.best_index]), fitted

    def _note_ended(self, numbers: Iterable[int]) -> None:
        """Look which of these candidates are scored on all folds now; after the last one, choose the best."""
        folds = range(len(self._splits))
        name = self.refit or next(iter(self._scoring.scorers))
        for number in numbers:
            if all((number, fold) in self._scores for fold in folds):
                scores = [self._scores[number, fold] for fold in folds]
                value = sum(score.scores.get(name, math.nan) for score in scores) / len(scores)
                error = next((score.error for score in scores if score.error), "")
                self.ended.append(
                    FinishedTrial(
                        number=number,
                        state="FAIL" if error else "COMPLETE",
                        params=dict(self._candidates[number]),
                        value=value,
                        seconds=sum(score.fit_s + score.score_s for score in scores),
                        error=error.partition("\n")[0],
                    )
                )
                self._log_ended(self.ended[-1])
        if len(self._scores) == len(self._candidates) * len(self._splits):
            self._choose()

    def end(self) -> None:
        """Keep all scores, and the best candidate."""
        self._keep(now=True)

    def cut_short(self, why: str) -> None:  # noqa: ARG002 - what is not scored tells no more than that
        """End now: what is not scored has failed, and the best candidate is not fitted on all rows."""
        with suppress(CheckpointError):
            self._keep(now=True)
        error = "The search was ended before."
        for number in range(len(self._candidates)):
            for fold in range(len(self._splits)):
                self._scores.setdefault((number, fold), FoldScore(candidate=number, error=error))
        self.table = results_table(self._candidates, self._scores, self.num_splits, self.scorer_names)
        self.best_index = self._index_of_best()

    def close(self) -> None:
        """Give no more units, which hold copies of the estimator."""
        self._units.clear()

    def _choose(self) -> None:
        """All candidates are scored: make the table, and have the best one fitted."""
        self.table = results_table(self._candidates, self._scores, self.num_splits, self.scorer_names)
        errors = [(key, score.error) for key, score in sorted(self._scores.items()) if score.error]
        if len(errors) == len(self._scores):
            raise self._failed(f"All {len(errors)} fits have failed, or could not be scored.", errors)
        if self.refit is None:
            return
        self.best_index = self._index_of_best()
        if self.best_index is None:
            why = f"No candidate has a score {self.refit!r} on every fold: each failed on some, or its score is NaN."
            raise self._failed(why, errors)
        if (fitted := self._kept_best()) is not None:
            self._take_best(fitted)
        else:
            self._units.append((Refit(estimator=self._estimator, params=self._candidates[self.best_index]), False))

    def _index_of_best(self) -> int | None:
        """Return the candidate that is best by the score that counts; None if none has it on every fold."""
        if self.refit is None:
            return None
        best = int(self.table[f"rank_test_{self.refit}"].argmin())
        return best if math.isfinite(self.table[f"mean_test_{self.refit}"][best]) else None

    def _kept_best(self) -> Any:
        """Return the best candidate as it was fitted in an earlier call; None if it was not, or was another one."""
        fitted = None if self._kept is None else self._kept.best_model
        if fitted is None or self.best_index is None:
            return None
        best = candidate_of(self.best_index, self._estimator, self._candidates[self.best_index])
        return fitted if text_of(fitted) == text_of(best.whole) else None

    def _failed(self, what: str, errors: Sequence[tuple[tuple[int, int], str]]) -> RoleFailedError:
        """Return an error with the first one of fits, if there are any."""
        if not errors:
            return RoleFailedError(what)
        (candidate, fold), first = errors[0]
        why, _, trace = first.partition("\n")
        failed = RoleFailedError(f"{what} Candidate {candidate} on fold {fold}: {why}")
        failed.add_note(trace.rstrip())
        return failed

    def _log_begun(self, log: SearchLog, unit: Candidates) -> None:
        for number, params in unit.params.items():
            if number not in self._logged:
                self._logged.add(number)
                log.begin(number, {name: text_of(value) for name, value in params.items()})

    def _log_ended(self, ended: FinishedTrial) -> None:
        if self.log is None or ended.number not in self._logged:
            return  # it ended in an earlier call
        value = None if ended.value is None or math.isnan(ended.value) else ended.value
        self.log.trial_ended(ended.number, ended.state, params={}, value=value, why=ended.error)

    def warn(self) -> None:
        """Report fits that failed, and warnings of estimators, each once."""
        failed = [(key, score.error.partition("\n")[0]) for key, score in sorted(self._scores.items()) if score.error]
        if failed:
            (candidate, fold), error = failed[0]
            warn_at_the_call(
                f"{len(failed)} of {len(self._scores)} fits have failed, and have NaN for scores. Candidate "
                f"{candidate} on fold {fold}: {error}"
            )
        for text in self.warnings:
            warn_at_the_call(text)
