"""Every block of Python on every page runs: whole programs in tests of their own, pieces of programs here."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

ROOT = Path(__file__).parents[2]
MADE = ("_build", "gallery", "generated", "jupyter_execute")  # by `make docs`
PAGES = [
    page
    for page in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
    if page.relative_to(ROOT).parts[1:2] not in [(made,) for made in MADE]
]

Place = tuple[str, int]  # a page, and the number of the block on it


def blocks_of(page: Path) -> list[str]:
    found = re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


BLOCKS = {(str(page.relative_to(ROOT)), n): block for page in PAGES for n, block in enumerate(blocks_of(page))}

# Whole programs, and the tests that run them.
PROGRAMS: dict[Place, str] = {
    ("README.md", 0): "test_readme.py",
    ("docs/extending.md", 0): "test_extending.py",
    ("docs/adding_a_framework.md", 0): "test_adding_a_framework.py",
    ("docs/adding_a_framework.md", 1): "test_adding_a_framework.py",
    ("docs/boosted_trees.md", 0): "test_programs.py",
    ("docs/bring-your-own-loop.md", 0): "test_programs.py",
    ("docs/coming_from_ray_train.md", 0): "test_coming_from_ray_train.py",
    ("docs/coming_from_ray_train.md", 1): "test_coming_from_ray_train.py",
    ("docs/files.md", 0): "test_programs.py",
    ("docs/contrastive.md", 0): "test_programs.py",
    ("docs/hyperparameter_search.md", 1): "test_programs.py",
    ("docs/jax.md", 0): "test_programs.py",
    ("docs/keras.md", 0): "test_programs.py",
    ("docs/linear_models.md", 0): "test_programs.py",
    ("docs/scikit_learn.md", 0): "test_programs.py",
    ("docs/start.md", 0): "test_programs.py",
    ("docs/torch_modules.md", 0): "test_programs.py",
}

# What is not run, and why.
NOT_RUN: dict[Place, str] = {
    ("docs/coming_from.md", 0): "it is Ray's, in parts; coming_from_ray_train.md has the whole program",
    ("docs/coming_from.md", 2): "it is Dask-ML's, which is not installed",
    ("docs/coming_from.md", 6): "it is dask-tensorflow's, which does not run with today's TensorFlow",
    ("docs/deployment.md", 1): "it needs SLURM",
    ("docs/deployment.md", 2): "it needs a cluster with certificates; test_two_hosts_tls.py trains on one",
    ("docs/reference/faults.md", 0): "a run of few rows ends before it is asked; test_resize.py has longer ones",
    ("docs/reference/faults.md", 1): "so does one that grows with its cluster; test_following.py has longer ones",
    ("docs/parameter_servers.md", 1): "so does this one; test_following_servers.py has longer ones",
    ("docs/gpus.md", 0): "it needs a GPU",
    ("docs/reference/torch_modules.md", 0): "it is a setting of calls that follow; test_templates.py has some",
    **{("docs/vineyard.md", n): "it needs a daemon; tests/cluster/train/test_vineyard.py has one" for n in range(3)},
    ("docs/linear_models.md", 2): "the suite takes a minute; tests/cluster/train runs it with each linear model",
    **{
        (
            "docs/object_stores.md",
            n,
        ): "it needs a store; tests/cluster/stores/test_object_store_verbs.py runs it with servers like theirs"
        for n in range(2)
    },
}


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a program, and what its page takes for granted.

    Attributes
    ----------
    given
        Runs before.
    each
        Runs before each statement, where they are of different models.
    within
        The head of a function that the block is a part of.
    then
        Runs afterwards.
    """

    given: str = ""
    each: tuple[str, ...] = ()
    within: str = ""
    then: str = ""


