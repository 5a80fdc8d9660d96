"""Places that fsspec opens: what logs in is checked at the call, and errors are told without it."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path
from typing import Any

import fsspec
import pytest

from dask_train import stores
from dask_train.extras import MissingPackageError
from dask_train.stores import checked_options, named_place, open_store, place_anywhere, reaching, trouble_of

OPTIONS = {"key": "user-1234"}
URL = "memory://user:hidden-1234@there?token=hidden-5678"


class StoreError(Exception):
    """Such as the packages of stores raise, which are of many kinds."""

    def __init__(self, text: str, **told: Any) -> None:
        super().__init__(text)
        vars(self).update(told)


def of_s3(code: str) -> Exception:
    error = OSError(errno.EINVAL, "Bad Request")
    error.__cause__ = StoreError("it failed", response={"Error": {"Code": code}})
    return error


REFUSED = [
    PermissionError("The provided token has expired."),
    of_s3("ExpiredToken"),
    of_s3("403"),
    StoreError("Invalid Credentials, 401", code=401),  # gcsfs
    OSError("Forbidden: http://there"),
    StoreError("AuthenticationFailed", status_code=403),  # Azure
    type("NoCredentialsError", (Exception,), {})("Unable to locate credentials"),
]
BUSY = [of_s3("SlowDown"), of_s3("503"), StoreError("busy", code="503"), StoreError("ServerBusy", status_code=503)]


@pytest.mark.parametrize("make", [named_place, place_anywhere, open_store, lambda path: checked_options(None, x=path)])
@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket", "zip://*.jpg::s3://bucket/pictures.zip"])
def test_what_a_path_has_made_of_a_url_is_refused(make: Any, url: str) -> None:
    with pytest.raises(ValueError, match=r"is a URL of which a Path has kept one slash.* Pass the URL as str\.") as why:
        make(Path(url))
    assert str(Path(url)) in str(why.value)


def test_a_url_that_a_path_has_changed_is_masked() -> None:
    with pytest.raises(ValueError, match="is a URL of which a Path has kept") as why:
        named_place(Path(URL))
    assert "hidden" not in str(why.value)


def test_places_are_named_from_the_users_folder_and_from_the_root(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert (named_place("~/run"), named_place("run"), named_place(Path("C:/run"))) == ("/home/me/run", "run", "C:/run")
    assert place_anywhere(Path("~/run")) == "/home/me/run"
    assert place_anywhere("run") == f"{tmp_path}/run"
    for url in ("s3://bucket/~", "sqlite:///runs.db", "zip://*::pictures.zip"):
        assert named_place(url) == place_anywhere(url) == url


@pytest.mark.parametrize("error", REFUSED, ids=str)
def test_refused_credentials_are_told(error: Exception) -> None:
    assert "have expired" in trouble_of(error, "s3://there").cause


@pytest.mark.parametrize("error", BUSY, ids=repr)
def test_a_store_that_stays_busy_is_told(error: Exception) -> None:
    assert "The store is busy" in trouble_of(error, "s3://there").cause


def test_other_errors_have_no_cause_and_local_files_no_credentials() -> None:
    assert trouble_of(StoreError("no", code=404), "s3://there").cause == ""
    assert trouble_of(PermissionError("no"), "/there").cause == ""
    full = trouble_of(OSError(errno.ENOSPC, "full"), "/there")
    assert full.why == "no space is left there (OSError: [Errno 28] full)"


def test_values_of_options_are_shown_neither_in_the_text_nor_in_its_causes() -> None:
    error = of_s3("user-1234 is unknown")
    error.__cause__.args = ("user-1234 is unknown",)
    told = trouble_of(OSError("of user-1234"), "s3://there", OPTIONS)
    assert told.why == "OSError: of ***"
    trouble_of(error, "s3://there", OPTIONS)
    assert error.__cause__.args == ("*** is unknown",)


def test_options_are_for_urls_of_one_store() -> None:
    assert checked_options(None, path="/there") is None
    assert checked_options(OPTIONS, path="s3://there", model="/here", schema=object()) == OPTIONS
    assert checked_options(OPTIONS, path="s3://there", model="s3a://there") == OPTIONS
    with pytest.raises(TypeError, match="storage_options is a str"):
        checked_options("user-1234", path="s3://there")
    with pytest.raises(ValueError, match="path is the local path '/there'"):
        checked_options(OPTIONS, path="/there")
    with pytest.raises(ValueError, match="no URL is passed"):
        checked_options(OPTIONS, model=object())
    with pytest.raises(ValueError, match=r"log in to one store, and path is in s3:// and model is in gs://"):
        checked_options(OPTIONS, path="s3://there", model="gs://there")


def test_a_local_path_is_opened_without_options(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda place, **options: (given.append(options), place))
    assert open_store("/there", OPTIONS)[1] == "/there"
    open_store("memory://there", OPTIONS)
    assert given == [{}, OPTIONS]


def test_a_missing_package_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stores._PACKAGES, "gs", ("not_installed_at_all", "gcs"))
    with pytest.raises(MissingPackageError, match=r"Opening gs://there needs .* pip install '\.\[gcs\]'"):
        open_store("gs://there")


def test_errors_of_stores_become_errors_of_the_argument_and_those_of_files_stay() -> None:
    told = r"path='memory://there' can't be reached: StoreError: of \*\*\*\..*refused"
    with pytest.raises(ValueError, match=told), reaching("path", "memory://there", OPTIONS):
        raise StoreError("of user-1234", code=403)
    with pytest.raises(PermissionError), reaching("path", "/there"):
        raise PermissionError


class QuotingError(Exception):
    """As aiohttp's, whose text is not made of its arguments."""

    def __str__(self) -> str:
        return f"404 of {URL}"


def test_secrets_are_masked_in_urls_and_in_what_packages_quote() -> None:
    message = (
        r"^path='memory://\*\*\*@there\?token=\*\*\*' can't be reached: QuotingError: 404 of memory://\*\*\*@there"
    )
    with pytest.raises(ValueError, match=message) as told, reaching("path", URL):
        raise QuotingError
    assert "hidden" not in "".join(traceback.format_exception(told.value))
    with pytest.raises(ValueError, match=r"^bad key \*\*\*$"), reaching("path", "memory://there", OPTIONS):
        raise ValueError(f"bad key {OPTIONS['key']}")
