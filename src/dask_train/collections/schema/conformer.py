"""Rows of a model that takes codes of categories: made as it knows them, and what there is to know noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from dask import delayed

from dask_train.collections.delayed import for_all
from dask_train.collections.frames import in_order
from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema import placed
from dask_train.collections.schema.category import CategoryColumn, listed
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.conforming import conformed, matched, without_missing_labels
from dask_train.collections.schema.frame_schema import FrameSchema, names_in, structure_in
from dask_train.collections.schema.kinds import column_for
from dask_train.collections.schema.parts import DelayedFrames
from dask_train.collections.schema.unknown import unknown_categories
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
        self._by_place = placed.with_columns(self._known.names, self._known.columns)
        # A model that is trained further may learn other columns; known ones keep their order.
        self._is_strict = self._known.features is not None or not learns
        self._shown: Any = None
        self._inputs: Any = None
        self._outputs: Any = None
        self._columns: list[FrameColumn] = []
        self._targets: list[FrameColumn] = []

    @property
    def knows_features(self) -> bool:
        """Return whether the model knows which columns its features are, and in which order."""
        return self._known.features is not None

    def named(self, what: str, x: Any, features: Any, left_out: Sequence[Any]) -> tuple[Any, Any]:
        """Return a frame whose features are as the model knows them, and their names in its structure."""
        known = [name for name in x.columns if name not in left_out]
        features = self._in_known_order(what, features, known)
        features, pairs = matched(what, self._known, features, known)
        own = dict(pairs)
        features = structure_in(what, x, features, left_out)
        names = list(dict.fromkeys(names_in(features)))
        return self._with(what, x, [(name, own.get(name)) for name in names]), features

    def parts(
        self, what: str, parts: Sequence[Any], features: Any, left_out: Sequence[Any], targets: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """Return delayed frames as the model knows them, and the names of features in its structure."""
        names = list(names_in(features)) or [column.name for column in self._known.columns]
        features, _ = matched(what, self._known, self._in_known_order(what, features, None), names)
        known = self._known if self._shown is None else self._shown
        frames = DelayedFrames(self._alike(), what, features, left_out, targets)
        task = delayed(frames.conformed, pure=False)
        return [task(known, part) for part in parts], features

    def shown_by(
        self, what: str, part: Any, features: Any, left_out: Sequence[Any], targets: Sequence[Any]
    ) -> Conformer:
        """Return one for other rows, which knows of delayed ones what a delayed frame turns out to have.

        That are categories, and the order of columns where ``features`` leave it open.
        """
        names = placed.names_of(features) if self._known.names is None else self._known.names
        like = Conformer(replace(self._known, inputs=names), learns=False, coded=self._coded)
        frames = DelayedFrames(self._alike(), what, features, left_out, targets)
        like._shown = for_all(frames.shown, self._known, part)
        return like

    def _alike(self) -> Callable[[FrameSchema], Conformer]:
        return partial(Conformer, learns=self._learns, coded=self._coded)

    def columns(
        self, what: str, columns: Mapping[Any, Any], features: Any, left_out: Sequence[Any], targets: Sequence[Any]
    ) -> dict[Any, Any]:
        """Return a dict of columns, of which features and targets are as the model knows them."""
        names = list(names_in(features)) or [name for name in columns if name not in left_out]
        found = dict(columns)
        for name, each in columns.items():
            if name in targets:
                found[name] = self._named_column(what, name, each, targets, is_target=True)
            elif name in names:
                found[name] = self._named_column(what, name, each, names, is_target=False)
        return found

    def _named_column(self, what: str, name: Any, value: Any, names: Sequence[Any], *, is_target: bool) -> Any:
        """Return a value of a dict of columns, which is known by its key; its own name may be another."""
        meta = meta_of(value)
        if not hasattr(meta, "iloc") or is_frame(meta):
            return self.targets(what, value) if is_target else self._input(what, value, None)
        columns = self._known.targets if is_target else self._known.columns
        own = placed.check_unique(what, columns)
        alone = placed.alone(columns, self._known.target_names if is_target else self._known.names)
        alone = alone if len(names) == 1 else None
        pairs = [(name, own.get(name, own.get(meta.name, alone)))]
        return self._target(what, value, pairs) if is_target else self._with(what, value, pairs)

    def _in_known_order(self, what: str, features: Any, known: Sequence[Any] | None) -> Any:
        """Return features of a model that is trained further in the order that it knows, if it knows the same ones.

        ``known`` are the columns that there are; None if only computing shows.
        """
        of_all = self._known.names
        if self._known.features is not None or of_all is None:
            return features
        names = placed.unwrapped(of_all)
        if features is None and isinstance(names, list):
            if known is not None and not self._learns:
                placed.in_place(what, known, [(name, None) for name in names], names, is_frame=True)
                return list(names)
            if len(names) > 1 and (known is None or set(names) == set(known)):
                return list(names)
        return placed.reordered(features, of_all if isinstance(features, Mapping) else names)

    def labels_in_order(self, label: Any) -> Any:
        """Return names of labels in the order in which the model was fitted with them, if they are the same."""
        ordered = placed.reordered(label, self._known.target_names)
        return type(label)(ordered) if isinstance(label, tuple) else ordered

    def inputs(self, what: str, x: Any) -> Any:
        """Return features as the model knows them, one frame or column or a structure of them; arrays as they are.

        Raises
        ------
        TypeError, ValueError
            The model was fitted with other columns.
        """
        conform = partial(self._input, what)
        x, self._inputs = self._at_places(what, x, self._by_place, self._columns, conform, is_strict=self._is_strict)
        return x

    def _at_places(
        self,
        what: str,
        values: Any,
        by_place: placed.Names,
        columns: list[FrameColumn],
        conform: Callable[[Any, placed.Known | None], Any],
        *,
        is_strict: bool,
    ) -> tuple[Any, placed.Names]:
        """Return values that are conformed, each by what is known at its place, and the names of columns at each.

        ``conform`` adds what each column is to ``columns``. Where values are put together otherwise than
        ``by_place``, the names of a frame's columns tell its place.
        """
        names: list[list[Any] | None] = []
        is_alike = placed.is_alike(values, by_place)

        def at_place(value: Any, known: placed.Known | None) -> Any:
            before, meta = len(columns), meta_of(value)
            if known is None and not is_alike and is_frame(meta):
                known = placed.by_names(what, placed.seen(meta), by_place, is_strict=is_strict)
            value = conform(value, known)
            is_array = not hasattr(meta_of(value), "iloc")
            names.append(None if is_array else [column.name for column in columns[before:]])
            return value

        values = placed.mapped(values, by_place, at_place)
        return values, placed.put(values, names)

    def _input(self, what: str, value: Any, known: placed.Known | None) -> Any:
        meta = meta_of(value)
        if not hasattr(meta, "iloc"):
            return value
        given = placed.seen(meta)
        if known is not None and not self._is_strict and set(given) != {name for name, _ in known}:
            known = known if len(known) == 1 and not is_frame(meta) else None
        if known is not None and (is_frame(meta) or len(known) == 1):
            if not placed.in_place(what, given, known, self._known.names, is_frame=is_frame(meta)):
                value = in_order(value, [name for name, _ in known])
            pairs = known if is_frame(meta) else [(given[0], known[0][1])]
            return self._with(what, value, pairs)
        own = placed.check_unique(what, self._known.columns)
        alone = None if is_frame(meta) else placed.alone(self._known.columns, self._known.names)
        return self._with(what, value, [(name, own.get(name, alone)) for name in given])

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
        """Return labels as the model knows them, with none missing; arrays as they are.

        Parameters
        ----------
        what
            How errors call the data.
        value
            A frame or column, or a structure of them.
        names
            Those of a frame's columns that are labels. Default: all of them.
        """
        if names is not None:
            own = placed.check_unique(what, self._known.targets)
            return self._target(what, value, [(name, own.get(name)) for name in names])
        by_place = placed.with_columns(self._known.target_names, self._known.targets)
        conform = partial(self._placed_target, what)
        value, outputs = self._at_places(what, value, by_place, self._targets, conform, is_strict=False)
        self._outputs = None if placed.is_one(outputs) or not any(placed.lists_in(outputs)) else outputs
        return value

    def _placed_target(self, what: str, value: Any, known: placed.Known | None) -> Any:
        meta = meta_of(value)
        if not hasattr(meta, "iloc"):
            return without_missing_labels(what, value, None)
        given = placed.seen(meta)
        is_same = known is not None and set(given) == {name for name, _ in known}
        if known is not None and (is_same or self._is_strict) and (is_frame(meta) or len(known) == 1):
            if len(given) == len(known) == 1 and is_frame(meta):
                return self._target(what, value, [(given[0], known[0][1])])
            if not placed.in_place(what, given, known, self._known.target_names, is_frame=is_frame(meta)):
                value = in_order(value, [name for name, _ in known])
            return self._target(what, value, known if is_frame(meta) else [(given[0], known[0][1])])
        own = placed.check_unique(what, self._known.targets)
        pairs = [(name, own.get(name)) for name in given]
        return self._target(what, value, pairs)

    def _target(self, what: str, value: Any, known: placed.Known) -> Any:
        meta = meta_of(value)
        if hasattr(meta, "iloc"):
            alone = placed.alone(self._known.targets, self._known.target_names)
            if len(known) == 1 and alone is not None:
                known = [(known[0][0], alone)]
            for name, own in known:
                column = own or column_for(what, name, meta.dtypes[name] if is_frame(meta) else meta.dtype)
                self._targets.append(column)
                if own is not None:
                    value = conformed(what, value, [(name, column)], coded=False)
                elif isinstance(column, CategoryColumn) and not self._learns:
                    raise unknown_categories(what, name)
        return without_missing_labels(what, value, [name for name, _ in known])

    def note_targets(self, what: str, labels: Mapping[Any, Any]) -> None:
        """Note which columns are labels, by name and dtype, which stay as they are: the model makes codes of them."""
        own = {column.name: column for column in self._known.targets}
        self._targets.extend(own.get(name) or column_for(what, name, dtype) for name, dtype in labels.items())

    def lying(self, what: str, inputs: Any, targets: Any) -> None:
        """Note columns that lie in shared memory, and see that they are those of the model, and codes its codes.

        Parameters
        ----------
        what
            How errors call the data.
        inputs, targets
            Structures of what each array was cut from, a :class:`FrameSchema`; None if it was none.

        Raises
        ------
        TypeError, ValueError
            They are not; or the model takes categories, not codes.
        """
        known = self._known
        for several, names, columns, noted in (
            (inputs, known.names, known.columns, self._columns),
            (targets, known.target_names, known.targets, self._targets),
        ):
            places = placed.with_columns(names, columns)
            lies = partial(self._lies, what, names, columns, noted)
            placed.mapped(several, places, lies if placed.is_alike(several, places) else partial(lies, places=places))

    def _lies(
        self,
        what: str,
        all_names: placed.Names,
        columns: Sequence[FrameColumn],
        noted: list[FrameColumn],
        frame: FrameSchema | None,
        known: placed.Known | None,
        *,
        places: Any = None,
    ) -> None:
        if frame is None:
            return
        given = [column.name for column in frame.columns]
        if known is None and isinstance(frame.features, list):
            known = placed.by_names(what, given, places, is_strict=False)
        own = placed.check_unique(what, columns) if known is None else dict(known)
        if known is not None:
            names, is_frame = [name for name, _ in known], isinstance(frame.features, list)
            if is_frame and given != names and (self._is_strict or set(given) == set(names)):
                raise ValueError(
                    f"{what} lies in shared memory with the columns {listed(given)}, in this order, and the model was "
                    f"fitted with {listed(names)}. Publish the data set with its columns in that order, such as by "
                    f"features={names!r}."
                )
            if not is_frame and len(names) == 1:
                placed.in_place(what, given, known, all_names, is_frame=False)
                own = {given[0]: known[0][1]}
        for column in frame.columns:
            found = own.get(column.name)
            self._check_codes(what, column, found)
            noted.append(column if found is None else replace(found, name=column.name))

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
        if own is not None and replace(own, name=column.name) != column:
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

    def schema(self, features: Any, inputs: Any = None) -> FrameSchema | None:
        """Return what the columns are; None if there were none."""
        if not self._columns and not self._targets:
            return None
        several = None if features is not None or placed.is_one(inputs) else inputs
        return FrameSchema(
            columns=tuple(self._columns),
            targets=tuple(self._targets),
            features=features,
            inputs=several if any(placed.lists_in(several)) else None,
            outputs=self._outputs,
        )

    def schema_of_columns(self, features: Any) -> FrameSchema | None:
        """Return what the columns of a dict are that came from :meth:`columns`; None if there were none."""
        return self.schema(None, placed.only_of(self._columns, placed.names_of(features)))

    def schema_of(self, x: Any) -> FrameSchema | None:
        """Return what the columns of features are that came from :meth:`inputs`; None if there were none."""
        names, meta = self._inputs, meta_of(x)
        if not hasattr(meta, "iloc"):
            return self.schema(None, names)
        return self.schema(names if is_frame(meta) else names[0])
