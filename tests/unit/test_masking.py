"""Secrets and lone surrogates in text that somebody reads."""

from __future__ import annotations

import time

import pytest

from dask_train.masking import encodable, mask_error, masked, masked_value, shows_no_secrets, without_values


@pytest.mark.parametrize(
    "text",
    [
        "http://user:hunter2@127.0.0.1:9/x",
        "see http://me:hunter2@h/x, and http://you:hunter2@[::1]:80/y now",
        "postgresql+psycopg://u:a/hunter2@db:5432/x",
        "http://u:hunter2@b@h/x",
        "redis://:hunter2@h:6379/0",
        "simplecache::s3://key:hunter2@bucket/x",
        "https://hunter2@github.com/x",
        "https://acc.blob.example/x?sv=1&sig=hunter2&se=2",
        "s3://b/x?X-Amz-Signature=hunter2",
        "https://h/x?a=1&amp;X-Amz-Security-Token=hunter2",
        "gs://b/x?X-Goog-Credential=hunter2",
        "Max retries exceeded with url: /api?token=hunter2",
        "https://h/x?access_key=hunter2&secret_key=hunter2",
        "{'anon': False, 'secret': 'hunter2'}",
        '{"token": "hunter2"}',
        "storage_options={'account_key': 'hunter2'}",
        "host=h password=hunter2 user=me",
        "AccountName=a;AccountKey=hunter2==;EndpointSuffix=x",
        "{'Authorization': 'Bearer hunter2'}",
        "Authorization: Basic hunter2",
    ],
)
def test_no_secret_is_shown(text):
    shown = masked(text)
    assert "hunter2" not in shown
    assert "***" in shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "tcp://10.0.0.1:8786 and me@example.org",
        "http://h:80/a@b",
        "abfs://container@account.dfs/x",
        "hdfs://me@namenode/x",
        "s3://bucket/a=1/key=2/x.parquet",
        "loss_per_token=0.5, token=0.3, tokenizer='bert'",
        "pass password=None",
        "Bearer of news",
    ],
)
def test_what_is_no_secret_stays(text):
    assert masked(text) == text


@pytest.mark.parametrize("part", ["://a:b", "token.token-", "secret secret= ", "'token': '", "?key=&", "a", "://u:a"])
def test_long_text_takes_no_time_to_speak_of(part):
    began = time.process_time()
    masked(part * (200_000 // len(part)) + "=")
    assert time.process_time() - began < 30, "a second, where the time is not that of the square of the length"


def test_a_lone_surrogate_is_written_as_its_code():
    assert encodable("a\udcff.npy ä") == masked("a\udcff.npy ä") == "a\\udcff.npy ä"


def test_values_that_hold_texts():
    url = "http://u:hunter2@h"
    found = masked_value({"url": url, "list": [url, 1], "tuple": (url,), "options": {"secret": "hunter2", "token": 3}})
    assert "hunter2" not in repr(found)
    assert found["list"][1] == 1
    assert found["options"] == {"secret": "***", "token": 3}


def test_errors_with_their_causes_and_notes():
    cause = FileNotFoundError(2, "no file at http://u:hunter2@h", "http://u:hunter2@h/x")
    error = ValueError("http://u:hunter2@h", 3)
    error.add_note("http://u:hunter2@h")
    error.__cause__, cause.__context__ = cause, error  # they may go round
    mask_error(error)
    for each in (str(error), str(cause), *error.__notes__):
        assert "hunter2" not in each
        assert "http://***@h" in each
    assert error.args[1] == 3


def test_a_repr_without_secrets():
    @shows_no_secrets
    class Place:
        def __repr__(self):
            return "Place('http://u:hunter2@h')"

    assert repr(Place()) == "Place('http://***@h')"


def test_values_of_storage_options_whatever_they_are_called():
    options = {"user": "hunter2", "anon": False, "of": {"a": "hunter3"}, "b": "abc", "endpoint": "http://there"}
    assert without_values("hunter2, hunter3, abc, http://there", options) == "***, ***, abc, http://there"
    assert without_values("hunter2", None) == "hunter2"
