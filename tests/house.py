"""Measure the source tree, and how much of it a ``dt.fit`` runs through in the client.

``python tests/house.py`` prints one line per figure; ``docs/design/0016-third-edition.md`` keeps them from edition to
edition. A figure is a symptom: it says where to look, and not what is good.
"""

from __future__ import annotations

import ast
import io
import sys
import threading
import tokenize
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "dask_train"
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def num_code_lines(text: str) -> int:
    """Count the lines of a module that hold code: no blank line, comment or docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def tree() -> dict[str, int]:
    """Return the figures of the source tree by their names."""
    texts = {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    homes: dict[str, set[Path]] = defaultdict(set)
    num_functions = 0
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(path)
            num_functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return {
        "files": len(texts),
        "code lines": sum(map(num_code_lines, texts.values())),
        "functions": num_functions,
        "exceptions to max-args": sum(text.count("noqa: PLR0913") for text in texts.values()),
        "class names in several files": sum(len(paths) > 1 for paths in homes.values()),
    }


class Calls:
    """Record the functions of this package that any thread calls while ``on`` is set."""

    def __init__(self) -> None:
        self.on = False
        self.functions: set[tuple[str, str, int]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Be the profile function of a thread."""
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>":
            self.functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))


def fits() -> dict[str, int]:
    """Return how many files and functions ``dt.fit`` of a Keras model on two workers runs in the client.

    The scheduler of a local cluster lives in the client's process, so its part counts, too.
    """
    calls = Calls()
    threading.setprofile(calls)  # before the client has its threads
    import dask.array as da
    import keras
    from distributed import Client, LocalCluster

    import dask_train as dt

    figures = {}
    X = da.random.random((400, 8), chunks=(100, 8)).astype("f4")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster, Client(cluster):
        calls.on = True
        sys.setprofile(calls)
        for which in ("first", "later"):
            calls.functions.clear()
            dt.fit(model, X, X[:, :1], workers=2)
            figures[f"files of a {which} dt.fit in the client"] = len({path for path, _, _ in calls.functions})
            figures[f"functions of a {which} dt.fit there"] = len(calls.functions)
        sys.setprofile(None)
        calls.on = False
    threading.setprofile(None)  # type: ignore[arg-type]
    return figures


if __name__ == "__main__":
    for name, value in (tree() | fits()).items():
        print(f"{name:40}{value:8,}")
