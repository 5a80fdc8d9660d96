"""What is set in the environment for a time."""

from __future__ import annotations

import os

import pytest

from dask_train.frameworks.environment import bypass_proxies, environment_restored, names_proxy


def test_all_is_as_it_was_also_after_an_error(monkeypatch):
    for name in ("DT_CHANGED", "DT_GONE"):
        monkeypatch.setenv(name, "before")
    monkeypatch.delenv("DT_NEW", raising=False)
    before = dict(os.environ)

    def fails():
        with environment_restored():
            os.environ |= {"DT_NEW": "x", "DT_CHANGED": ""}
            del os.environ["DT_GONE"]
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("before", "after"), [(None, "10.0.0.1,::1"), ("", "10.0.0.1,::1"), ("a.org,::1", "a.org,::1,10.0.0.1")]
)
def test_hosts_of_the_run_are_reached_without_a_proxy(monkeypatch, before, after):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    if before is not None:
        monkeypatch.setenv("no_proxy", before)
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    with environment_restored():
        bypass_proxies(["10.0.0.1:4000", "[::1]:5000", "10.0.0.1:4001"])
        assert os.environ["no_proxy"] == after
    assert os.environ.get("no_proxy") == before


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "no_proxy", ""])
def test_a_proxy_is_named(monkeypatch, name):
    for other in [other for other in os.environ if other.lower().endswith("_proxy")]:
        monkeypatch.delenv(other)
    if name:
        monkeypatch.setenv(name, "http://proxy:3128")
    assert names_proxy() == (name.lower() in ("http_proxy", "https_proxy"))
