"""The scores of candidates as ``cv_results_`` of scikit-learn's ``GridSearchCV`` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from dask_train.searching.estimators.prefixes import FoldScore


def results_table(
    candidates: Sequence[Mapping[str, Any]],
    scores: Mapping[tuple[int, int], FoldScore],
    num_folds: int,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the table: an array for each column, a row for each candidate, in the order of the candidates.

    Parameters
    ----------
    candidates
        The parameters of each.
    scores
        Result of a candidate on a fold, by their numbers.
    num_folds
        How many there are.
    names
        Of the scorers.

    Returns
    -------
    dict
        Float64 arrays ``(candidates,)`` of times and scores, int32 of ranks, masked arrays of parameters, and
        ``"params"``, a list of dicts. A fit that failed has NaN; times are of the folds that ended.
    """
    table: dict[str, Any] = {}
    grid = [[scores[candidate, fold] for fold in range(num_folds)] for candidate in range(len(candidates))]
    for what in ("fit", "score"):
        seconds = np.array([[getattr(each, f"{what}_s") for each in row] for row in grid])
        ended = np.array([[not each.error for each in row] for row in grid])
        # Of those that failed, or had not ended where a search was interrupted, nobody knows.
        known = np.ma.MaskedArray(seconds, mask=~ended)
        table[f"mean_{what}_time"] = np.ma.filled(known.mean(axis=1), np.nan)
        table[f"std_{what}_time"] = np.ma.filled(known.std(axis=1), np.nan)
    for name in sorted({name for params in candidates for name in params}):
        table[f"param_{name}"] = _column(name, candidates)
    table["params"] = [dict(params) for params in candidates]
    for name in names:
        values = np.array([[each.scores.get(name, np.nan) for each in row] for row in grid])
        for fold in range(num_folds):
            table[f"split{fold}_test_{name}"] = values[:, fold]
        table[f"mean_test_{name}"], table[f"std_test_{name}"] = values.mean(axis=1), values.std(axis=1)
        table[f"rank_test_{name}"] = _ranks(table[f"mean_test_{name}"])
    return table


def _column(name: str, candidates: Sequence[Mapping[str, Any]]) -> Any:
    """Return a parameter of all candidates; masked in those that leave it as it is."""
    values = [params.get(name) for params in candidates]
    masks = [name not in params for params in candidates]
    unmasked = [value for value, is_masked in zip(values, masks, strict=True) if not is_masked]
    dtype = (
        np.array(unmasked).dtype if all(type(value) in (bool, int, float) for value in unmasked) else np.dtype(object)
    )
    column: Any = np.ma.MaskedArray(np.empty(len(values), dtype), mask=masks)
    for number, (value, is_masked) in enumerate(zip(values, masks, strict=True)):
        if not is_masked:
            column[number] = value
    return column


def _ranks(means: np.ndarray) -> np.ndarray:
    """Rank from 1, the best; equals have the same, and those without a number come last."""
    known = ~np.isnan(means)
    ranks = np.full(len(means), known.sum() + 1, np.int32)
    ranks[known] = rankdata(-means[known], method="min")
    return ranks
