"""What can be refused before a run starts."""

from __future__ import annotations

import asyncio
import json
import os.path
import re
import threading
import types
from typing import Any

import numpy as np
import pytest

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.driver.preflight import check_checkpoints, check_modules, how_to_send, modules_of, packed, pickled
from dask_train.errors import LaunchError
from dask_train.worker.modules import missing_modules


def by_value(source: str, **names: Any) -> Any:
    """A function as it is in a notebook; ``names`` are what it has around it."""
    module = types.ModuleType("__main__")
    vars(module).update(names)
    exec(source, vars(module))  # noqa: S102 - as a notebook does
    return vars(module)["fn"]


def modules(function: Any) -> set[str]:
    """What it needs besides cloudpickle, which Dask has everywhere."""
    return {
        name for name in modules_of(pickled("worker", function)) if not name.startswith(("cloudpickle", "builtins"))
    }


def test_a_function_by_reference():
    assert modules(json.loads) == {"json"}
    assert modules(os.path.join) == {"posixpath"}


def test_a_function_by_value_needs_nothing():
    assert modules(by_value("def fn(session): return session.rank")) == set()


def test_modules_that_a_function_by_value_uses():
    source = "def fn(session): return np.zeros(json.loads('1')), np.ones(1)"
    assert modules(by_value(source, np=np, json=json)) == {"numpy", "json"}


def test_modules_of_lambdas_in_closures():
    source = "def make():\n inner = lambda: np.zeros(1)\n return lambda session: (inner(), json.loads)\nfn = make()"
    assert modules(by_value(source, np=np, json=json)) == {"numpy", "json"}


def test_names_that_are_written_once():
    """The second use of a module's name, of a function or of the import itself is only a number in the pickle."""
    source = "def fn(session): return a(1), b(2), os.sep, json.tool"
    found = modules(by_value(source, a=json.loads, b=json.dumps, os=os, json=json))
    assert found == {"json", "os"}


def test_modules_of_what_is_pickled_within():
    inner = pickled("model", {"model>Layer": json.loads, "weights": b"\x80\x05 no pickle."})
    held = types.SimpleNamespace(callbacks=pickled("callbacks", [inner]), junk=b"\x80\x04.")
    assert modules(held) == {"json", "types"}


def test_strings_are_no_modules():
    source = "def fn(session): return 'numpy', 'subimport', NAME"
    assert modules(by_value(source, NAME="cloudpickle.cloudpickle")) == set()


def test_a_function_that_does_not_travel():
    source = "def fn(session): LOCK.acquire()"
    text = r"function of role 'ps' can't be pickled: TypeError: .*lock.*Make that where it is used"
    with pytest.raises(TypeError, match=text):
        pickled("function of role 'ps'", by_value(source, LOCK=threading.Lock()))


def test_which_modules_are_missing():
    assert missing_modules(["json", "no_such_module", "numpy.linalg", "no_such.part", ""]) == [
        "no_such_module",
        "no_such.part",
        "",
    ]


class Peer:
    """Dask workers that miss some modules."""

    def __init__(self, **missing: list[str]) -> None:
        self.missing = missing
        self.asked: list[Any] = []

    async def workers(self) -> dict[str, Any]:
        return dict.fromkeys(self.missing)

    async def on_workers(self, probe: Any, needed: list[str], *, workers: Any, on_error: str) -> dict[str, list[str]]:
        self.asked.append((needed, workers))
        return self.missing


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("json.tool", r"Install 'json' on every Dask worker, as it is installed here\."),
        ("no_such", r"Install it on every Dask worker, or send .* client\.upload_file\('no_such\.py'\)\."),
        ("beside", r"client\.upload_file\('beside\.py'\)\."),
        ("folder.part", r"the folder '\S+/folder', zipped, with client\.upload_file\('folder\.zip'\)\."),
    ],
)
def test_what_to_do_about_a_module(module: str, advice: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "beside.py").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert re.search(advice, how_to_send(module))


def test_a_module_that_a_dask_worker_lacks():
    peer = Peer(a=[], b=["json.tool"])
    with pytest.raises(LaunchError, match=r"Dask worker b has no module 'json.tool'.*Install 'json' on every"):
        asyncio.run(check_modules(peer, {"worker": packed("worker", json.loads)}, {"a": 1}))
    assert peer.asked == [(["json"], ["a"])]


def test_functions_that_need_nothing_are_not_asked_about():
    peer = Peer()
    function = by_value("def fn(session): return 1")
    functions = {"worker": packed("worker", function)}
    needed = {name for each in functions.values() for name in modules_of(each.pickle)} - {"__main__"}
    asyncio.run(check_modules(peer, functions, None))
    assert peer.asked == ([(sorted(needed), None)] if needed else [])


class Hosts:
    """Dask workers that see some of the client's folders."""

    def __init__(self, *sees: bool) -> None:
        self.sees = {str(number): does for number, does in enumerate(sees)}

    async def workers(self) -> dict[str, Any]:
        return dict.fromkeys(self.sees)

    async def on_workers(self, probe: Any, place: Any, *, workers: Any, on_error: str) -> dict[str, str]:
        asked = self.sees if workers is None else workers
        return {address: await probe(place) if self.sees[address] else "It is not mounted." for address in asked}


@pytest.mark.parametrize("place", ["nosuch://bucket", "/proc/kept", "{}/file", "{}/file/kept"])
def test_no_checkpoints_where_none_can_be_kept(tmp_path, place):
    (tmp_path / "file").touch()
    url = place.format(tmp_path)
    with pytest.raises(
        ValueError, match=rf"checkpoint is '{url}', where no Dask worker can .*On 0: .*can't be written"
    ):
        asyncio.run(check_checkpoints(Hosts(True, True), CheckpointPlace(url=url), None))


def test_checkpoints_where_some_dask_worker_can_keep_them(tmp_path):
    place = CheckpointPlace(url=str(tmp_path / "kept"))
    asyncio.run(check_checkpoints(Hosts(False, True), place, ["0", "1"]))
    assert not list((tmp_path / "kept").iterdir()), "nothing is left there"
    with pytest.raises(ValueError, match=r"On 0: It is not mounted\. Pass a folder"):
        asyncio.run(check_checkpoints(Hosts(False, False), place, None))
    asyncio.run(check_checkpoints(Hosts(), CheckpointPlace(url="nosuch://bucket"), None))  # they have yet to come
    asyncio.run(check_checkpoints(Hosts(), None, None))


def test_nobody_is_asked_at_an_address_without_dask_worker(tmp_path):
    place = CheckpointPlace(url=str(tmp_path))
    with pytest.raises(ValueError, match=r"On 1: It is not mounted"):
        asyncio.run(check_checkpoints(Hosts(True, False), place, ["gone", "1"]))
    asyncio.run(check_checkpoints(Hosts(False), place, ["gone"]))  # placement refuses it
