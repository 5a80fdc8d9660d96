"""The rows of one rank as data sets of LightGBM: made of its parts, one after the other, with the bins of all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np

from dask_train.compat.lightgbm import continue_from, predictor_of
from dask_train.data.columns import Column
from dask_train.fitting.trees.lightgbm_ranks import first_score, has_linear_trees
from dask_train.fitting.trees.parts import TreeRows, as_parts, plain_labels
from dask_train.fitting.trees.task import TreesTask
from dask_train.role.session import Session

# Rows that are converted at a time.
BATCH_ROWS = 1 << 16


class RowSequence(lightgbm.Sequence):
    """A part's features as LightGBM reads them: some rows at a time.

    Parameters
    ----------
    x
        The rows.
    column
        What they are.
    """

    batch_size = BATCH_ROWS

    def __init__(self, x: np.ndarray, column: Column) -> None:
        self._x = x
        self._codes = [place for place, known in enumerate(column.categories or ()) if known is not None]

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Give some rows, with NaN in place of missing categories."""
        return decoded(self._x[rows], self._codes)

    def __len__(self) -> int:
        return len(self._x)


def decoded(x: np.ndarray, codes: Sequence[int]) -> np.ndarray:
    """Return rows as floats, the only numbers LightGBM reads here, with NaN in place of the code of a missing category.

    They are copied where they are no floats, or there are categories.
    """
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float32 if x.dtype.itemsize <= 2 else np.float64)
    if not codes or not len(x):
        return x
    floats = np.array(x, np.float64)
    some = floats[..., codes]
    floats[..., codes] = np.where(some < 0, np.nan, some)
    return floats


