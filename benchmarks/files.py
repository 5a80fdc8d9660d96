"""How many pictures a second reach a loop from JPEG files, tars and TFRecords: ours against the peers', same cores.

    .venv/bin/python benchmarks/files.py [--rounds 3] [--cases files tars tfrecords] [--small]

All decode, crop and flip 224 x 224 pixels out of 256 x 256, and give shuffled batches of 64 to a loop that sums some of
their pixels. In each round those of a case go first in turn, one process after the other:

* ``dt.files``, ``dt.tars`` and ``dt.tfrecords`` in the roles of a run, as many as there are cores.
* ``files`` and ``tars``: torch's ``DataLoader`` with as many worker processes as there are cores, which stay for all
  epochs. The one over tars is what WebDataset does, by hand: each worker reads its share of the archives from their
  beginning to their end, and draws rows out of a buffer. Both call the same function of a picture's bytes as ours.
* ``tfrecords``: ``tf.data.TFRecordDataset`` in one process with as many threads, decoding by TensorFlow's own kernels.
  So ours stands there twice: with Pillow, and with TensorFlow's decoder.

An epoch counts after a first one, which for us has the files read into shared memory. Files are in the system's cache
for all. ``--small`` only tries whether it runs: it keeps no figures.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from PIL import Image, ImageFilter
from recording import machine, save, summary

import dask_train as dt
from dask_train.file_rows.examples import packed
from dask_train.tfrecord import framed

CORES = os.cpu_count() or 1
EPOCHS = 3  # that count
BATCH_SIZE, SIZE, CROP = 64, 256, 224
SHARDS = 16
BUFFER = 512  # rows of which the peers' shuffles draw one
AIM = 1.2  # times torch's loader


def write_pictures(folder: Path, count: int) -> None:
    """Blurred noise in colours, which is as large in JPEG as a photograph: some 20 kB. Each in all three forms."""
    random = np.random.default_rng(0)
    shards: list[list[tuple[str, bytes, int]]] = [[] for _ in range(SHARDS)]
    for number in range(count):
        noise = random.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
        path = folder / str(number % 10) / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(noise).filter(ImageFilter.GaussianBlur(1)).save(path, quality=85)
        shards[number % SHARDS].append((path.stem, path.read_bytes(), number % 10))
    for number, rows in enumerate(shards):
        with tarfile.open(folder / f"{number:02}.tar", "w") as archive:
            for name, content, label in rows:
                for ending, member in (("jpg", content), ("cls", str(label).encode())):
                    info = tarfile.TarInfo(f"{name}.{ending}")
                    info.size = len(member)
                    archive.addfile(info, io.BytesIO(member))
        records = [framed(packed({"image": content, "label": label})) for _, content, label in rows]
        (folder / f"{number:02}.tfrecord").write_bytes(b"".join(records))


def decode(content: bytes) -> np.ndarray:
    """Pixels of the middle."""
    start = (SIZE - CROP) // 2
    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture.convert("RGB").crop((start, start, start + CROP, start + CROP)))


def decode_by_tensorflow(content: bytes) -> np.ndarray:
    """Pixels of the middle, by the kernel that the peer has."""
    import tensorflow as tf

    start = (SIZE - CROP) // 2
    pixels: np.ndarray = tf.io.decode_jpeg(content, channels=3).numpy()
    return pixels[start : start + CROP, start : start + CROP]


def flip(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Mirror every other picture."""
    return image[:, ::-1] if generator.integers(2) else image


def seconds(batches: Iterable[Any]) -> tuple[float, int]:
    """How long an epoch takes, and its rows."""
    num_rows, start = 0, time.perf_counter()
    for x, _ in batches:
        x[:, ::32].sum()
        num_rows += len(x)
    return time.perf_counter() - start, num_rows


def epochs_of(batches: Iterator[Any], num_batches: int) -> Iterator[Iterator[Any]]:
    """Cut the batches of a role into epochs."""
    for _ in range(1 + EPOCHS):
        yield (next(batches) for _ in range(num_batches))


