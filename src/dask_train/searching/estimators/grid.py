"""The candidates of a grid on all folds, as slots are handed them, and what comes back. Knows no cluster."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask_train.errors import RoleFailedError
from dask_train.input_errors import warn_at_the_call
from dask_train.searching.estimators.folds import Split
from dask_train.searching.estimators.kept import GridState, KeptGrid
from dask_train.searching.estimators.prefixes import FoldScore, candidate_of
from dask_train.searching.estimators.scoring import Scoring
from dask_train.searching.estimators.table import results_table
from dask_train.searching.estimators.texts import text_of
from dask_train.searching.estimators.units import Candidates, Refit
from dask_train.searching.logged import SearchLog
from dask_train.searching.trials import FinishedTrial, Handed
from dask_train.searching.worker import TrialDone, TrialOrder

_TIMES = 2  # that a unit is begun, where its process is lost


@dataclass(frozen=True, kw_only=True)
class UnitTrial:
    """What the display shows of a unit while it is worked on."""

    number: int
    params: Mapping[str, Any]


class GridWork:
    """All units of a grid; hands them out as :class:`~dask_train.searching.trials.Trials` does trials.

    Parameters
    ----------
    estimator
        Of whom candidates are copies.
    candidates
        Their parameters.
    splits
        The folds.
    scoring
        How they are scored.
    refit
        The score by which the best one is chosen and fitted on all rows; None for none.
    kept
        Where the grid is kept, and what of it there is to go on with; None where it is not.
    log
        Is told of candidates and their scores, where there is one.

    Attributes
    ----------
    ended
        Candidates that are scored on all folds, as the display shows them.
    table
        As ``cv_results_``, once all of them are.
    best_estimator
        Fitted on all rows; None before.
    num_fits
        How many steps of pipelines were fitted on folds.
    """

    best = None

    def __init__(
        self,
        estimator: Any,
        candidates: Sequence[Mapping[str, Any]],
        splits: Sequence[Split],
        scoring: Scoring,
        refit: str | None,
        *,
        kept: KeptGrid | None = None,
        log: SearchLog | None = None,
    ) -> None:
        self._estimator, self._candidates, self._splits = estimator, candidates, splits
        self._scoring, self._refit = scoring, refit
        self._kept, self.log, self._logged = kept, log, set[int]()
        self._handed: dict[int, tuple[Any, int]] = {}
        self._num_handed = 0
        self._scores: dict[tuple[int, int], FoldScore] = {}
        self._warnings: dict[str, None] = {}
        self.ended: list[FinishedTrial] = []
        self.table: dict[str, Any] = {}
        self.best_index: int | None = None
        self.best_estimator: Any = None
        self.refit_s = 0.0
        self.num_fits = 0
        if kept is not None and kept.state is not None:
            self._go_on(kept.state)
        self._units: deque[tuple[Any, int]] = deque((unit, 1) for unit in self._all_units())
        if self._scores:
            self._note_ended(range(len(candidates)))

    def _go_on(self, state: GridState) -> None:
        """Be where the grid was when it was kept last."""
        self._scores, self._warnings = dict(state.scores), dict.fromkeys(state.warnings)
        self.num_fits, self.refit_s, self.best_estimator = state.num_fits, state.refit_s, state.best

    def keep(self, *, now: bool = True) -> None:
        """Keep the grid as it is, where it is kept; unless it is to be now, only if it is time to.

        Raises
        ------
        CheckpointError
            It can't be written.
        """
        if self._kept is not None:
            state = GridState(
                scores=self._scores,
                warnings=[*self._warnings],
                num_fits=self.num_fits,
                refit_s=self.refit_s,
                best=self.best_estimator,
            )
            self._kept.save(state, now=now)

    def _all_units(self) -> list[Candidates]:
        """Return all candidates of a first step on a fold that have no scores, and so on: the largest ones first."""
        groups: dict[Any, dict[int, Mapping[str, Any]]] = {}
        for number, params in enumerate(self._candidates):
            made = candidate_of(number, self._estimator, params)
            groups.setdefault((len(made.steps) > 1, made.keys[0]), {})[number] = params
        found = []
        for group in sorted(groups.values(), key=len, reverse=True):
            for fold, split in enumerate(self._splits):
                left = {number: params for number, params in group.items() if (number, fold) not in self._scores}
                if left:
                    unit = Candidates(
                        estimator=self._estimator, params=left, fold=fold, split=split, scoring=self._scoring
                    )
                    found.append(unit)
        return found

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
        """Return the next unit; None where there are no more."""
        if not self._units:
            return None
        unit, times = self._units.popleft()
        number, self._num_handed = self._num_handed, self._num_handed + 1
        self._handed[number] = unit, times
        if self.log is not None and isinstance(unit, Candidates):
            self._log_begun(self.log, unit)
        shown = unit.params if isinstance(unit, Refit) else {"fold": unit.fold, "candidates": len(unit.params)}
        order = TrialOrder(number=number, work=unit, metric="score", mode="max", to_beat=None)
        return Handed(trial=UnitTrial(number=number, params=shown), order=order)

    def scored(self, handed: Handed, scores: dict[str, Any]) -> bool:
        """Units tell no scores while they go on."""
        handed.scores = scores
        return False

    def done(self, handed: Handed, done: TrialDone) -> None:
        """Take what a unit has given."""
        unit, _ = self._handed.pop(handed.trial.number)
        self._warnings.update(dict.fromkeys(done.warnings))
        if isinstance(unit, Refit):
            self.best_estimator, self.refit_s = done.parts, done.seconds
            return  # which is kept at the end
        found, num_fits = done.parts
        self.num_fits += num_fits
        self._take(unit, found)

    def failed(self, handed: Handed, error: str, *, traceback: str = "", seconds: float | None = None) -> None:  # noqa: ARG002
        """Note that a unit has raised as a whole."""
        unit, _ = self._handed.pop(handed.trial.number)
        if isinstance(unit, Refit):
            raise RoleFailedError(f"The best candidate could not be fitted on all rows: {error}", traceback)
        self._take(unit, [FoldScore(candidate=number, error=f"{error}\n{traceback}") for number in unit.params])

    def lost(self, handed: Handed, error: str) -> None:
        """Note that the process of a unit is gone: it is begun once more."""
        unit, times = self._handed.pop(handed.trial.number)
        if times >= _TIMES:
            self._handed[handed.trial.number] = unit, times
            self.failed(handed, error)
        else:
            self._units.append((unit, times + 1))

    def _take(self, unit: Candidates, found: Sequence[FoldScore]) -> None:
        for score in found:
            self._scores[score.candidate, unit.fold] = score
            if self.log is not None and score.scores:
                self.log.write(score.candidate, {"step": unit.fold, **score.scores})
        self.keep(now=False)
        self._note_ended(unit.params)

    def _note_ended(self, numbers: Iterable[int]) -> None:
        """Look which of these candidates are scored on all folds now; after the last one, choose the best."""
        folds = range(len(self._splits))
        name = self._refit or next(iter(self._scoring.scorers))
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

    def cut_short(self) -> None:
        """End now: what is not scored has failed, and the best candidate is not fitted on all rows."""
        error = "The search was ended before."
        for number in range(len(self._candidates)):
            for fold in range(len(self._splits)):
                self._scores.setdefault((number, fold), FoldScore(candidate=number, error=error))
        self.table = results_table(self._candidates, self._scores, len(self._splits), list(self._scoring.scorers))
        if self._refit is not None and any(not score.error for score in self._scores.values()):
            self.best_index = int(self.table[f"rank_test_{self._refit}"].argmin())

    def _choose(self) -> None:
        """All candidates are scored: make the table, and have the best one fitted."""
        scorers = list(self._scoring.scorers)
        self.table = results_table(self._candidates, self._scores, len(self._splits), scorers)
        errors = [(key, score.error) for key, score in sorted(self._scores.items()) if score.error]
        if len(errors) == len(self._scores):
            what, _, trace = errors[0][1].partition("\n")
            failed = RoleFailedError(f"All {len(errors)} fits have failed. Candidate 0 on fold 0: {what}")
            failed.add_note(trace.rstrip())
            raise failed
        if self._refit is None:
            return
        self.best_index = int(self.table[f"rank_test_{self._refit}"].argmin())
        if not math.isfinite(self.table[f"mean_test_{self._refit}"][self.best_index]):
            raise RoleFailedError(
                f"No candidate has a score {self._refit!r} on every fold: each failed on some, or its score is NaN."
            )
        if self.best_estimator is None:
            self._units.append((Refit(estimator=self._estimator, params=self._candidates[self.best_index]), 1))

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

    @property
    def best_logged(self) -> tuple[int, float, Any] | None:
        """Number, value and estimator of the best candidate, once it is fitted on all rows."""
        if self.best_estimator is None or self.best_index is None:
            return None
        return self.best_index, float(self.table[f"mean_test_{self._refit}"][self.best_index]), self.best_estimator

    def warn(self, say: Callable[[str], None] | None = None) -> None:
        """Tell of fits that failed, and what estimators have warned of, each once."""
        tell = say or warn_at_the_call
        failed = [(key, score.error.partition("\n")[0]) for key, score in sorted(self._scores.items()) if score.error]
        if failed:
            (candidate, fold), error = failed[0]
            tell(
                f"{len(failed)} of {len(self._scores)} fits have failed, and have NaN for scores. Candidate "
                f"{candidate} on fold {fold}: {error}"
            )
        for text in self._warnings:
            tell(text)
