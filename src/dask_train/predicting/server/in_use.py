"""Models of this process, used by one thread at a time: those that have a layer or module in common, too.

A torch module is in the mode of prediction for all threads until it is put back, and may hold what another holds. All
parts of a model are taken at once, or none while another has one of them, so no two threads wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dask_train.compat.keras.layers import inner_layers


class Use:
    """A model while it is used.

    Attributes
    ----------
    within
        That of the model whose code uses this one, perhaps in one of Dask's threads; None if there is none.
    is_over
        Whether it has ended.
    """

    def __init__(self, within: Use | None) -> None:
        self.within, self.is_over = within, False

    def is_within(self, other: Use) -> bool:
        """Return whether it is part of another one."""
        use: Use | None = self
        while use is not None and use is not other:
            use = use.within
        return use is other


class _InThread(threading.local):
    use: Use | None = None


_IN_THREAD = _InThread()
_CHANGED = threading.Condition()
_USES: dict[int, list[Use]] = {}  # by the id of a part, while it is in use: each within the one before


def current() -> Use | None:
    """Return the use whose code this thread runs."""
    return _IN_THREAD.use


@contextmanager
def in_use(model: Any, made_in: Use | None = None) -> Iterator[None]:
    """Use a model alone: wait until no other thread uses any part of it.

    Parameters
    ----------
    model
        A torch module or a Keras model.
    made_in
        The use whose code asked for predictions, which waits for them, unless it is over.
    """
    before = _IN_THREAD.use
    within = before or (None if made_in is None or made_in.is_over else made_in)
    use, parts = Use(within), parts_of(model)
    with _CHANGED:
        _CHANGED.wait_for(lambda: all(part not in _USES or use.is_within(_USES[part][-1]) for part in parts))
        for part in parts:
            _USES.setdefault(part, []).append(use)
    _IN_THREAD.use = use
    try:
        yield
    finally:
        _IN_THREAD.use = before
        with _CHANGED:
            use.is_over = True
            for part in parts:
                _USES[part].remove(use)
                if not _USES[part]:
                    del _USES[part]
            _CHANGED.notify_all()


def parts_of(model: Any) -> dict[int, Any]:
    """Return a model, and all layers of Keras and modules of torch in it, by their ids."""
    found: dict[int, Any] = {}
    left = [model]
    while left:
        part = left.pop()
        if id(part) not in found:
            found[id(part)] = part
            left += _parts_below(part)
    return found


def _parts_below(part: Any) -> list[Any]:
    kinds = {kind.__module__.partition(".")[0] for kind in type(part).__mro__}
    of_keras = inner_layers(part) if "keras" in kinds else []
    return [*of_keras, *(part.children() if "torch" in kinds else [])]  # layers of Keras on torch are modules, too
