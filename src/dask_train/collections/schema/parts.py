"""Delayed frames made as a model knows them, in the tasks that have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask_train.collections.frames import in_order
from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema.frame_schema import FrameSchema, only_categories


@dataclass(frozen=True)
class DelayedFrames:
    """How the tasks of delayed frames make them as a model knows them; dicts of columns, too.

    Parameters
    ----------
    like
        Makes the conformer of what a model knows, which only the tasks have.
    what, features, left_out, targets
        As of :meth:`Conformer.parts <dask_train.collections.schema.conformer.Conformer.parts>`.
    """

    like: Callable[[FrameSchema], Any]
    what: str
    features: Any
    left_out: Sequence[Any]
    targets: Sequence[Any]

    def conformed(self, known: FrameSchema, part: Any) -> Any:
        """Return one partition as the model knows it."""
        return self._made_by(self.like(known), part)

    def shown(self, known: FrameSchema, part: Any) -> FrameSchema:
        """Return the categories and order of columns that a partition shows, once it is made as the model knows it."""
        conformer, names = self.like(known), known.names
        self._made_by(conformer, part)
        if self.features is None and names is None and is_frame(part):
            names = [name for name in part.columns if name not in self.left_out]
        return replace(only_categories(conformer.schema(None) or known), inputs=names)

    def _made_by(self, conformer: Any, part: Any) -> Any:
        if isinstance(part, Mapping):
            return conformer.columns(self.what, part, self.features, self.left_out, self.targets)
        if not is_frame(part):
            return part
        part, names = conformer.named(self.what, part, self.features, self.left_out)
        if self.features is None and isinstance(names, list):  # then the order of a frame is that of its features
            part = in_order(part, list(dict.fromkeys([*names, *self.left_out])))
        return conformer.targets(self.what, part, self.targets)
