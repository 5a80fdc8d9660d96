"""What a run was asked to do, as texts for other clients that watch and compare runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from dask_train.masking import masked_value

# The scheduler keeps the settings of its last runs, so they are bounded.
MOST_SETTINGS, MOST_CHARACTERS = 200, 200
# Where an object lies differs from run to run, and says nothing.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def setting_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Return settings by name as texts without secrets; the first ones, each cut to a length.

    Parameters
    ----------
    params
        Values by name, of any type. A value whose text cannot be made is left out.
    """
    texts: dict[str, str] = {}
    for name, value in list(masked_value(params).items())[:MOST_SETTINGS]:
        with suppress(Exception):  # an object of the user's may have no text, and it is only shown
            text = _text(value)
            texts[str(name)[:MOST_CHARACTERS]] = str(masked_value(text))[:MOST_CHARACTERS]
    return texts


def _text(value: Any) -> str:
    if isinstance(value, partial):
        arguments = [*map(_text, value.args), *(f"{name}={_text(each)}" for name, each in value.keywords.items())]
        return f"{_text(value.func)}({', '.join(arguments)})"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return str(value.__name__)
    return _ADDRESS.sub("", str(value))
