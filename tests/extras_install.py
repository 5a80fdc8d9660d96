"""Try a wheel with each extra in an environment of its own: it is installed there, and runs its page's first program.

`make dist` tries two small ones, `make extras` all of them. Versions are those of requirements/lock.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIGHTGBM = """
import dask.array as da
import lightgbm
from dask.distributed import Client

import dask_train as dt

if __name__ == "__main__":
    x = da.random.default_rng(0).normal(size=(400, 3), chunks=(100, 3))
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        result = dt.fit(lightgbm.LGBMRegressor(n_estimators=5), x, x.sum(axis=1), workers=2)
    print(result.ledger)
"""
# What is installed, what a page's program needs besides, and the page; or a program.
TRIALS = {
    "linear": ("linear", [], "docs/linear_models.md"),
    "lightgbm": ("lightgbm", [], LIGHTGBM),
    "xgboost": ("xgboost", [], "docs/boosted_trees.md"),
    "torch": ("torch", ["torchmetrics"], "docs/torch_modules.md"),
    "jax": ("jax", [], "docs/jax.md"),
    "search": ("search,torch", [], "docs/hyperparameter_search.md"),
    "tensorflow": ("tensorflow,dataframe", [], "docs/keras.md"),
    "readme": ("tensorflow,dataframe", [], "README.md"),
}


def program_of(source: str) -> str:
    """Return the first whole program of a page."""
    if not source.endswith(".md"):
        return source
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / source).read_text(), flags=re.DOTALL)
    return next(block for block in blocks if "__main__" in block)


def tried(wheel: Path, name: str) -> int:
    """Install an extra and run its program; return the program's exit status."""
    extras, besides, source = TRIALS[name]
    folder = ROOT / "build" / "extras" / name
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    python, begun = folder / "bin" / "python", time.monotonic()
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", ROOT / "requirements/lock.txt"]
    subprocess.run([python, "-m", "pip", "install", *options, f"{wheel}[{extras}]", *besides], check=True)
    size_mb = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    print(f"{name}: {size_mb:,.0f} MB after {time.monotonic() - begun:.0f} s", flush=True)
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "first.py").write_text(program_of(source))
        return subprocess.run([python, "first.py"], cwd=place, timeout=900, check=False).returncode


def main(wheel: str, *names: str) -> int:
    """Try all that are named, or all that there are."""
    failed = [name for name in names or TRIALS if tried(Path(wheel).resolve(), name)]
    print(f"These failed: {', '.join(failed)}." if failed else "All programs ran.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
