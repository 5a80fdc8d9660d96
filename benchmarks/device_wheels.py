"""Check that the wheels for ``device.sh`` are whole: every requirement is carried, or expected on the machine.

    python benchmarks/device_wheels.py FOLDER

Follows what dask-train needs with torch and with JAX, as a Python 3.12 on x86-64 Linux reads it. Versions of what the
machine has are compared where they are known.
"""

from __future__ import annotations

import email
import sys
import tomllib
import zipfile
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LIMIT_BYTES = 60 << 20  # with the tracked files of the repository below 64 MiB
PYTHON = {"python_version": "3.12", "python_full_version": "3.12.3", "platform_machine": "x86_64"}


def main(folder: Path) -> None:
    """Print what is missing, and exit with 1 where something is."""
    carried = dict(map(_read, sorted(folder.glob("*.whl"))))
    there = _expected()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    waiting = [(f"dask-train[{extra}]", text) for extra in ("torch", "jax") for text in extras[extra]]
    waiting += [("dask-train", text) for text in project["dependencies"]]
    problems, seen = set[str](), set[str]()
    while waiting:
        whose, text = waiting.pop()
        requirement = Requirement(text)
        name = str(canonicalize_name(requirement.name))
        version = carried[name][0] if name in carried else there.get(name)
        if version is None:
            problems.add(f"{whose} needs {text}, which is neither carried nor expected there")
        elif version and not requirement.specifier.contains(version, prereleases=True):
            problems.add(f"{whose} needs {text}, and {name} is {version}")
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if name in carried and key not in seen:
            seen.add(key)
            waiting += [(key, each) for each in carried[name][1] if _applies(each, requirement.extras)]
    problems |= {f"{name} is carried and needed by nothing" for name in carried if f"{name}[" not in "".join(seen)}
    size = sum(file.stat().st_size for file in folder.glob("*.whl"))
    if size > LIMIT_BYTES:
        problems.add(f"the wheels take {size >> 20} MiB, more than {LIMIT_BYTES >> 20}")
    for problem in sorted(problems):
        print("missing:", problem)
    print(f"{len(carried)} wheels, {size / 2**20:.1f} MiB; all requirements are met: {not problems}")
    sys.exit(bool(problems))


def _read(wheel: Path) -> tuple[str, tuple[str, list[str]]]:
    """Return the name, the version and the requirements of a wheel."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (each for each in file.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(file.read(name))
    return str(canonicalize_name(metadata["Name"])), (metadata["Version"], metadata.get_all("Requires-Dist") or [])


def _expected() -> dict[str, str]:
    lines = (ROOT / "requirements" / "device-has.txt").read_text().splitlines()
    found = (line.split() for line in lines if line and not line.startswith("#"))
    return {str(canonicalize_name(name)): (version[0] if version else "") for name, *version in found}


def _applies(text: str, extras: set[str]) -> bool:
    marker = Requirement(text).marker
    environment = {**default_environment(), **PYTHON}
    return marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