DATA = """
import dask.array as da
import numpy as np
import dask_train as dt

rows = np.random.default_rng(0).random((64, {columns}), dtype="float32")
X, y = da.from_array(rows, chunks=(32, {columns})), da.from_array((rows[:, 0] > 0.5).astype("int64"), chunks=32)
Xv, yv = Xt, yt = X, y
"""
CLASSIFIER = """
import keras

def classifier(num_columns):
    model = keras.Sequential([keras.Input((num_columns,)), keras.layers.Dense(2, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

model = classifier({columns})
"""
CONTRASTED = """
import keras
from keras import ops

import dask_train as dt

features, y = ops.ones((4, 2)), ops.arange(4)
contrastive = lambda features, classes: ops.sum(features) / 2
compared = lambda own, y, everyone, classes: ops.sum(ops.matmul(own, ops.transpose(everyone)), axis=1)
"""
FRAME = """
import dask.dataframe as dd
import keras
import pandas as pd

columns = ["a", "b", "age", "lat", "lon", "y", "z", "w"]
cells = np.random.default_rng(0).random((64, 8), "float32")
frame = dd.from_pandas(pd.DataFrame(cells, columns=columns), npartitions=2)

def several(inputs, outputs):
    inputs = {name: keras.Input((width,), name=name) for name, width in inputs.items()}
    joined = keras.layers.concatenate(list(inputs.values())) if len(inputs) > 1 else next(iter(inputs.values()))
    outputs = {name: keras.layers.Dense(1, name=name)(joined) for name in outputs}
    inputs = inputs if len(inputs) > 1 else next(iter(inputs.values()))
    return inputs, outputs

def compiled(inputs, outputs):
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss="mse" if not isinstance(outputs, dict | list) else keras.tree.map_structure(
        lambda _: "mse", outputs))
    return model

def one(inputs):
    inputs, outputs = several(inputs, ["out"])
    return compiled(inputs, outputs["out"])
"""
KERAS = DATA.format(columns=4) + CLASSIFIER.format(columns=4)
WORKER = """
def worker(session):
    return sum(len(x) for x, y in session.batches(batch_size=16))
"""
TRAIN = "dt.train(worker, roles={'worker': 2}, data=(X, y), progress=False)"

TREES = """
import xgboost

def tips():
    kind = ["bus", "taxi"] * 32
    cells = pd.DataFrame({"kind": kind, "miles": rows[:, 0], "tipped": np.arange(64) % 2})
    return dd.from_pandas(cells, npartitions=2)
"""
MODULE = """
import torch

module = torch.nn.Linear(4, 2)
"""
PANDAS = "import dask.dataframe as dd, pandas as pd\n"
TENSORFLOW_CLUSTER = """
from distributed import Client, LocalCluster

cluster = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)
"""
CARRIERS = (
    PANDAS
    + """
import keras

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
flights = pd.DataFrame({"carrier": pd.Categorical(["AA", "UA"] * 32), "distance": 1.0, "late": 0.5})
frame = dd.from_pandas(flights, npartitions=2)
later = dd.from_pandas(flights.assign(carrier=pd.Categorical(["UA"] * 64)), npartitions=1)
"""
)
TUNED = "def build(trial):\n    return classifier(4), {'batch_size': trial.suggest_int('size', 8, 32)}\n"
DELAYS = (
    PANDAS
    + """
import keras

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "sigmoid")])
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
df = dd.from_pandas(pd.DataFrame(rows[:, :2], columns=["dep_delay", "distance"]), npartitions=2)
"""
)

PICTURES = """
from pathlib import Path
import numpy as np
from PIL import Image
import dask_train as dt

def pictures(folder):
    for name in ("cat", "dog"):
        Path(folder, name).mkdir(parents=True)
        Image.new("RGB", (30, 40)).save(Path(folder, name, "1.jpg"))
"""

