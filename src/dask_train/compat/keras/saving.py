"""Private parts of Keras' saving walk, which asks each layer for its weights as the ``.keras`` format does."""

from __future__ import annotations

from typing import Any

from keras.src.saving import saving_lib
from keras.src.saving.saving_lib import DiskIOStore, H5IOStore

__all__ = ["DiskIOStore", "H5IOStore", "load_state", "save_state"]


def save_state(model: Any, weights: Any, assets: Any, visited: set[int]) -> None:
    """Put weights of layers in one store, and files of layers in another, but of those whose ``id`` was visited.

    Replaces ``saving_lib._save_state``; ``Model.save`` writes a file. Without it each copy of a model takes one.
    """
    saving_lib._save_state(model, weights, assets, "", visited)


def load_state(
    model: Any, weights: Any, assets: Any, visited: set[int], failed: dict[int, tuple[Any, Exception]]
) -> None:
    """Give layers what :func:`save_state` took of them.

    Replaces ``saving_lib._load_state``.

    Parameters
    ----------
    failed
        Filled with layers, and errors that they raised.
    """
    saving_lib._load_state(model, weights, assets, "", False, visited, set(), failed)
