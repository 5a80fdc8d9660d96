"""Make the pictures of the gallery: what the programs of ``examples/`` come to, drawn from runs of them.

Each runs in small mode, in a process of its own (``recording.py``). A picture that a program draws itself is taken as
it is; the others are drawn by ``drawings.py`` from what its functions had when they returned, and from what it has
printed. Into ``docs/pictures/gallery``::

    .venv/bin/python tests/docs/gallery/pictures.py                 # all
    .venv/bin/python tests/docs/gallery/pictures.py kmeans loops-ddp    # these
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).parents[3]
PICTURES = ROOT / "docs" / "pictures" / "gallery"
PROGRAM_S = 480.0
# As many programs at once as there are pairs of processors: each has two workers.
AT_ONCE = max(1, (os.cpu_count() or 2) // 2)
COLOURS = 96  # curves and letters need no more, and the files become a third as large


def programs() -> dict[str, Path]:
    """The programs of the gallery, by the names of their pages."""
    folder = ROOT / "examples"
    found = [path for path in sorted(folder.rglob("*.py")) if path.parent.name != "readers"]
    return {"-".join(path.relative_to(folder).with_suffix("").parts): path for path in found}


def draw(name: str) -> str:
    """Run a program in a folder of its own, and write its picture; what there is to say about it."""
    begun = time.monotonic()
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).parent / "recording.py"), name, str(programs()[name])]
        said = Path(folder, "said.txt")
        with said.open("w") as file:
            ended = subprocess.run(
                command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, timeout=PROGRAM_S, check=False
            )
        if ended.returncode:
            return f"{name}: FAILED\n{said.read_text()}"
        (drawn,) = Path(folder).glob("*.png")
        picture = PICTURES / f"{name}.png"
        Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)
    return f"{name}: {picture.stat().st_size / 1000:.0f} kB, {time.monotonic() - begun:.0f} s"


def main() -> int:
    """Draw those that are named, or all."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    failed = False
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for told in pool.map(draw, sys.argv[1:] or programs()):
            failed = failed or "FAILED" in told
            print(told, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
