"""Words that stood for many things at once are no names of functions, classes, fields or parameters any more."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dask_train

SOURCE = Path(dask_train.__file__).parent

# Each has meant several things; what to write in its place.
RETIRED = {
    "Course": "the object's role, as in RunContext",
    "Gang": "the queue, PlacementQueue; a gang is all roles of a run",
    "Heard": "the handler, AgentMessages",
    "Opened": "what is opened, as in TrainingObjects",
    "Told": "what is told, as in StepLogs",
    "patience_s": "what the timeout limits, as in data_timeout_s, answer_timeout_s or collective_timeout_s",
    "replicas": "group, for a process group",
    "settle": "the act: assign, wait, finish, release, set a score",
    "settled": "the act: assign, wait, finish, release, set a score",
    "told": "what is returned or done: describe, record, to_plain, results",
    "turns": "a pass over the data, or a stream of batches",
}
# Left in these rooms and files.
NOT_YET = (
    *("collections/", "collectives/", "linear_model/", "run/lost_roles.py", "run/resizing.py", "role/meeting.py"),
    *("data/account.py", "trainers/common/in_place.py", "trainers/common/sync_point.py", "checkpoint/claim.py"),
)
# Words that may still be names of parameters.
NOT_AS_PARAMETERS = {"told"}


def names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the functions, classes, parameters, and fields and attributes of classes that a file defines."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) if name not in NOT_AS_PARAMETERS:
                yield node.lineno, name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield node.lineno, name


WRITTEN = re.compile(rf"\b_*({'|'.join(RETIRED)})\b")


def retired(text: str) -> list[str]:
    if not WRITTEN.search(text):  # which is sooner told than what it defines
        return []
    return [
        f"line {line}: {name}; write {RETIRED[name.lstrip('_')]}"
        for line, name in names(text)
        if name.lstrip("_") in RETIRED
    ]


def test_retired_words_are_no_names() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    used = [f"{path}, {use}" for path, text in texts.items() if not path.startswith(NOT_YET) for use in retired(text)]
    assert used == []


def test_a_class_name_stands_in_one_file() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    written = {path: set(re.findall(r"\bclass\s+(\w+)", text)) for path, text in texts.items()}
    times = Counter(name for names in written.values() for name in names)
    homes: dict[str, set[str]] = {}
    for path, text in texts.items():
        if any(times[name] > 1 for name in written[path]):  # also in a comment, which only its tree tells
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, set()).add(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize(
    "line",
    [
        "def told(self): ...",
        "async def _settle(): ...",
        "class Gang: ...",
        "def wait(patience_s): ...",
        "lambda replicas: 1",
        "self._turns = []",
        "patience_s: float = 1.0",
    ],
)
def test_the_check_sees_them(line: str) -> None:
    assert len(retired(line)) == 1


def test_the_check_leaves_other_names_alone() -> None:
    assert retired("def untold(turn, told): return self.told, turns") == []
