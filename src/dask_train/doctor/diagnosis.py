"""Find what is wrong with a cluster, and what to change, from its answers; pure, no cluster is asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dask.utils import format_bytes

from dask_train.doctor.examined import CLOCK_S, Examination
from dask_train.extras import install_command

# Dask starts to spill at 70 % of a worker's limit and pauses it at 80 % (distributed.worker.memory, the defaults).
_MEMORY = 0.7
# What Linux gives a process unasked; each connection, segment and role process takes a few.
_OPEN_FILES = 1024
# cgroup limits are whole pages, and Dask's own is a rounded share of them.
_ROUNDING = 1.01

# By the names of their modules.
FRAMEWORKS = ("tensorflow", "keras", "torch", "jax", "xgboost", "lightgbm", "sklearn")
_SHOWN = 4

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """What is so, and what to change; nothing to change where it is ok."""

    level: Level
    what: str
    change: str = ""


def diagnose(examination: Examination) -> list[Finding]:
    """Return all findings, the worst first."""
    findings = [finding for look in _LOOKS for finding in look(examination)]
    return sorted(findings, key=lambda finding: ("bad", "warn", "ok").index(finding.level))


def _answers(e: Examination) -> Iterator[Finding]:
    if not e.address:
        return
    if isinstance(e.scheduler, str):
        yield Finding("bad", f"The scheduler did not say its versions: {e.scheduler}.", "Look at its log.")
    if not e.workers and not e.silent:
        yield Finding("bad", "The cluster has no Dask worker.", f"Start some: dask worker {e.address}")
    for why in sorted(set(e.silent.values())):
        names = [address for address, its in e.silent.items() if its == why]
        yield Finding("bad", f"{_of(names, e)} could not be asked: {why}.", "Look at its log and its host; restart it.")
    for status in sorted({probe["status"] for probe in e.workers.values()} - {"running"}):
        names = [address for address, probe in e.workers.items() if probe["status"] == status]
        change = (
            "Free memory there, or raise its --memory-limit." if status == "paused" else "Wait for it, or restart it."
        )
        yield Finding("bad", f"{_of(names, e)} {_is(names)} {status} and takes no tasks.", change)


def _versions(e: Examination) -> Iterator[Finding]:
    if isinstance(e.scheduler, tuple):
        yield from _differing(e, "python", {"the scheduler": e.scheduler[0]}, "bad")
        yield from _differing(e, "distributed", {"the scheduler": e.scheduler[0]}, "warn")
    installed = {address: one["versions"] for address, one in e.workers.items()}
    missing = [address for address, versions in installed.items() if "dask_train" not in versions]
    if missing:
        yield Finding("bad", f"dask_train is not installed on {_of(missing, e)}.", f"There: {install_command()}.")
    for package in ("python", "dask_train"):
        yield from _differing(e, package, installed, "bad")
    for package in ("dask", "distributed", "numpy", *FRAMEWORKS):
        yield from _differing(e, package, installed, "warn")


def _differing(
    e: Examination, package: str, installed: Mapping[str, Mapping[str, str]], level: Level
) -> Iterator[Finding]:
    """Yield where a package is another one than here, or, where it is not here, than on most Dask workers."""
    there = {
        name: _significant(package, versions[package]) for name, versions in installed.items() if package in versions
    }
    ours = e.here["versions"].get(package)
    if not there:
        return
    want = _significant(package, ours) if ours else Counter(there.values()).most_common(1)[0][0]
    where = "here" if ours else "on the others"
    for version in sorted(set(there.values()) - {want}):
        names = [name for name, its in there.items() if its == version]
        on = "the scheduler" if names == ["the scheduler"] else _of(names, e)
        yield Finding(level, f"{package} is {version} on {on} and {want} {where}.", "Install the same everywhere.")


def _significant(package: str, version: str) -> str:
    """Code that is pickled fits any patch of a Python minor version."""
    return ".".join(version.split(".")[:2]) if package == "python" else version


def _frameworks(e: Examination) -> Iterator[Finding]:
    counts = {name: sum(name in probe["versions"] for probe in e.asked.values()) for name in FRAMEWORKS}
    if e.asked and not any(counts.values()):
        yield Finding(
            "warn",
            f"No framework is installed on {_all(e)}: roles can only run code of their own.",
            f"There: {install_command('torch')}, or with another extra.",
        )
    for name, count in counts.items():
        missing = [address for address, probe in e.asked.items() if name not in probe["versions"]]
        if count and missing:
            yield Finding(
                "warn", f"{name} is missing on {_of(missing, e)}.", "Install it there, or name the others in on=."
            )
        elif count:
            yield Finding("ok", f"{name} is installed on {_all(e)}.")


def _memory(e: Examination) -> Iterator[Finding]:
    full = [
        address
        for address, probe in e.workers.items()
        if (probe["memory_used"] or 0) > _MEMORY * (probe["memory_limit"] or math.inf)
    ]
    if full:
        change = "Free memory there, or raise its --memory-limit: Dask pauses it at 80 %."
        yield Finding("warn", f"More than {_MEMORY:.0%} of its memory is used on {_of(full, e)}.", change)
    tight = [
        address
        for address, probe in e.asked.items()
        if (probe["cgroup_used"] or 0) > _MEMORY * (probe["cgroup_limit"] or math.inf)
    ]
    if tight:
        change = "Free memory there, or give the container more."
        yield Finding("warn", f"More than {_MEMORY:.0%} of the container's memory is used on {_of(tight, e)}.", change)
    for host, group in sorted({(probe["host"], probe["cgroup"]) for probe in e.workers.values()}):
        there = [probe for probe in e.workers.values() if (probe["host"], probe["cgroup"]) == (host, group)]
        allowed = sum(probe["memory_limit"] or 0 for probe in there)
        limit = min((probe["cgroup_limit"] for probe in there if probe["cgroup_limit"]), default=None)
        if limit and allowed > limit * _ROUNDING:
            yield Finding(
                "warn",
                f"Dask workers on {host} may use {format_bytes(allowed)}, but their container has "
                f"{format_bytes(limit)}: the system ends them before Dask spills.",
                "Lower their --memory-limit, or give the container more.",
            )


def _machines(e: Examination) -> Iterator[Finding]:
    few = [address for address, probe in e.asked.items() if 0 <= probe["open_files"] < _OPEN_FILES]
    if few:
        yield Finding("warn", f"Fewer than {_OPEN_FILES} files may be open on {_of(few, e)}.", "ulimit -n 65536 there.")
    change = "Use Linux 5.4 or newer, and let the container's seccomp profile allow it."
    if lack := [address for address, probe in e.asked.items() if not probe["has_memfd"]]:
        yield Finding("warn", f"memfd_create (memory that is shared without files) fails on {_of(lack, e)}.", change)
    if lack := [address for address, probe in e.asked.items() if not probe["has_pidfd"]]:
        yield Finding("warn", f"pidfd_open (a process watched without races) fails on {_of(lack, e)}.", change)
    for problem in sorted({probe["gpu_problem"] for probe in e.asked.values()} - {""}):
        names = [address for address, probe in e.asked.items() if probe["gpu_problem"] == problem]
        yield Finding("warn", f"The GPUs of {_of(names, e)} are not known: {problem}.", "Look at the driver there.")
    hosts = {probe["host"]: probe for probe in e.asked.values()}
    gpus = sum(len(probe["gpus"]) for probe in hosts.values())
    shm = min((probe["shm_free"] for probe in hosts.values() if probe["shm_free"] is not None), default=None)
    yield Finding("ok", f"{gpus or 'No'} GPU{'' if gpus == 1 else 's'} on {_hosts(len(hosts))}.")
    if shm is not None:
        yield Finding("ok", f"/dev/shm has {format_bytes(shm)} free at least; data does not go there.")  # noqa: S108
    if having := [probe["templates"] for probe in e.asked.values() if probe["templates"]]:
        imported = ", ".join(sorted({template["imports"] for templates in having for template in templates}))
        on = f"{len(having)} Dask worker{'' if len(having) == 1 else 's'}"
        yield Finding(
            "ok", f"Templates of processes on {on}: {imported}; each ends when unused for train.template.idle."
        )


def _devices(e: Examination) -> Iterator[Finding]:
    for host, sight in sorted(e.sights.items()):
        if isinstance(sight, str):
            yield Finding("warn", f"Whether frameworks use the GPUs of {host} is not known: {sight}.", "Try again.")
            continue
        for name, why in sight.items():
            if why:
                change = f"Install {name} for CUDA there, or pass gpus=0 to compute on CPUs."
                yield Finding("warn", f"{name} uses no GPU on {host}: {why}.", change)
        if seeing := [name for name, why in sight.items() if not why]:
            yield Finding("ok", f"GPUs of {host} are used by {', '.join(seeing)}.")


def _clocks(e: Examination) -> Iterator[Finding]:
    off = {address: clock for address, clock in e.clocks.items() if clock.differs}
    if off:
        worst = max(off.values(), key=lambda clock: abs(clock.ahead_s))
        yield Finding(
            "warn",
            f"The clock of {_of(list(off), e)} differs from the one here by up to {abs(worst.ahead_s):.1f} s.",
            "Let NTP set both, or read times of scores with care.",
        )
    elif e.clocks:
        yield Finding("ok", f"Clocks agree with the one here within {CLOCK_S:g} s.")


def _network(e: Examination) -> Iterator[Finding]:
    for route in e.routes:
        if route.problem:
            yield Finding(
                "bad",
                f"{route.start} can't connect to a port that {route.to} opened: {route.problem}.",
                "Let the hosts reach each other on all ports above 1024: roles choose free ones.",
            )
    hosts = len({probe["host"] for probe in e.workers.values()})
    if e.routes and not any(route.problem for route in e.routes):
        where = "between hosts" if hosts > 1 else "on the only host"
        yield Finding("ok", f"Ports can be opened and reached {where} ({len(e.routes)} tried, {_hosts(hosts)}).")
    if e.address.startswith("tls://"):
        what = "Dask's connections use TLS, but TensorFlow's own ports have neither encryption nor authentication."
        yield Finding("warn", what, "Keep the hosts' ports closed to others.")
    if isinstance(e.scheduler, tuple):
        plugin = "has dask-train's plug-in" if e.scheduler[1] else "gets dask-train's plug-in from the first run"
        yield Finding("ok", f"The scheduler {plugin}.")


def _nannies(e: Examination) -> Iterator[Finding]:
    alone = [address for address, probe in e.workers.items() if not probe["has_nanny"]]
    if alone:
        what = f"{_of(alone, e)} {_has(alone)} no nanny: start_tensorflow needs one, fit and train don't."
        yield Finding("warn", what, "Start it without --no-nanny, or pass leave_servers=True.")


_LOOKS: tuple[Callable[[Examination], Iterable[Finding]], ...] = (
    _answers,
    _versions,
    _frameworks,
    _memory,
    _machines,
    _devices,
    _nannies,
    _clocks,
    _network,
)


def _of(names: list[str], e: Examination) -> str:
    """``2 of 40 Dask workers (tcp://…, tcp://…)``."""
    if not e.address:
        return names[0]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    total = len(e.workers) + len(e.silent)
    return f"{len(names)} of {total} Dask workers ({', '.join(names[:_SHOWN])}{more})"


def _all(e: Examination) -> str:
    return f"all {len(e.asked)} Dask workers that answered" if e.address else "this machine"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"
