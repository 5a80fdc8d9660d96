"""Private parts of MLflow. Made for MLflow 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def add_example(folder: Path, example: Any) -> None:
    """Add an input example to a model that MLflow has saved.

    Replaces ``mlflow.models.utils._save_example``. Without it Keras models have a signature and no example: where
    ``mlflow.keras.save_model`` is given one, it fails for a folder that is not there yet.
    """
    from mlflow.models import Model
    from mlflow.models.utils import _save_example

    saved = Model.load(str(folder))
    _save_example(saved, example, str(folder))
    saved.save(str(folder / "MLmodel"))
