"""How numbers, and text of others, are written for people, the same on the live line and on the page.

Owns wording only; what the numbers mean is up to the caller.
"""

from __future__ import annotations

import re

from dask_train.masking import masked

# C0 and C1 control characters, DEL, and what turns the direction of writing round (https://www.unicode.org/reports/tr9/).
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def count_text(count: float) -> str:
    """Write a count with thousands separators, such as ``"1,100,000"``."""
    return f"{count:,.0f}"


def brief_count_text(count: float) -> str:
    """Write a count in few letters, rounded, such as ``"1.1M"``, ``"289k"`` or ``"950"``."""
    if count < 999.5:
        return f"{count:.0f}"
    if count < 999_500:
        return f"{count / 1e3:.3g}k"
    return f"{count / 1e6:.3g}M" if count < 999_500_000 else f"{count / 1e6:,.0f}M"


def score_text(score: float) -> str:
    """Write a loss or another score to four significant digits, such as ``"0.0912"``."""
    return f"{score:.4g}"


def seconds_text(seconds: float) -> str:
    """Write a duration with as much precision as a person can use.

    Parameters
    ----------
    seconds
        The duration in seconds, not negative.

    Returns
    -------
    str
        ``"0.42 s"``, ``"12.3 s"``, ``"4 min 05 s"`` or ``"1 h 02 min"``.
    """
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def harmless(text: str) -> str:
    """Mask secrets, and write each control character but tabs and line ends as its code, such as ``\\x1b``."""
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), masked(text))
