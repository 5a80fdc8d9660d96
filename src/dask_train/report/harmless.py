"""Text of others as a terminal may show it: control characters are made visible instead of acting on it."""

from __future__ import annotations

import re

from dask_train.masking import masked

# C0 and C1 control characters, DEL, and what turns the direction of writing round (https://www.unicode.org/reports/tr9/).
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """Mask secrets, and write each control character but tabs and line ends as its code, such as ``\\x1b``."""
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), masked(text))