PIECES: dict[Place, Piece] = {
    ("docs/start.md", 1): Piece(given=KERAS),
    ("docs/reference/several_hosts.md", 0): Piece(
        given=KERAS, then="assert any('one host' in notice for notice in result.notices)"
    ),
    ("docs/reference/several_hosts.md", 1): Piece(
        given=DATA.format(columns=4) + MODULE, then="assert any('alone' in notice for notice in result.notices)"
    ),
    ("docs/boosted_trees.md", 1): Piece(
        given=DATA.format(columns=4) + PANDAS + TREES + "frame = tips()",
        then="assert frame['late'].compute().isin([0, 1]).all()",
    ),
    ("docs/boosted_trees.md", 2): Piece(
        given=DATA.format(columns=4) + "import xgboost\nmodel = xgboost.XGBClassifier(n_estimators=3)",
        then="assert model.get_booster().num_boosted_rounds() == 3",
    ),
    ("docs/bring-your-own-loop.md", 1): Piece(
        given=DATA.format(columns=4) + "open('train.py', 'w').write('import sys; sys.exit(sys.argv[2] != \"3\")')",
    ),
    ("docs/bring-your-own-loop.md", 2): Piece(
        given=DATA.format(columns=4),
        then="""
epochs = [score['epoch'] for score in result.scores]; assert epochs == list(range(len(epochs))) != []
best, waited = float('inf'), 0
for number, score in enumerate(result.scores, start=1):
    waited = 0 if score['val_loss'] < best else waited + 1
    best = min(best, score['val_loss'])
    is_last = best < 0.1 or waited == 3 or number == 20
    assert is_last == (number == len(epochs)), 'it ends with the epoch that decides'
""",
    ),
    ("docs/bring-your-own-loop.md", 3): Piece(given=DATA.format(columns=4)),
    ("docs/categories.md", 0): Piece(
        given=DATA.format(columns=4) + CARRIERS, then="assert scores.compute().nunique() == 1"
    ),
    ("docs/categories.md", 1): Piece(
        given=PANDAS + "frame = dd.from_pandas(pd.DataFrame({'carrier': ['AA', 'UA']}), npartitions=1)",
        then="assert list(frame['carrier'].cat.categories) == ['AA', 'UA']",
    ),
    ("docs/categories.md", 2): Piece(
        given=PANDAS + "carriers = pd.Categorical(['AA', None])\n"
        "frame = dd.from_pandas(pd.DataFrame({'carrier': carriers}), npartitions=1)",
        then="assert list(frame['carrier'].compute()) == ['AA', 'missing']",
    ),
    ("docs/categories.md", 3): Piece(
        given=DATA.format(columns=4)
        + CARRIERS
        + "result = dt.fit(model, frame, features=['carrier', 'distance'], label='late')",
        then="assert schema.categories == {'carrier': ['AA', 'UA']}; scores.compute()",
    ),
    ("docs/checkpoints.md", 0): Piece(given=KERAS),
    ("docs/checkpoints.md", 1): Piece(given=KERAS + "folder = 'kept'", then="assert 0 <= result.best_epoch < 5"),
    ("docs/checkpoints.md", 2): Piece(
        given=DATA.format(columns=4) + "import json\n", then="assert sum(1 for _ in __import__('os').scandir('kept'))"
    ),
    ("docs/coming_from.md", 1): Piece(given=DATA.format(columns=4)),
    ("docs/coming_from.md", 3): Piece(
        given=DATA.format(columns=4) + "from sklearn.linear_model import SGDClassifier\n"
        "estimator = SGDClassifier().fit(rows, rows[:, 0] > 0.5)",
    ),
    ("docs/coming_from.md", 4): Piece(given=DATA.format(columns=4) + "import xgboost.dask"),
    ("docs/coming_from.md", 5): Piece(given=DATA.format(columns=4) + "import xgboost"),
    ("docs/coming_from.md", 7): Piece(
        given=TENSORFLOW_CLUSTER + "import dask_train as dt",
        then="client.close(); cluster.close(); assert len({target for _, target in targets}) == 2",
    ),
    ("docs/coming_from.md", 8): Piece(given=DATA.format(columns=4)),
    ("docs/data.md", 0): Piece(
        given=DATA.format(columns=4) + "x, y = rows, rows[:, 0]\n", then="assert (X.shape, y.shape) == ((64, 4), (64,))"
    ),
    ("docs/data.md", 1): Piece(given=DATA.format(columns=4), within="def worker(session):", then=TRAIN),
    ("docs/data.md", 2): Piece(given=KERAS, then="assert not dt.list_datasets()"),
    ("docs/data.md", 3): Piece(
        given=PANDAS + "frame = dd.from_pandas(pd.DataFrame({'x': [1, None], 'y': [3.0, 5.0]}), npartitions=1)",
        then="assert frame.compute().values.tolist() == [[1, 3, False], [1, 5, True]]",
    ),
    ("docs/debugging.md", 0): Piece(given=KERAS + WORKER, then="assert result.results == {'worker': [64]}"),
    ("docs/contrastive.md", 1): Piece(given=CONTRASTED, then="assert float(loss) == 4.0"),
    ("docs/contrastive.md", 2): Piece(given=CONTRASTED, then="assert abs(Center()(features)).numpy().max() == 0.0"),
    ("docs/contrastive.md", 3): Piece(given=CONTRASTED, then="assert float(loss) == 8.0"),
    ("docs/contrastive.md", 4): Piece(
        given="import keras\nimport numpy as np\nfrom keras import layers, ops\n\nimport dask_train as dt\n",
        then="views = {name: np.random.default_rng(0).normal(size=(64, 8)) for name in ('image', 'other')}\n"
        "model = MoCo(); model.build({name: (None, 8) for name in views}); before = np.array(model.queue)\n"
        "model.compile('adam'); model.fit(views, batch_size=32, verbose=0)\n"
        "assert np.array_equal(np.array(model.queue)[64:], before[:-64])",
    ),
    ("docs/deployment.md", 0): Piece(given=KERAS, then="assert result.ledger.dropped == 0"),
    ("docs/faults.md", 0): Piece(given=KERAS, then="assert result.ledger.dropped == 0"),
    ("docs/faults.md", 1): Piece(given=DATA.format(columns=4) + MODULE, then="assert result.ledger.dropped == 0"),
    ("docs/faults.md", 2): Piece(given=KERAS, then="assert result.ledger.dropped == 0"),
    ("docs/files.md", 1): Piece(
        given=PICTURES + "pictures('bucket/train')", then="assert files.shape == (2, 40, 30, 3)"
    ),
    ("docs/files.md", 2): Piece(given=PICTURES + "pictures('train')", then="assert files.shape == (2, 224, 224, 3)"),
    ("docs/files.md", 3): Piece(
        given="import keras\nimport numpy as np",
        then="row = np.arange(6.0).reshape(1, 2, 3)\n"
        "drawn = [float(np.asarray(augment(row, np.random.default_rng(seed)))[0, 0, 0]) for seed in range(9)]\n"
        "assert set(drawn) == {0.0, 3.0}",
    ),
    ("docs/files.md", 4): Piece(
        given=PICTURES + "pictures('train')\nimport os, tarfile\n"
        "path = next(Path('train').rglob('*.jpg')); Path('0.cls').write_text('1')\n"
        "with tarfile.open('train-0.tar', 'w') as archive:\n    archive.add(path, '0.jpg'); archive.add('0.cls')",
        then="assert train.row_shape == (40, 30, 3)",
    ),
    ("docs/files.md", 5): Piece(
        given=PICTURES + "pictures('train')\nimport dask.bag\n"
        "image = next(Path('train').rglob('*.jpg')).read_bytes()\n"
        "dt.to_tfrecords('train', dask.bag.from_sequence([{'image': image, 'label': 1}]))",
        then="assert train.row_shape == (40, 30, 3)",
    ),
    ("docs/files.md", 6): Piece(
        given="import dask_train as dt\nfrom pathlib import Path\n"
        "Path('rows-0.jsonl').write_text('{\"a\": 1.5, \"b\": 2.0}\\n')\n"
        "def model(rows):\n    return rows.sum(axis=1)",
        then="assert scores.compute().tolist() == [3.5]",
    ),
    ("docs/hyperparameter_search.md", 0): Piece(
        given=DATA.format(columns=784), then="assert len(found.trials_dataframe()) == 2"
    ),
    ("docs/hyperparameter_search.md", 2): Piece(
        given=DATA.format(columns=4), then="assert len(found.trials_dataframe()) == 2"
    ),
    ("docs/hyperparameter_search.md", 3): Piece(given=KERAS + TUNED, then="assert len(found.trials_dataframe()) == 2"),
    ("docs/hyperparameter_search.md", 4): Piece(given=KERAS + TUNED, then="assert len(found.trials_dataframe()) == 2"),
    ("docs/index.md", 0): Piece(given=KERAS, then="assert predictions.compute().shape == (64, 2)"),
    ("docs/keras.md", 1): Piece(
        given=DATA.format(columns=4) + FRAME,
        each=(
            "",
            "model = one({'x': 2})",
            "",
            "model = one({'age': 1, 'place': 2})",
            "model = one({'x': 7})",
            "inputs, outputs = several({'x': 2}, ['first', 'second']); model = compiled(inputs, [*outputs.values()])",
            "",
            "model = compiled(*several({'x': 2}, ['price', 'kind']))",
        ),
    ),
    ("docs/keras_options.md", 0): Piece(given=KERAS, then="assert stopping.best_epoch >= 0"),
    ("docs/keras_options.md", 1): Piece(given=KERAS),
    ("docs/keras_options.md", 2): Piece(given=KERAS),
    ("docs/keras_options.md", 3): Piece(given=KERAS),
    ("docs/keras_options.md", 4): Piece(
        given=KERAS,
        then="keras.config.set_dtype_policy('float32'); assert model.compute_dtype == 'bfloat16'",
    ),
    ("docs/keras_options.md", 5): Piece(
        given=KERAS + "pictures = np.random.default_rng(0).random((64, 8, 8, 1), 'float32')\ny = y.compute()"
    ),
    ("docs/keras_options.md", 6): Piece(given=KERAS),
    ("docs/keras_options.md", 7): Piece(given=KERAS, then="assert len(seen) == 3"),
    ("docs/larger_than_memory.md", 0): Piece(given=KERAS, then="assert result.ledger.trained == 128"),
    ("docs/larger_than_memory.md", 1): Piece(given=DATA.format(columns=4)),
    ("docs/linear_models.md", 1): Piece(
        given=DATA.format(columns=4) + "from dask_train.linear_model import LogisticRegression",
        then="assert len(result.history['loss']) == model.n_iter_[0]",
    ),
    ("docs/logging.md", 0): Piece(given=KERAS, then="assert not result.notices, result.notices"),
    ("docs/logging.md", 1): Piece(
        given="import logging; lines = list(logging.getLogger('dask_train').handlers)",
        then="logger.handlers[:], logger.propagate = lines, False",
    ),
    ("docs/parameter_servers.md", 0): Piece(given=KERAS),
    ("docs/prediction.md", 0): Piece(
        given=DATA.format(columns=2) + DELAYS,
        then="assert scores.compute().shape == (64, 1); assert written.num_rows == 64",
    ),
    ("docs/prediction.md", 1): Piece(
        given=DATA.format(columns=2) + DELAYS,
        then="assert len(dd.read_parquet('scored')['score']) == 64",
    ),
    ("docs/reference/keras_callbacks.md", 0): Piece(given=KERAS, then="assert len(seen) == 3"),
    ("docs/scikit_learn.md", 1): Piece(
        given=DATA.format(columns=4) + "import optuna\nfrom sklearn.linear_model import SGDClassifier",
        then="assert len(found.trials_dataframe()) == 2",
    ),
    ("docs/torch_modules.md", 1): Piece(
        given=DATA.format(columns=4) + MODULE, then="assert result.ledger.dropped == 0"
    ),
    ("docs/torch_modules.md", 2): Piece(given=DATA.format(columns=4) + MODULE),
    ("docs/torch_modules.md", 3): Piece(
        given=DATA.format(columns=4) + MODULE, then="assert result.ledger.dropped == 0"
    ),
    ("docs/training.md", 0): Piece(
        given=DATA.format(columns=4) + "gradient, loss, weights = np.ones(3), np.ones(1), np.ones(3)",
        then="dt.train(worker, roles={'worker': 2}, progress=False)",
    ),
}

