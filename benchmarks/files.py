"""How many pictures a second reach a loop from JPEG files: ``dt.files`` against torch's ``DataLoader``, same cores.

    .venv/bin/python benchmarks/files.py [--rounds 5] [--small]

Both call the same function of a file's bytes: Pillow decodes, crops and flips 224 x 224 pixels out of 256 x 256. Both
give shuffled batches of 64 to a loop that sums some of their pixels. In each round the two go first in turn, one
process of a peer after the other:

* ``dt.files``, in the roles of a run, as many as there are cores.
* ``DataLoader`` with as many worker processes as there are cores, which stay for all epochs.

An epoch counts after a first one, which for us has the files read into shared memory. Files are in the system's cache
for both.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from PIL import Image, ImageFilter
from recording import save, summary

import dask_train as dt

CORES = os.cpu_count() or 1
EPOCHS = 3  # that count
BATCH_SIZE, SIZE, CROP = 64, 256, 224
AIM = 1.2
OURS, LOADER = "dt.files", "DataLoader"


def write_pictures(folder: Path, count: int) -> None:
    """Blurred noise in colours, which is as large in JPEG as a photograph: some 20 kB."""
    random = np.random.default_rng(0)
    for number in range(count):
        noise = random.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
        path = folder / str(number % 10) / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(noise).filter(ImageFilter.GaussianBlur(1)).save(path, quality=85)


def decode(content: bytes) -> np.ndarray:
    """Pixels of the middle."""
    start = (SIZE - CROP) // 2
    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture.convert("RGB").crop((start, start, start + CROP, start + CROP)))


def flip(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Mirror every other picture."""
    return image[:, ::-1] if generator.integers(2) else image


def seconds(batches: Any, num_batches: int) -> list[float]:
    """How long each epoch takes."""
    found, start = [], time.perf_counter()
    for number, (x, _) in enumerate(batches, 1):
        x[:, ::32].sum()
        if number % num_batches == 0:
            found.append(time.perf_counter() - start)
            start = time.perf_counter()
    return found


def worker(session: dt.Session) -> list[float]:
    """A role that goes through all epochs."""
    num_batches = -(-session.num_rows // BATCH_SIZE)
    return seconds(session.batches(epochs=1 + EPOCHS, batch_size=BATCH_SIZE), num_batches)


def rate_of_ours(folder: Path) -> float:
    """Pictures a second of the roles, of which the slowest one counts."""
    files = dt.files(folder / "*" / "*.jpg", label="folder", decode=decode, augment=flip)
    with LocalCluster(n_workers=1, threads_per_worker=CORES, dashboard_address=None) as cluster, Client(cluster):
        result = dt.train(worker, roles={"worker": CORES}, data=files, framework="torch", progress=False)
    slowest = np.max([each[1:] for each in result.results["worker"]], axis=0)
    return float(len(files) / np.median(slowest))


def rate_of_loader(folder: Path) -> float:
    """Pictures a second of torch's loader."""
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
            image = decode(path.read_bytes())
            flipped = image[:, ::-1] if torch.randint(2, ()) else image
            return torch.from_numpy(flipped.copy()), int(path.parent.name)

    pictures = Pictures()
    loader = DataLoader(pictures, BATCH_SIZE, shuffle=True, num_workers=CORES, persistent_workers=True)
    found = [seconds(loader, len(loader))[0] for _ in range(1 + EPOCHS)]
    return float(len(pictures) / np.median(found[1:]))


RATES = {OURS: rate_of_ours, LOADER: rate_of_loader}


def measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Rates of each round, each in a process of its own."""
    found: dict[str, list[float]] = {name: [] for name in RATES}
    for number in range(rounds):
        for name in list(RATES)[:: -1 if number % 2 else 1]:
            command = [sys.executable, __file__, "--rate-of", name, "--folder", str(folder)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{name}: {found[name][-1]:,.0f} pictures a second")
    return found


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few pictures")
    parser.add_argument("--rate-of", choices=RATES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rate_of:
        print(json.dumps(RATES[given.rate_of](given.folder)))
        return
    with TemporaryDirectory() as name:
        write_pictures(Path(name), 320 if given.small else 1920)
        found = measured(Path(name), given.rounds)
    ratios = [ours / peer for ours, peer in zip(found[OURS], found[LOADER], strict=True)]
    print(f"ratio {np.median(ratios):.2f}, aim {AIM}")
    save("files", {"pictures a second": {name: summary(rates) for name, rates in found.items()}, "ratio": ratios})


if __name__ == "__main__":
    main()
