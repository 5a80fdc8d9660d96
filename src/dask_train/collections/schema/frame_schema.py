"""The description of a frame that travels with a model: which columns it takes, of which kinds, in which order."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dask_train.cards import Card, CardMixin, CardTable
from dask_train.collections.partition.form import is_frame, is_name, resolved
from dask_train.collections.schema import placed
from dask_train.collections.schema.category import CategoryColumn, listed
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.files import ADVICE, read_json
from dask_train.collections.schema.kinds import column_for, column_from_json
from dask_train.collections.schema.values import value_from_json, value_to_json
from dask_train.compat.dask import meta_of
from dask_train.masking import masked
from dask_train.stores import checked_options, reaching

# Raised when files of later versions can't be read by earlier ones.
FORMAT = 1
# How many columns the text of a schema names.
_NUM_NAMED = 6


@dataclass(frozen=True, kw_only=True, repr=False)
class FrameSchema(CardMixin):
    """Columns of a frame as a model knows them: their order, dtypes, and categories with their values.

    :func:`dask_train.fit` makes one of the frame that it is given, ``result.schema``, and ``result.save`` writes it
    beside the model. Later frames are made like it: columns are matched by name, and categories by value.
    :meth:`save` writes a schema alone; :meth:`load` reads it, or that of a saved model.

    Attributes
    ----------
    columns
        The features, in the order in which the model takes them.
    targets
        The labels.
    features
        How the features are put together, as ``features=`` of :func:`dask_train.fit` says it: a name, a list of names
        for a matrix, or a dict of inputs. None if they did not come from one frame.
    inputs, outputs
        The names of columns of each frame, if features or targets are several frames, in a dict or tuple as these are:
        a list for a frame or column, None for an array. None if they are one frame.

    Examples
    --------
    >>> schema = dt.FrameSchema.of(frame, features=["carrier", "distance"])
    >>> dt.predict(model, later, schema=schema)
    """

    columns: tuple[FrameColumn, ...]
    targets: tuple[FrameColumn, ...] = ()
    features: Any = None
    inputs: Any = None
    outputs: Any = None

    @classmethod
    def of(cls, frame: Any, features: Any = None, label: Any = None) -> FrameSchema:
        """Describe a frame of Dask or pandas; nothing is computed.

        Parameters
        ----------
        frame
            Its categories have to be known.
        features, label
            As of :func:`dask_train.fit`. Default: all columns but the label are features, in the frame's order.

        Returns
        -------
        FrameSchema
            Of the columns that are named.

        Raises
        ------
        ValueError, TypeError
            It is no frame, has no such column, or its categories are not known.
        """
        if not is_frame(frame):
            raise TypeError(f"frame is a {type(frame).__name__}. Pass a DataFrame of Dask or pandas.")
        return schema_of("frame", frame, features, list(names_in(label)))

    @property
    def categories(self) -> dict[Any, list[Any]]:
        """The values of each column of categories, by its name, in the order of their codes."""
        several = (*self.columns, *self.targets)
        return {one.name: one.categories.tolist() for one in several if isinstance(one, CategoryColumn)}

    @property
    def classes(self) -> list[Any] | None:
        """Return the label's values in the order of their codes, where it has categories; else None."""
        columns = [one for one in self.targets if isinstance(one, CategoryColumn)]
        return columns[0].categories.tolist() if len(columns) == 1 else None

    def save(self, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write the schema into a JSON file, which :meth:`load` and ``schema=`` of :func:`dask_train.predict` take.

        Parameters
        ----------
        path
            A file or URL.
        storage_options
            Keywords for the file system of a URL, such as credentials. They are not shown. Default: none.

        Raises
        ------
        TypeError
            A category is of a type that JSON can't represent.
        ValueError
            The store can't be written.
        """
        options = checked_options(storage_options, path=path)
        content = json.dumps(self.to_json(), indent=1).encode()
        with reaching("path", path, options) as (fs, place):
            fs.pipe_file(place, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> FrameSchema:
        """Read a schema that :meth:`save` has written, or that of a saved model.

        ``schema=`` of :func:`dask_train.fit`, :func:`dask_train.predict` and other functions reads the same paths.
        Use this method to pass credentials where a function has no ``storage_options=``, or where the schema is in
        another store than the model.

        Parameters
        ----------
        path : str or path
            JSON file of :meth:`save`, folder of ``result.save``, or its ``.keras`` file. Local path or URL.
        storage_options : dict, optional
            Keywords for the file system of a URL, such as credentials. Never shown. Default: none; credentials come
            from the environment of this process.

        Returns
        -------
        FrameSchema
            Equal to the one that was saved.

        Raises
        ------
        TypeError
            ``storage_options`` is no dict.
        ValueError
            There is no such file, it holds no schema, the model was saved without one, a later version of dask-train
            has written it, or the store can't be read. ``storage_options`` for a local path raise it, too.

        Examples
        --------
        >>> options = {"key": "...", "secret": "..."}
        >>> result.schema.save("s3://bucket/flights.json", storage_options=options)
        >>> schema = dt.FrameSchema.load("s3://bucket/flights.json", storage_options=options)
        >>> dt.predict(model, later, schema=schema)
        """
        return schema_at("path", path, checked_options(storage_options, path=path))

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON holds it, values of categories exactly.

        Returns
        -------
        dict
            For ``json.dumps``.
        """
        places = {"inputs": self.inputs, "outputs": self.outputs}
        return {
            "format": FORMAT,
            "columns": [one.to_json() for one in self.columns],
            "targets": [one.to_json() for one in self.targets],
            "features": _structure_to_json(self.features),
            **{key: placed.to_json(names) for key, names in places.items() if names is not None},
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> FrameSchema:
        """Return the schema that :meth:`to_json` has written.

        Parameters
        ----------
        found
            As ``json.loads`` gives it.

        Returns
        -------
        FrameSchema
            The same.

        Raises
        ------
        ValueError
            It is no schema, or one of a later version.
        """
        if not _is_schema(found):
            raise ValueError("There is no schema in that file. Pass one that result.save or schema.save has written.")
        if found["format"] > FORMAT:
            raise ValueError(
                f"The schema has format {found['format']}, and this version of dask-train reads up to {FORMAT}. "
                "Upgrade dask-train."
            )
        return cls(
            columns=tuple(map(column_from_json, found["columns"])),
            targets=tuple(map(column_from_json, found["targets"])),
            features=_structure_from_json(found["features"]),
            inputs=placed.from_json(found.get("inputs")),
            outputs=placed.from_json(found.get("outputs")),
        )

    @property
    def names(self) -> Any:
        """Return the names of features by their place, see :attr:`inputs`, also where they came from one frame."""
        return placed.names_of(self.features) if self.inputs is None else self.inputs

    @property
    def target_names(self) -> Any:
        """Return the names of targets by their place, see :attr:`outputs`; None for one, whose name is not compared."""
        if self.outputs is not None or len(self.targets) < 2:
            return self.outputs
        return [column.name for column in self.targets]

    @cached_property
    def digest(self) -> str:
        """A text that identifies the schema, in any process."""
        try:
            text = json.dumps(self.to_json())
        except TypeError:  # values that JSON can't represent
            text = repr([(one.name, one.kind, self.categories.get(one.name)) for one in (*self.columns, *self.targets)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _card(self) -> Card:
        rows = [(repr(one.name), one.kind, _told(one)) for one in self.columns]
        rows += [(repr(one.name), f"{one.kind}, target", _told(one)) for one in self.targets]
        table = CardTable(columns=("column", "kind", "values"), rows=rows, title="columns")
        more = ", ..." if len(self.columns) > _NUM_NAMED else ""
        name = ", ".join(repr(one.name) for one in self.columns[:_NUM_NAMED]) + more
        return Card(kind="FrameSchema", name=name, tables=[table])


def _told(column: FrameColumn) -> str:
    return listed(column.categories.tolist()) if isinstance(column, CategoryColumn) else column.told()


def _is_schema(document: Mapping[str, Any]) -> bool:
    """Return whether JSON is that of a schema: pandas, for one, writes frames with ``columns``, too."""
    number = document.get("format")
    # A later version may name the parts otherwise.
    return isinstance(number, int) and (number > FORMAT or document.keys() >= {"columns", "targets", "features"})


def schema_to_json(schema: FrameSchema | None) -> dict[str, Any]:
    """Return a schema as a file holds it, also if there is none.

    Raises
    ------
    TypeError
        A category is of a type that JSON can't hold.
    """
    return {"format": FORMAT, "columns": None} if schema is None else schema.to_json()


def schema_from(content: dict[str, Any] | None) -> FrameSchema | None:
    """Return the schema that :func:`schema_to_json` has written; None if there is none."""
    return None if content is None or content.get("columns", ()) is None else FrameSchema.from_json(content)


def schema_at(what: str, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> FrameSchema:
    """Read the schema of a file or folder, whose path is the argument ``what``; see :meth:`FrameSchema.load`.

    ``options`` are for a URL; a local path is opened without them.
    """
    shown = f"{what}={masked(os.fspath(path))!r}"
    document = read_json(path, options, what=what)
    if document is None or document.get("columns", ()) is None:
        raise ValueError(
            f"{shown} is of a model that was saved without a schema. Pass another path, result.schema, or "
            "dt.FrameSchema.of(frame) of the frame that the model was fitted on."
        )
    if not _is_schema(document):
        raise ValueError(f"{shown} holds no schema. {ADVICE}")
    return FrameSchema.from_json(document)


def only_categories(schema: FrameSchema) -> FrameSchema:
    """Return a schema of the columns of categories alone, which further training of a model has to keep."""
    columns, targets = (
        tuple(one for one in several if isinstance(one, CategoryColumn)) for several in (schema.columns, schema.targets)
    )
    return FrameSchema(columns=columns, targets=targets)


def schema_of(what: str, frame: Any, features: Any, targets: Sequence[Any]) -> FrameSchema:
    """Describe a frame of Dask or pandas, which errors call ``what``; see :meth:`FrameSchema.of`."""
    dtypes = meta_of(frame).dtypes
    structure = structure_in(what, frame, features, targets)
    names = list(dict.fromkeys(names_in(structure)))
    return FrameSchema(
        columns=tuple(column_for(what, name, dtypes[name]) for name in names),
        targets=tuple(column_for(what, name, dtypes[name]) for name in targets),
        features=structure,
    )


def structure_in(what: str, frame: Any, features: Any, others: Sequence[Any]) -> Any:
    """Return how columns of a frame make the features, with all names; where it is None they are all but ``others``.

    Raises
    ------
    ValueError
        The frame has no such column.
    """
    known = list(frame.columns)
    named = [*names_in(features), *others]
    structure = _filled(features, [name for name in known if name not in named])
    resolved(what, known, [[name] for name in dict.fromkeys([*names_in(structure), *others])])  # says what there is not
    return structure


def structure_of(x: Any) -> Any:
    """Return how one frame or column makes the features; None of anything else."""
    meta = meta_of(x)
    if not hasattr(meta, "iloc"):
        return None
    return list(meta.columns) if is_frame(meta) else meta.name


def names_in(structure: Any) -> Iterator[Any]:
    """Go through the names in a structure of them, in order."""
    if structure is None:
        return
    if is_name(structure):
        yield structure
        return
    for below in structure.values() if isinstance(structure, Mapping) else structure:
        yield from names_in(below)


def _filled(structure: Any, left: list[Any]) -> Any:
    """Put the names of all other columns where a structure has None."""
    if isinstance(structure, Mapping):
        return {name: _filled(below, left) for name, below in structure.items()}
    if structure is None:
        return left
    return structure if is_name(structure) else list(structure)


def _structure_to_json(structure: Any) -> Any:
    if structure is None:
        return None
    if isinstance(structure, Mapping):
        return {"inputs": {name: _structure_to_json(below) for name, below in structure.items()}}
    if is_name(structure):
        return {"name": value_to_json(structure)}
    return {"names": list(map(value_to_json, structure))}


def _structure_from_json(structure: Any) -> Any:
    if structure is None:
        return None
    if "inputs" in structure:
        return {name: _structure_from_json(below) for name, below in structure["inputs"].items()}
    return value_from_json(structure["name"]) if "name" in structure else list(map(value_from_json, structure["names"]))