# Data is small here, and a model that needs no other process is trained in this one.
SMALLER = {
    r"workers=[24](?!,\s+(?:ps|sync_every)=)": "workers=0",
    r"workers=4,(\s+)ps=": r"workers=1,\1ps=",
    r"workers=0,(\s+)(scorer=|streaming=)": r"workers=1,\1\2",
    r"dt\.fit\(model, frame, ": "dt.fit(model, frame, workers=0, ",
    r"epochs=20\b": "epochs=2",
    r"epochs=100\)": "epochs=2, workers=0)",
    r"dt\.logging\.MLflow\([^)]*\)": "print",  # MLflow has tests of its own, with a server
    r"log=places": "workers=0, log=places",
    r"trials=[25]0\b": "trials=2",
    r"wait_for_workers\(4": "wait_for_workers(1",
    r"s3://bucket/train/\*": "file://{folder}/bucket/train/*",  # a URL, as it comes with storage_options
    r"s3://bucket": "{folder}/bucket",
    r"/shared/": "{folder}/",
}


def test_every_block_is_run_or_says_why_not() -> None:
    assert set(PROGRAMS).isdisjoint(PIECES)
    assert set(NOT_RUN).isdisjoint({*PROGRAMS, *PIECES})
    assert set(BLOCKS) == {*PROGRAMS, *PIECES, *NOT_RUN}
    for (page, _), test in PROGRAMS.items():
        text = (Path(__file__).parent / test).read_text()
        assert f'"{Path(page).name}"' in text, f"{test} does not read {page}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_of_python_goes_by_another_name(page: Path) -> None:
    others = r"^ *(?:```(?:py|python3|ipython|pycon)\b|```\{(?:code|code-block|code-cell|doctest)\}|>>> ).*$"
    assert re.findall(others, page.read_text(), re.MULTILINE) == []


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=4, dashboard_address=None) as cluster,
        Client(cluster) as client,
        dask.config.set({"scheduler-address": cluster.scheduler_address}),
    ):
        yield client


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("place", PIECES, ids=lambda place: f"{Path(place[0]).stem}-{place[1]}")
def test_a_piece_of_a_program_runs(
    place: Place, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    piece, text = PIECES[place], BLOCKS[place]
    for pattern, by in SMALLER.items():
        text = re.sub(pattern, by.replace("{folder}", str(tmp_path)), text)
    if piece.within:
        text = f"{piece.within}\n{textwrap.indent(text, '    ')}"
    names: dict[str, Any] = {"__name__": "__main__", "client": client}  # what is defined there travels by value
    exec(piece.given, names)  # noqa: S102 - the project's own pages
    statements = ast.parse(text).body
    assert not piece.each or len(piece.each) == len(statements)
    for number, statement in enumerate(statements):
        if piece.each:
            exec(piece.each[number], names)  # noqa: S102
        exec(compile(ast.Module([statement], []), f"{place[0]}, block {place[1]}", "exec"), names)  # noqa: S102
    exec(piece.then, names)  # noqa: S102
