"""The way to a daemon, where there is none: what it is called, and what is said of it."""

from __future__ import annotations

import socket
import sys

import pytest

from dask_train.errors import DataError
from dask_train.extras import MissingPackageError
from dask_train.shared_data.vineyard.daemon import SOCKET_VARIABLE, connected, id_in, import_vineyard


class ObjectID:
    """As Vineyard's: its text has quotes."""

    def __repr__(self) -> str:
        return '"o0001f2c47d1c0000"'


@pytest.mark.parametrize("given", [ObjectID(), "o0001f2c47d1c0000", 0x0001F2C47D1C0000])
def test_an_id_is_known_in_each_of_its_forms(given):
    assert id_in(given) == "o0001f2c47d1c0000"


@pytest.mark.parametrize("name", ["mnist", "o1", "o0001f2c47d1c000g", "O0001f2c47d1c0000"])
def test_other_text_is_a_name(name):
    assert id_in(name) is None


@pytest.mark.parametrize("given", [None, True, b"o0001f2c47d1c0000"])
def test_anything_else_is_refused(given):
    with pytest.raises(TypeError, match="ObjectID"):
        id_in(given)


def test_a_socket_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no Vineyard daemon answers at .*v.sock") as caught:
        connected(str(tmp_path / "v.sock"))
    assert "vineyardd" in caught.value.change


def test_a_daemon_that_has_ended_is_named(tmp_path, monkeypatch):
    path = str(tmp_path / "v.sock")
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(path)
    monkeypatch.setenv(SOCKET_VARIABLE, path)
    with pytest.raises(DataError, match=r"no Vineyard daemon answers at .*v.sock.*refused"):
        connected(None)


def test_a_socket_of_another_user_is_told_from_one_that_is_not_there(monkeypatch):
    class Refusing(socket.socket):
        def connect(self, address):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(DataError, match=r"may not be opened.*another user's"):
        connected("/run/theirs.sock")


def test_what_is_not_installed_is_told_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "vineyard", None)
    with pytest.raises(MissingPackageError, match=r"\[vineyard\].*setuptools"):
        import_vineyard()
