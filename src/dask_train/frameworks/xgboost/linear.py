"""Linear boosters of XGBoost, which do less than those of trees."""

from __future__ import annotations

import json
from typing import Any


def is_linear(booster: Any) -> bool:
    """Return whether a booster of XGBoost is a linear model."""
    settings = json.loads(booster.save_config())
    return bool(settings["learner"]["learner_train_param"]["booster"] == "gblinear")