def worker(session: dt.Session) -> list[float]:
    """A role that goes through all epochs."""
    batches = session.batches(epochs=1 + EPOCHS, batch_size=BATCH_SIZE)
    each = epochs_of(iter(batches), -(-session.num_rows // BATCH_SIZE))
    return [seconds(epoch)[0] for epoch in each]


def ours(verb: Callable[..., Any], pattern: str, **settings: Any) -> Callable[[Path], float]:
    """Return a function of a folder: pictures a second of the roles, of which the slowest one counts."""

    def rate(folder: Path) -> float:
        rows = verb(folder / pattern, **{"decode": decode, "augment": flip, **settings})
        with LocalCluster(n_workers=1, threads_per_worker=CORES, dashboard_address=None) as cluster, Client(cluster):
            result = dt.train(worker, roles={"worker": CORES}, data=rows, framework="torch", progress=False)
        slowest = np.max([each[1:] for each in result.results["worker"]], axis=0)
        return float(result.ledger.trained / (1 + EPOCHS) / np.median(slowest))

    return rate


def rate_of_epochs(epoch: Callable[[], Iterable[Any]]) -> float:
    """Rows a second of epochs in this process, but for the first."""
    rates = [num_rows / taken for taken, num_rows in (seconds(epoch()) for _ in range(1 + EPOCHS))]
    return float(np.median(rates[1:]))


def flipped(content: bytes) -> Any:
    """Return a picture as torch's loader makes it."""
    import torch

    image = decode(content)
    return torch.from_numpy((image[:, ::-1] if torch.randint(2, ()) else image).copy())


def loader_of_files(folder: Path) -> float:
    """Pictures a second of torch's loader over files."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)

    class Pictures(Dataset[Any]):
        """What one writes by hand."""

        def __init__(self) -> None:
            self.paths = sorted(folder.glob("*/*.jpg"))

        def __len__(self) -> int:
            return len(self.paths)

        def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
            path = self.paths[number]
            return flipped(path.read_bytes()), int(path.parent.name)

    loader = DataLoader(Pictures(), BATCH_SIZE, shuffle=True, num_workers=CORES, persistent_workers=True)
    return rate_of_epochs(lambda: loader)


def loader_of_tars(folder: Path) -> float:
    """Pictures a second of torch's loader over archives."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    torch.set_num_threads(1)

    class Samples(IterableDataset[Any]):
        """What WebDataset does."""

        def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
            info = get_worker_info()
            assert info is not None
            archives = sorted(folder.glob("*.tar"))
            order = torch.randperm(len(archives), generator=torch.Generator().manual_seed(info.seed - info.id))
            rows = _members([archives[number] for number in order.tolist()[info.id :: info.num_workers]])
            for content, label in _shuffled(rows):
                yield flipped(content), label

    loader = DataLoader(Samples(), BATCH_SIZE, num_workers=CORES, persistent_workers=True)
    return rate_of_epochs(lambda: loader)


def _members(paths: Iterable[Path]) -> Iterator[tuple[bytes, int]]:
    """Go through the samples of archives, each a picture and its label that follow each other."""
    for path in paths:
        with tarfile.open(path, "r|") as archive:
            content = b""
            for member in archive:
                file = archive.extractfile(member)
                assert file is not None
                if member.name.endswith(".jpg"):
                    content = file.read()
                else:
                    yield content, int(file.read())


def _shuffled(rows: Iterator[Any]) -> Iterator[Any]:
    random, buffer = np.random.default_rng(), list[Any]()
    for row in rows:
        if len(buffer) < BUFFER:
            buffer.append(row)
            continue
        at = int(random.integers(BUFFER))
        yield buffer[at]
        buffer[at] = row
    random.shuffle(buffer)
    yield from buffer


def tf_data(folder: Path) -> float:
    """Pictures a second of ``tf.data``."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(CORES)
    tf.config.threading.set_intra_op_parallelism_threads(CORES)
    form = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    start = (SIZE - CROP) // 2

    def made(record: Any) -> tuple[Any, Any]:
        example = tf.io.parse_single_example(record, form)
        image = tf.io.decode_jpeg(example["image"], channels=3)[start : start + CROP, start : start + CROP]
        return tf.image.random_flip_left_right(image), example["label"]

    files = tf.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=True)
    rows = files.interleave(tf.data.TFRecordDataset, cycle_length=CORES, num_parallel_calls=tf.data.AUTOTUNE)
    batches = rows.shuffle(BUFFER).map(made, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH_SIZE)
    return rate_of_epochs(batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator)


_RECORDS = {"features": "image", "label": "label"}
# The last of each is the peer.
CASES: dict[str, dict[str, Callable[[Path], float]]] = {
    "files": {"dt.files": ours(dt.files, "*/*.jpg", label="folder"), "DataLoader": loader_of_files},
    "tars": {"dt.tars": ours(dt.tars, "*.tar", label="cls"), "DataLoader over tars": loader_of_tars},
    "tfrecords": {
        "dt.tfrecords": ours(dt.tfrecords, "*.tfrecord", **_RECORDS),
        "dt.tfrecords, TensorFlow's decoder": ours(dt.tfrecords, "*.tfrecord", decode=decode_by_tensorflow, **_RECORDS),
        "tf.data.TFRecordDataset": tf_data,
    },
}
RATES = {name: rate for rates in CASES.values() for name, rate in rates.items()}


def measured(folder: Path, names: list[str], rounds: int) -> dict[str, list[float]]:
    """Rates of each round, each in a process of its own."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names[:: -1 if number % 2 else 1]:
            command = [sys.executable, __file__, "--rate-of", name, "--folder", str(folder)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{name}: {found[name][-1]:,.0f} pictures a second", flush=True)
    return found


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--small", action="store_true", help="few pictures, one round, and nothing is kept")
    parser.add_argument("--rate-of", choices=RATES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rate_of:
        print(json.dumps(RATES[given.rate_of](given.folder)))
        return
    figures: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        write_pictures(Path(name), 320 if given.small else 1920)
        for case in given.cases:
            *own, peer = CASES[case]
            found = measured(Path(name), [*own, peer], 1 if given.small else given.rounds)
            ratios = {each: [one / other for one, other in zip(found[each], found[peer], strict=True)] for each in own}
            for each, values in ratios.items():
                aim = "" if case == "tfrecords" else f", aim {AIM}"
                print(f"{each} to {peer}: median ratio {np.median(values):.2f}{aim}", flush=True)
            figures[case] = {
                "pictures a second": {each: summary(values) for each, values in found.items()},
                "ratio": {each: summary(values) for each, values in ratios.items()},
            }
    if given.small:
        print("machine:", ", ".join(f"{key} {value}" for key, value in machine().items()))
    else:
        save("files", figures)


if __name__ == "__main__":
    main()
