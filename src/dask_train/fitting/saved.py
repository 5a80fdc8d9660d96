"""A trained model as a file, as a log keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dask_train.fitting.kinds import FIT, kind_of


def saved(model: Any, folder: Path) -> Path:
    """Write a Keras model in Keras' own format, or the ``state_dict`` of a module of torch; the file in the folder."""
    if kind_of(model, FIT) == "torch.nn.Module":
        import torch

        path = folder / "state_dict.pt"
        torch.save(model.state_dict(), path)
        return path
    path = folder / "model.keras"
    model.save(path)
    return path
