"""Rows of a model that takes codes of categories: made as it knows them, and what there is to know noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from dask import delayed

from dask_train.collections.frames import in_order
from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema.category import CategoryColumn, listed
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.conforming import conformed, matched, without_missing_labels
from dask_train.collections.schema.frame_schema import FrameSchema, names_in, only_categories, structure_in
from dask_train.collections.schema.kinds import column_for
from dask_train.compat.dask import meta_of

# The name of labels that come from no frame.
LABEL = "label"


class Conformer:
    """Makes frames like those that a model knows, and notes what their columns are.

    Parameters
    ----------
    known
        What the model knows; None for nothing.
    learns
        Whether it may learn categories of other columns.
    coded
        Whether it takes codes in place of categories, among which there is none for a missing one.
    missing
        Whether such codes may be -1 for missing ones: who uses them has to look for it.
    """

    def __init__(
        self, known: FrameSchema | None, *, learns: bool = True, coded: bool = True, missing: bool = False
    ) -> None:
        self._known, self._learns, self._coded = known or FrameSchema(columns=()), learns, coded
        self._is_whole = coded and not missing
        self._shown: Any = None
        self._columns: list[FrameColumn] = []
        self._targets: list[FrameColumn] = []

    @property
    def knows_features(self) -> bool:
        """Return whether the model knows which columns its features are, and in which order."""
        return self._known.features is not None

    def ordered(self, what: str, x: Any) -> Any:
        """Return a frame with the columns of the model, where it was fitted with a matrix of them."""
        if not is_frame(x) or not isinstance(self._known.features, list):
            return x
        names, _ = matched(what, self._known, None, list(x.columns))
        return in_order(x, names)

    def named(self, what: str, x: Any, features: Any, left_out: Sequence[Any]) -> tuple[Any, Any]:
        """Return a frame whose features are as the model knows them, and their names in its structure."""
        features, pairs = matched(what, self._known, features, [name for name in x.columns if name not in left_out])
        own = dict(pairs)
        features = structure_in(what, x, features, left_out)
        names = list(dict.fromkeys(names_in(features)))
        return self._with(what, x, [(name, own.get(name)) for name in names]), features

    def parts(
        self, what: str, parts: Sequence[Any], features: Any, left_out: Sequence[Any], targets: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """Return delayed frames as the model knows them, and the names of features in its structure."""
        names = list(names_in(features)) or [column.name for column in self._known.columns]
        features, _ = matched(what, self._known, features, names)
        known = self._known if self._shown is None else self._shown
        task = delayed(partial(_conformed_part, self._alike(), what, features, left_out, targets), pure=False)
        return [task(known, part) for part in parts], features

    def shown_by(
        self, what: str, part: Any, features: Any, left_out: Sequence[Any], targets: Sequence[Any]
    ) -> Conformer:
        """Return one for other delayed frames, which knows the categories that a delayed frame turns out to have."""
        like = Conformer(self._known, learns=False, coded=self._coded)
        like._shown = delayed(partial(_shown, self._alike(), what, features, left_out, targets), pure=False)(
            self._known, part
        )
        return like

    def _alike(self) -> Callable[[FrameSchema], Conformer]:
        return partial(Conformer, learns=self._learns, coded=self._coded)

    def columns(
        self, what: str, columns: Mapping[Any, Any], features: Any, left_out: Sequence[Any], targets: Sequence[Any]
    ) -> dict[Any, Any]:
        """Return a dict of columns, of which features and targets are as the model knows them."""
        names = list(names_in(features)) or [name for name in columns if name not in left_out]
        columns = {name: self.inputs(what, each) if name in names else each for name, each in columns.items()}
        return {name: self.targets(what, each) if name in targets else each for name, each in columns.items()}

    def inputs(self, what: str, value: Any) -> Any:
        """Return a frame or column of features as the model knows them; other values as they are."""
        meta = meta_of(value)
        if not hasattr(meta, "iloc"):
            return value
        own = {column.name: column for column in self._known.columns}
        if not is_frame(meta):
            alone = self._known.columns[0] if len(self._known.columns) == 1 else None
            return self._with(what, value, [(meta.name, own.get(meta.name, alone))])
        return self._with(what, value, [(name, own.get(name)) for name in meta.columns])

    def _with(self, what: str, value: Any, columns: Sequence[tuple[Any, FrameColumn | None]]) -> Any:
        meta = meta_of(value)
        pairs = []
        for name, own in columns:
            column = own or column_for(what, name, meta.dtypes[name] if is_frame(meta) else meta.dtype)
            if own is None and isinstance(column, CategoryColumn) and not self._learns:
                raise unknown_categories(what, name)
            self._columns.append(column)
            if own is not None or isinstance(column, CategoryColumn):
                pairs.append((name, column))
        return conformed(what, value, pairs, coded=self._is_whole)

    def targets(self, what: str, value: Any, names: Sequence[Any] | None = None) -> Any:
        """Return a frame or column of labels as the model knows them, with none missing; other values as they are."""
        meta = meta_of(value)
        if hasattr(meta, "iloc"):
            several = [meta.name] if not is_frame(meta) else list(meta.columns) if names is None else names
            own = {column.name: column for column in self._known.targets}
            if len(several) == len(own) == 1:
                own = dict.fromkeys(several, self._known.targets[0])
            for name in several:
                dtype = meta.dtypes[name] if is_frame(meta) else meta.dtype
                column = own.get(name) or column_for(what, name, dtype)
                self._targets.append(column)
                if name in own:
                    value = conformed(what, value, [(name, column)], coded=False)
                elif isinstance(column, CategoryColumn) and not self._learns:
                    raise unknown_categories(what, name)
        return without_missing_labels(what, value, names)

    def note_targets(self, what: str, labels: Mapping[Any, Any]) -> None:
        """Note which columns are labels, by name and dtype, which stay as they are: the model makes codes of them."""
        own = {column.name: column for column in self._known.targets}
        self._targets.extend(own.get(name) or column_for(what, name, dtype) for name, dtype in labels.items())

    def lying(self, what: str, inputs: Sequence[FrameSchema | None], targets: Sequence[FrameSchema | None]) -> None:
        """Note columns that lie in shared memory, and see that their codes are those of the model.

        Raises
        ------
        TypeError, ValueError
            They are not; or the model takes categories, not codes.
        """
        order = self._known.features
        for frame in inputs:
            features = None if frame is None else frame.features
            if (
                isinstance(order, list)
                and isinstance(features, list)
                and order != features
                and set(order) == set(features)
            ):
                raise ValueError(
                    f"The features of {what} lie in the order {listed(features)}, and the model was fitted with the "
                    f"order {listed(order)}. Publish the data set with features={order!r}."
                )
        for several, known, noted in (
            (inputs, self._known.columns, self._columns),
            (targets, self._known.targets, self._targets),
        ):
            for column in (column for frame in several if frame is not None for column in frame.columns):
                own = next((one for one in known if one.name == column.name), None)
                self._check_codes(what, column, own)
                noted.append(own or column)

    def _check_codes(self, what: str, column: FrameColumn, own: FrameColumn | None) -> None:
        if not (isinstance(column, CategoryColumn) or isinstance(own, CategoryColumn)):
            return
        if not self._coded:
            raise TypeError(
                f"Column {column.name!r} of {what} lies in shared memory as codes of categories, and an estimator "
                "takes the categories themselves. Pass the frame that was published."
            )
        if own is None and not self._learns:
            raise unknown_categories(what, column.name)
        if own is not None and own != column:
            several = (column, own)
            texts = [
                listed(one.categories.tolist()) if isinstance(one, CategoryColumn) else one.told() for one in several
            ]
            raise ValueError(
                f"Column {column.name!r} of {what} lies in shared memory as codes of {texts[0]}, and the model was "
                f"fitted with {texts[1]}. Pass the frame itself, whose values are mapped; or publish it with these "
                f"categories: frame.assign(**{{{column.name!r}: frame[{column.name!r}].cat.set_categories([...])}})."
            )

    def classes(self, what: str, names: Sequence[str] | None) -> None:
        """Note the names of the classes that labels number, and see that they are those of the model.

        Raises
        ------
        ValueError
            They are not.
        """
        if names is None or find_spec("pandas") is None:  # without which there are no frames, and no categories
            return
        column = CategoryColumn.of_names(LABEL, names)
        known = next((one for one in self._known.targets if isinstance(one, CategoryColumn)), None)
        if known is not None and known.categories.tolist() != list(names):
            raise ValueError(
                f"The classes of {what} are {listed(names)}, and the model knows "
                f"{listed(known.categories.tolist())}, so the same number would mean two things. Pass these as "
                "classes=: result.schema.classes of its fit has them."
            )
        self._targets.append(column if known is None else known)

    def schema(self, features: Any) -> FrameSchema | None:
        """Return what the columns are; None if there were none."""
        if not self._columns and not self._targets:
            return None
        return FrameSchema(columns=tuple(self._columns), targets=tuple(self._targets), features=features)


def _conformed_part(
    like: Callable[[FrameSchema], Conformer],
    what: str,
    features: Any,
    left_out: Sequence[Any],
    targets: Sequence[Any],
    known: FrameSchema,
    part: Any,
) -> Any:
    """Make the frame of one partition as the model knows it; a dict of columns, too."""
    return _of_part(like(known), what, features, left_out, targets, part)


def _shown(
    like: Callable[[FrameSchema], Conformer],
    what: str,
    features: Any,
    left_out: Sequence[Any],
    targets: Sequence[Any],
    known: FrameSchema,
    part: Any,
) -> FrameSchema:
    """Return the categories that a partition shows, once it is made as the model knows it."""
    conformer = like(known)
    _of_part(conformer, what, features, left_out, targets, part)
    return only_categories(conformer.schema(None) or known)


def _of_part(
    conformer: Conformer, what: str, features: Any, left_out: Sequence[Any], targets: Sequence[Any], part: Any
) -> Any:
    if isinstance(part, Mapping):
        return conformer.columns(what, part, features, left_out, targets)
    if not is_frame(part):
        return part
    part, _ = conformer.named(what, part, features, left_out)
    return conformer.targets(what, part, targets)


def check_no_categories(what: str, x: Any, features: Any, others: Sequence[Any]) -> None:
    """Check that a model which takes codes, and of which no schema is known, gets no categories.

    Raises
    ------
    ValueError
        A column of a frame has some.
    """
    meta = meta_of(x)
    if not hasattr(meta, "iloc"):
        return
    dtypes = dict(meta.dtypes) if is_frame(meta) else {meta.name: meta.dtype}
    names = [name for name in dtypes if name not in others] if features is None else list(names_in(features))
    for name in names:
        if name in dtypes and CategoryColumn.has(dtypes[name]):
            raise unknown_categories(what, name)


def unknown_categories(what: str, name: Any) -> ValueError:
    """Return the error of a column of categories for a model whose learnt categories are unknown."""
    return ValueError(
        f"Column {name!r} of {what} holds categories, of which the model takes codes, and the categories that it was "
        "fitted with are not known here: the same codes would mean other values. Pass schema=result.schema of its fit, "
        "or the path of what result.save has written; or, for a model of another origin, "
        "schema=dt.FrameSchema.of(frame) of the frame that it was fitted with."
    )
