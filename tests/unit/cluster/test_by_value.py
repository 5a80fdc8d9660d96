"""Code that travels to where its modules can't be imported."""

from __future__ import annotations

import pickle
import sys
import threading
from types import ModuleType

import cloudpickle
import pytest

from dask_train.cluster.by_value import ByValue

CODE = """
from __future__ import annotations

FACTOR = 3

def triple(value, plus=0):
    return FACTOR * value + plus
"""


@pytest.fixture
def gone(monkeypatch):
    """Makes a module that this process has, and takes it away again."""

    def make(name: str, code: str = CODE) -> ModuleType:
        module = ModuleType(name)
        exec(code, module.__dict__)  # noqa: S102 - a module of this test
        monkeypatch.setitem(sys.modules, name, module)
        return module

    def take_away() -> None:
        for name in [name for name in sys.modules if name.startswith("only_here")]:
            monkeypatch.delitem(sys.modules, name)

    return make, take_away


@pytest.mark.parametrize("zipped", [False, True])
def test_a_function_arrives_without_its_module(gone, zipped):
    make, take_away = gone
    module = make("only_here")
    sent = pickle.dumps(ByValue(module.triple, module, zipped=zipped))
    by_name = pickle.dumps(module.triple)
    take_away()
    assert pickle.loads(sent)(2, plus=1) == 7
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(by_name)


def test_a_package_stands_for_its_modules(gone):
    make, take_away = gone
    package, module = make("only_here", ""), make("only_here.inside")
    package.__path__ = []
    sent = pickle.dumps(ByValue(module.triple, package))
    take_away()
    assert pickle.loads(sent)(2) == 6


def test_it_can_be_called_where_it_was_made(gone):
    make, _ = gone
    module = make("only_here")
    assert ByValue(module.triple, module)(2, plus=1) == 7


def test_zipped_it_is_smaller():
    content = {"text": "again and again " * 1000}
    sent = [pickle.dumps(ByValue(content, zipped=zipped)) for zipped in (False, True)]
    assert 4 * len(sent[1]) < len(sent[0])
    assert [pickle.loads(each) for each in sent] == [content, content]


def test_what_is_changed_later_does_not_travel():
    content = [1, 2]
    made = ByValue(content)
    content.append(3)
    assert pickle.loads(pickle.dumps(made)) == [1, 2]


def test_tasks_are_named_after_what_it_carries():
    assert ByValue(test_zipped_it_is_smaller).__name__ == "test_zipped_it_is_smaller"
    assert ByValue({"a": 1}).__name__ == "dict"


def test_other_pickles_go_by_name_afterwards(gone):
    make, _ = gone
    module = make("only_here")
    ByValue(module.triple, module)
    assert module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    with pytest.raises(TypeError, match="lock"):
        ByValue(threading.Lock(), module)
    assert module.__name__ not in cloudpickle.list_registry_pickle_by_value()
