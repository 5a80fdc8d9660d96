"""Passwords, tokens and signatures in text that is read or kept: the one place that knows how they look.

Errors, notices, lines on standard error, cards, reports, the command line, what the scheduler gets for its
dashboard, and what loggers such as MLflow get all go through :func:`masked`. What works with a URL has it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

C = TypeVar("C")

MASK = "***"

# Names whose values are secret, in URLs, connection strings and ``storage_options``. Repetitions have bounds, here and
# below, and begin where a word does: the time for a text is linear in its length, whatever it holds.
_WORDS = (
    r"(?<![\w.\-])[\w.\-]{0,40}?(?:passw(?:or)?d|passphrase|pwd|secret|signature|credentials?|api[_-]?key|"
    r"(?:access|secret|account|private)[_-]?key(?:[_-]?id)?|"
    r"(?:sas|session|security|auth|access|refresh|id|bearer)[_-]?token|connection[_-]?string)"
)
# Also secret as parameters of a URL, where they are nothing else: elsewhere a score may be called "token".
_PARAMETER = rf"(?:{_WORDS}|sig|token|[\w.\-]{{1,40}}[_-]token|key|auth|pass|sas|AWSAccessKeyId|GoogleAccessId)"
_VALUE = r"[^\s&;#'\"<>)\]},]+"

_IN_ADDRESSES = (
    # scheme://user:password@host. A password may hold what it should not, such as "/" and "@"; a port is no password.
    (
        r"(?P<before>(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]*://)[^\s/?#@:]*:(?!\d+(?:[/?#]|\s|$))[^\s@]{1,512}@(?:[^\s/?#@]*@)*",
        "@",
    ),
    # http://token@host: elsewhere the name of a user, or a container (abfs://), is no token.
    (r"(?P<before>\bhttps?://)[^\s/?#@]{1,512}@", "@"),
)
_BY_NAME = (
    (rf"(?P<before>(?:[?&;]|&amp;){_PARAMETER}=){_VALUE}", ""),
    (rf"(?P<before>{_WORDS}=)(?!None\b|True\b|False\b){_VALUE}", ""),
    # {"token": "..."}, secret='...'
    (rf"(?P<before>(?:{_WORDS}|\b(?:token|sas))['\"]?\s?[:=]\s?b?(?P<v>['\"]))(?:(?!(?P=v)).)+", ""),
    (r"(?P<before>\bauthorization['\"]?\s?[:=]\s?['\"]?(?:(?:bearer|basic|token)\s)?)[^\s'\",}]+", ""),
)
# Most text has none of these, and no secret.
_NAMES = re.compile(
    r"passw|passphrase|pwd|secret|signature|credential|key|token|connection.?string|auth|[?&;](?:sig|pass)|sas", re.I
)


def _compiled(rules: Iterable[tuple[str, str]]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern, re.IGNORECASE), rf"\g<before>{MASK}{after}") for pattern, after in rules]


_ADDRESS_RULES, _NAME_RULES = _compiled(_IN_ADDRESSES), _compiled(_BY_NAME)


def encodable(text: str) -> str:
    """Return the text with each lone surrogate as its code, such as ``\\udcff``.

    ``os.fsdecode`` makes them of names of files that are no UTF-8; no encoding, message or file can hold them.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def masked(text: str) -> str:
    """Return the text with each secret that it shows replaced by ``***``; it is encodable, too.

    Parameters
    ----------
    text
        Any text, with URLs or parts of them anywhere in it.
    """
    text = encodable(text)
    rules = [*(_ADDRESS_RULES if "://" in text else ()), *(_NAME_RULES if _NAMES.search(text) else ())]
    for pattern, shown in rules:
        text = pattern.sub(shown, text)
    return text


def without_values(text: str, options: Mapping[str, Any] | None) -> str:
    """Return the text with each text that ``storage_options`` hold replaced by ``***``, whatever its name is.

    Parameters
    ----------
    text
        Such as an error's.
    options
        May hold further dicts. Texts of fewer than 4 characters stay.
    """
    for each in (options or {}).values():
        if isinstance(each, Mapping):
            text = without_values(text, each)
        elif isinstance(each, str) and len(each) >= 4 and "://" not in each:
            text = text.replace(each, MASK)
    return text


def masked_value(value: Any) -> Any:
    """Return a value with the texts that it holds masked, in dicts, lists and tuples too; other values as they are."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {name: MASK if _is_secret(name, each) else masked_value(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(masked_value(each) for each in value)
    return value


_SECRET_NAME = re.compile(rf"{_WORDS}|token|sas", re.I)


def _is_secret(name: Any, value: Any) -> bool:
    return isinstance(name, str) and isinstance(value, str) and bool(value) and bool(_SECRET_NAME.fullmatch(name))


def mask_error(error: BaseException, options: Mapping[str, Any] | None = None) -> None:
    """Mask the texts of an error in place, its notes, and those of its causes.

    Parameters
    ----------
    error
        Any.
    options
        ``storage_options``, whose values are masked, too.
    """

    def shown(text: Any) -> Any:
        return masked(without_values(text, options)) if isinstance(text, str) else text

    for each in _chain(error):
        if any(shown(arg) != arg for arg in each.args if isinstance(arg, str)):
            each.args = tuple(map(shown, each.args))
        if isinstance(each, OSError):
            for name in ("filename", "filename2", "strerror"):
                if (text := getattr(each, name)) != shown(text):
                    setattr(each, name, shown(text))
        if notes := getattr(each, "__notes__", None):
            each.__notes__ = list(map(shown, notes))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            left += [
                each.__cause__,
                each.__context__,
                *(each.exceptions if isinstance(each, BaseExceptionGroup) else ()),
            ]


def shows_no_secrets(kind: type[C]) -> type[C]:
    """Mask what a class's ``repr`` shows."""
    own = kind.__repr__
    kind.__repr__ = lambda self: masked(own(self))  # type: ignore[method-assign]
    return kind
