"""Paths and URLs that fsspec opens, what logs in to them, and why one can't be read or written, in words.

Retries are left to the packages of the stores: each repeats what a busy server has refused, with growing pauses, a few
times.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from dask_train.extras import MissingPackageError, check_installed, install_command
from dask_train.masking import mask_error, masked, without_values

# The package that opens a store, and the extra that has it, by what its URLs begin with.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), ("s3fs", "s3")),
    **dict.fromkeys(("gs", "gcs"), ("gcsfs", "gcs")),
    **dict.fromkeys(("abfs", "abfss", "az"), ("adlfs", "azure")),
}
# As HTTP has them, and as S3's answers call them.
_REFUSED = {401, 403, "AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"}
_BUSY = {408, 429, 500, 502, 503, 504, "SlowDown", "ServiceUnavailable", "RequestTimeout", "InternalError"}
# What a Path makes of a URL, such as "s3:/bucket/run"; a drive of Windows has one letter.
_OF_PATH = re.compile(r"[A-Za-z][\w+.-]+:/[^/]")
_REACHED = "Name a place that this process and all Dask workers reach."


class Trouble(NamedTuple):
    """Why a place can't be read or written.

    Attributes
    ----------
    why
        The text of the error, without the values of ``storage_options``.
    cause
        What is behind it, as sentences; empty if that is not known.
    change
        What to do about it.
    """

    why: str
    cause: str
    change: str


def is_url(place: Any) -> bool:
    """Return whether a place is a URL, such as ``s3://bucket/run``, and not a local path."""
    return isinstance(place, str) and "://" in place


def named_place(place: str | os.PathLike[str]) -> str:
    """Return a path or URL as text, with the user's own folder for ``~``.

    Raises
    ------
    ValueError
        It is what a Path has made of a URL.
    """
    text = os.fspath(place)
    if _OF_PATH.match(text):
        shown = masked(text.replace(":/", "://", 1)).replace("://", ":/", 1)
        raise ValueError(
            f"{shown!r} is a URL of which a Path has kept one slash, so it names a local folder. Pass the URL as str."
        )
    return os.path.expanduser(text)


def place_anywhere(place: str | os.PathLike[str]) -> str:
    """Return a path or URL as :func:`named_place` does, a path from the root: others may have another working folder.

    Raises
    ------
    ValueError
        It is what a Path has made of a URL.
    """
    text = named_place(place)
    return text if "://" in text or "::" in text else os.path.abspath(text)


def is_local(fs: Any) -> bool:
    """Return whether a file system of fsspec is the one of this host, on which a file can be renamed into place."""
    return "file" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,))