class DataSets:
    """Makes the data sets that ``fit`` asks for, in its order: that to train on, then those to score.

    Parameters
    ----------
    session, task
        Of the role.
    parts
        Its rows to train on.
    classes
        The labels of a classifier.

    Attributes
    ----------
    start
        The booster to continue; every data set begins with its scores.
    num_before
        How many rounds of it there were before this fit.
    first_score
        What all rows begin with besides, and the first tree has to hold.
    shape
        How many rows to train on all ranks have, and how many features.
    """

    def __init__(
        self, session: Session, task: TreesTask, parts: Sequence[TreeRows], classes: np.ndarray | None
    ) -> None:
        self._session, self._task, self._parts, self._classes = session, task, parts, classes
        self._asked = -1
        self.start: Any = None
        self.num_before = 0
        self.first_score = 0.0
        self.shape = session.num_rows, task.columns.matrix.row_shape[0]
        self._train: Any = None
        self._of_classes: np.ndarray | None = None

    def make(self, *, params: Mapping[str, Any], **_: Any) -> Any:
        """Return a place for a data set, which is made when the loop knows what it begins with."""
        self._asked += 1
        return Asked(number=self._asked, params=dict(params))

    def check_start(self) -> None:
        """Check that the booster to continue knows the same categories by the same codes.

        Raises
        ------
        ValueError
            It does not.
        """
        known, theirs = self._known(), self.start.pandas_categorical or []
        if known and [*map(list, theirs)] != known:
            raise ValueError(
                f"init_model was fitted with the categories {theirs}, and the data has {known}: the same codes would "
                "mean other values. Give the data the model's, with .cat.set_categories(...)."
            )

    def _known(self) -> list[list[Any]]:
        """Return the categories of each column that has some."""
        return [list(known) for known in self._task.columns.matrix.categories or () if known is not None]

    def train(self, params: Mapping[str, Any]) -> Any:
        """Return the rows of this rank."""
        column = self._task.columns.matrix
        sample = lightgbm.Dataset(self._sampled(int(self._task.estimator.subsample_for_bin)), **self._columns(params))
        self._train = self._of_parts(self._parts, column, sample.construct(), params, weigh=True)
        self._parts = ()  # LightGBM has their bins
        return self._train

    def evaluated(self, number: int, params: Mapping[str, Any]) -> Any:
        """Return a whole set that is scored, in the first rank; None in the others."""
        each = self._task.evals[number]
        whole = self._session.dataset(each.dataset).whole()
        if self._session.world_rank:
            return None
        parts = as_parts(whole.partitions(), each.columns, f"eval_set {each.name!r}")
        if each.columns.groups is not None:
            parts = [_joined(parts).by_group()]
        return self._of_parts(parts, each.columns.matrix, self._train, params, weigh=not each.prefix)

    def _sampled(self, size: int) -> np.ndarray:
        """Return rows of all ranks by which bins are chosen.

        The same ones on each rank, all where there are not more.
        """
        session = self._session
        mine = sum(map(len, self._parts))
        counts = session.all_gather(np.array([mine]))
        assert session.world_rank is not None
        first, total = int(counts[: session.world_rank].sum()), int(counts.sum())
        chosen = np.arange(total)
        if total > size:
            chosen = np.sort(np.random.default_rng(total).choice(total, size, replace=False))
        chosen = chosen[(chosen >= first) & (chosen < first + mine)] - first
        samples = []
        for part in self._parts:
            samples.append(part.x[chosen[(chosen >= 0) & (chosen < len(part))]])
            chosen = chosen - len(part)
        everyones: np.ndarray = session.all_gather(np.concatenate(samples))
        return decoded(everyones, _codes(self._task.columns.matrix))

    def _columns(self, params: Mapping[str, Any]) -> dict[str, Any]:
        column = self._task.columns.matrix
        codes = [
            place for place in _codes(column) if not column.origins[place].is_ordered
        ]  # LightGBM takes ordered ones for numbers
        categorical_feature = self._task.settings.get("categorical_feature", "auto")
        return {
            # The sample has few rows, and must not leave out features for that.
            "params": {**params, "feature_pre_filter": False},
            "feature_name": "auto" if column.names is None else list(column.names),
            "categorical_feature": codes if codes and categorical_feature == "auto" else categorical_feature,
        }

    def _of_parts(
        self, parts: Sequence[TreeRows], column: Column, reference: Any, params: Mapping[str, Any], *, weigh: bool
    ) -> Any:
        rows: Any = [RowSequence(part.x, column) for part in parts if len(part)]
        if has_linear_trees(params):
            # LightGBM keeps these rows, and writes them past its memory where it gets them piece by piece.
            rows = np.concatenate([decoded(part.x, _codes(column)) for part in parts])
        fields: dict[str, Any] = {"label": self._encoded(np.concatenate([part.y for part in parts]))}
        if parts[0].sample_weight is not None:
            fields["weight"] = np.concatenate([part.sample_weight for part in parts if part.sample_weight is not None])
        if weigh and (by_class := self._class_weights(fields["label"])) is not None:
            fields["weight"] = by_class * fields.get("weight", 1.0)
        if parts[0].qid is not None:
            fields["group"] = np.concatenate([part.group_sizes() for part in parts])
        if self._train is None and self.start is None and parts[0].margin is None and self._session.world_size > 1:
            self.first_score = first_score(params, fields["label"], fields.get("weight"), self._session)
        dataset = lightgbm.Dataset(rows, reference=reference, **fields, **self._columns(params)).construct()
        if "weight" not in fields:
            dataset.set_field("weight", None)  # else zeros, where the reference has weights
        self._begin(dataset, parts, column)
        dataset.pandas_categorical = [list(known) for known in column.categories or () if known is not None] or None
        return dataset

    def _begin(self, dataset: Any, parts: Sequence[TreeRows], column: Column) -> None:
        """Let rows begin with the scores that they were given, and those of the booster to continue."""
        score: Any = None
        if parts[0].margin is not None:
            margin = np.concatenate([part.margin for part in parts if part.margin is not None]).astype(np.float64)
            score = margin[:, 0] if margin.ndim == 2 and margin.shape[1] == 1 else margin
        if self.first_score:
            first_scores = np.full(sum(map(len, parts)), self.first_score)
            score = first_scores if score is None else score + first_scores
        if self.start is not None:
            num_rounds = self.start.current_iteration()
            # Rounds have added to margins one after the other, and sums of the same order have the same bits.
            first = num_rounds if score is None else self.num_before
            for start, stop in [(0, first), *((each, each + 1) for each in range(first, num_rounds))]:
                if start < stop:
                    raw = self._raw(parts, column, start, stop - start)
                    score = raw if score is None else score + raw
            continue_from(dataset, self._predictor())
        if score is not None:
            dataset.set_init_score(score)

    def _raw(self, parts: Sequence[TreeRows], column: Column, first: int, num_rounds: int) -> np.ndarray:
        """Return the scores of some rounds of the booster to continue."""
        codes, which = _codes(column), {"start_iteration": first, "num_iteration": num_rounds}
        scores = [
            self.start.predict(decoded(part.x[at : at + BATCH_ROWS], codes), raw_score=True, **which)
            for part in parts
            for at in range(0, len(part), BATCH_ROWS)
        ]
        return np.concatenate(scores)

    def _predictor(self) -> Any:
        """Return the same one for all data sets, as LightGBM wants it."""
        if not hasattr(self, "_begins"):
            self._begins = predictor_of(self.start)
        return self._begins

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        if self._classes is None:
            return y
        y = plain_labels(y)
        place = np.searchsorted(self._classes, y)
        if (place == len(self._classes)).any() or (self._classes[place] != y).any():
            raise ValueError("A validation set has labels that the data to train on has not. Leave such rows out.")
        return place

    def _class_weights(self, y: np.ndarray) -> np.ndarray | None:
        """Return what the class of each row weighs, found of all ranks' rows when the first of them are asked."""
        wanted = getattr(self._task.estimator, "class_weight", None)
        if wanted is None or self._classes is None:
            return None
        if self._of_classes is None:  # the first rank alone makes the data sets that are scored
            if isinstance(wanted, str):
                counts = self._session.all_reduce(np.bincount(y, minlength=len(self._classes)).astype(np.float64))
                self._of_classes = counts.sum() / (len(counts) * counts)
            else:
                self._of_classes = np.array([float(wanted.get(each, 1.0)) for each in self._classes.tolist()])
        weights: np.ndarray = self._of_classes[y]
        return weights


class Asked:
    """A data set that ``fit`` has asked for.

    Parameters
    ----------
    number
        0 for that to train on.
    params
        With which.
    """

    _has_non_default_feature_names = False

    def __init__(self, number: int, params: dict[str, Any]) -> None:
        self.number, self.params = number, params


def _codes(column: Column) -> list[int]:
    return [place for place, known in enumerate(column.categories or ()) if known is not None]


def _joined(parts: Sequence[TreeRows]) -> TreeRows:
    names = [name for name in ("x", "y", "sample_weight", "margin", "qid") if getattr(parts[0], name) is not None]
    return TreeRows(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