def open_store(place: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Open the file system of a path or URL.

    Parameters
    ----------
    place
        A path or URL.
    options
        ``storage_options``. Default: what the environment of this process says.

    Returns
    -------
    tuple
        A file system of fsspec, and the path there.

    Raises
    ------
    MissingPackageError
        The package of the store is not installed.
    ValueError
        It is what a Path has made of a URL.
    """
    import fsspec.core  # type: ignore[import-untyped]  # a third of a role's start, and few need it

    text = named_place(place)
    package, extra = _PACKAGES.get(text.partition("://")[0], ("", "")) if is_url(text) else ("", "")
    if package:
        check_installed(f"Opening {masked(text)}", package, install_command(extra))
    url_options = options if options and is_url(text) else {}
    system, path = fsspec.core.url_to_fs(text, **url_options)
    return system, path


@contextmanager
def reaching(
    what: str, place: str | os.PathLike[str], options: Mapping[str, Any] | None = None
) -> Iterator[tuple[Any, str]]:
    """Open the file system of a path or URL, and say in words why a store can't be reached meanwhile.

    Parameters
    ----------
    what
        The name of the argument that has the place.
    place, options
        As of :func:`open_store`.

    Raises
    ------
    ValueError
        A store can't be read or written. Errors of local files stay as they are.
    """
    try:
        yield open_store(place, options)
    except (TypeError, ValueError, MissingPackageError) as error:
        mask_error(error, options)  # the packages of stores quote what they were given
        raise
    except Exception as error:
        text = os.fspath(place)
        if not is_url(text):
            raise
        trouble = trouble_of(error, text, options)
        message = " ".join(filter(None, [f"{trouble.why}.", trouble.cause, trouble.change]))
        # An error of aiohttp, or of another package, that makes its text of more than its arguments, can't be masked.
        shows = any(masked(without_values(str(each), options)) != str(each) for each in _chain(error))
        raise ValueError(f"{what}={masked(text)!r} can't be reached: {message}") from (None if shows else error)


def checked_options(options: Any, **places: Any) -> dict[str, Any] | None:
    """Check ``storage_options=`` of a call.

    Parameters
    ----------
    options
        As the user gave them.
    **places
        What they may be for, by the names of the arguments; what is no path and no URL is left out.

    Returns
    -------
    dict or None
        None if there are none.

    Raises
    ------
    TypeError
        They are no dict.
    ValueError
        A place is what a Path has made of a URL. Or there are options, and nothing in the call is a URL, or URLs are of
        several stores.
    """
    if not isinstance(options, Mapping | None):
        raise TypeError(
            f"storage_options is a {type(options).__name__}; pass a dict of keywords for the file system of fsspec."
        )
    texts = {name: named_place(each) for name, each in places.items() if isinstance(each, str | os.PathLike)}
    if not options:
        return None
    urls = {name: text for name, text in texts.items() if is_url(text)}
    if not urls:
        listing = " and ".join(f"{name} is the local path {text!r}" for name, text in texts.items())
        raise ValueError(
            f"storage_options are for an object store, and {listing or 'no URL is passed'}. Leave them out."
        )
    stores = {_PACKAGES.get(text.partition("://")[0], (text.partition("://")[0],))[0] for text in urls.values()}
    if len(stores) > 1:
        listing = " and ".join(f"{name} is in {text.partition('://')[0]}://" for name, text in urls.items())
        raise ValueError(
            f"storage_options log in to one store, and {listing}. Set what logs in to the others in the environment of "
            "this process and of the Dask workers, and leave storage_options out."
        )
    return dict(options)


def trouble_of(error: BaseException, place: str, options: Mapping[str, Any] | None = None) -> Trouble:
    """Return what an error of a file system means.

    Parameters
    ----------
    error
        Any that fsspec, or the package of a store, has raised. Its text, and those of its causes, are masked in place.
    place
        The path or URL.
    options
        The ``storage_options`` that it was opened with, which are not shown.
    """
    mask_error(error, options)
    if isinstance(error, MissingPackageError):
        return Trouble(str(error).rstrip("."), "", "Install it here and on every Dask worker.")
    why = masked(without_values(f"{type(error).__name__}: {error}", options))
    chain = list(_chain(error))
    if any(isinstance(each, OSError) and each.errno in (errno.ENOSPC, errno.EDQUOT) for each in chain):
        return Trouble(f"no space is left there ({why})", "", "Make room there, or name another place.")
    if not is_url(place):
        return Trouble(why, "", _REACHED)
    if any(map(_is_refused, chain)):
        return Trouble(
            why,
            "The store has refused the credentials: they are wrong, have expired, or don't allow it.",
            "Pass valid ones in storage_options=, or in the environment of this process and of the Dask workers.",
        )
    if any(_code(each) in _BUSY for each in chain):
        return Trouble(
            why,
            "The store is busy or limits requests; they were repeated, with growing pauses, and refused each time.",
            "Try again later, with fewer Dask workers at a time, or ask for a higher limit.",
        )
    return Trouble(why, "", _REACHED)


def _is_refused(error: BaseException) -> bool:
    if isinstance(error, PermissionError) or _code(error) in _REFUSED:
        return True
    # botocore has NoCredentialsError, Google's package DefaultCredentialsError and RefreshError; gcsfs reports a 403
    # in the text alone.
    kind = type(error).__name__
    return "Credentials" in kind or kind == "RefreshError" or str(error).startswith("Forbidden: ")


def _code(error: BaseException) -> Any:
    """Return the code of a store's answer: botocore's, Azure's, or that of gcsfs; None of other errors."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        error_code = response.get("Error", {}).get("Code")
        return int(error_code) if str(error_code).isdigit() else error_code
    code: Any = getattr(error, "status_code", getattr(error, "code", None))
    return int(code) if str(code).isdigit() else code


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
