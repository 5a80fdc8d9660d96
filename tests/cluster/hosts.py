"""Several hosts on one machine: Dask workers that share neither network nor processes with those of another host.

Each host has namespaces of its own for the network (an address, a loopback), for processes and ``/proc``, for mounts
(a ``/dev/shm``), and a name and a boot's name of its own. Files, cores and memory are the machine's: folders are
shared, as by hosts with a network file system.

    this machine              switch               hosts
    scheduler, client         a namespace          Dask workers
    10.x.y.1 ---------------- bridge ---+--------- 10.x.y.10
                                        +--------- 10.x.y.11

Nothing outlives the process that made it, not even where that is killed: the kernel kills the processes with it
(parent-death signals), ends namespaces with their last process, and removes their devices with them.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, Security

START_S = 30.0  # each step of a start; all of it takes 2 s on two cores
END_S = 10.0

# The kernel kills it when the thread that starts it ends: tests start hosts in the main thread.
WITH_US = ("setpriv", "--pdeathsig", "KILL")
HOST = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc")

# Says "up", is plugged into the switch, and is told to go on. The shell stays: it is the host's init, and what the
# kernel ends with it is all that runs there.
INIT = """
set -e
ip link set lo up
echo "$1" > /proc/sys/kernel/hostname
mount -t tmpfs tmpfs /dev/shm
mount --bind "$2/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$2/etc_hosts" /etc/hosts
echo up
read -r go
ip address add "$3/24" dev eth0
ip link set eth0 up
num_workers=$4
shift 4
for number in $(seq "$num_workers"); do
    "$@" < /dev/null >&2 &
done
wait
"""
# The bridge has nothing to say itself: what is counted is the hosts'.
SWITCH = """
set -e
[ ! -d /proc/sys/net/ipv6 ] || echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
ip link add bridge type bridge
ip link set bridge up
echo up
read -r end
"""
PROBE = "ip link add type bridge && ip link add type veth && mount -t tmpfs tmpfs /dev/shm"

_numbers = itertools.count()


class Cluster:
    """A scheduler on this machine, and Dask workers on hosts; hosts go by number, from 0.

    Attributes
    ----------
    scheduler_address
        Where the scheduler is.
    client
        A client of it in this process.
    addresses, names
        The hosts' network addresses, and what they call themselves.
    """

    def __init__(self, folder: Path, device: str, network: ipaddress.IPv4Network, num: int) -> None:
        self.client: Client
        self.scheduler_address = ""
        self.addresses = [str(network[10 + host]) for host in range(num)]
        self.names = [f"host-{host}" for host in range(num)]
        self._folder, self._device, self._here = folder, device, str(network[1])
        self._hosts: dict[int, subprocess.Popen[bytes]] = {}
        self._inits: dict[int, int] = {}  # as this machine numbers them
        self._sent_by_killed = 0

    def host_of(self, worker_address: str) -> int:
        """On which host a Dask worker is."""
        return self.addresses.index(worker_address.rpartition("://")[2].rpartition(":")[0])

    def workers_on(self, host: int) -> list[str]:
        """The Dask workers of a host, as the scheduler has them now."""
        workers = self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"]
        return sorted(address for address in workers if self.host_of(address) == host)

    def processes(self, host: int) -> dict[int, str]:
        """What runs on a host, but its init: commands by process id, as this machine numbers them."""
        found = {}
        for process in psutil.Process(self._inits[host]).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found[process.pid] = " ".join(process.cmdline())
        return found

    def kill(self, host: int, *, silently: bool = False) -> None:
        """End all processes of a host at once; silently, as a power cut does, no peer hears of closed connections."""
        if silently:
            self.unplug(host)
        process = self._hosts.pop(host)
        with suppress(RuntimeError, OSError):  # it had not been plugged in, or has ended
            self._sent_by_killed += _traffic(process.pid, "eth0")[1]
        try:
            if host in self._inits and process.poll() is None:
                os.kill(self._inits[host], signal.SIGKILL)
                process.wait(END_S)  # it waits for its init, and that for all others
        finally:
            _end(process)

    def unplug(self, host: int) -> None:
        """Let a host go on with its network cut; its peers are told nothing."""
        self._in_switch("link", "set", f"host{host}", "down")

    def plug(self, host: int) -> None:
        """Undo :meth:`unplug`."""
        self._in_switch("link", "set", f"host{host}", "up")

    def bytes_into(self, host: int) -> int:
        """What a host that runs has been sent so far by other hosts, the scheduler and the client."""
        return _traffic(self._hosts[host].pid, "eth0")[0]

    def bytes_between(self) -> int:
        """What hosts have sent to other hosts so far; without what came to the scheduler and the client."""
        here, _ = _traffic(os.getpid(), self._device)
        sent = sum(_traffic(process.pid, "eth0")[1] for process in self._hosts.values())
        return self._sent_by_killed + sent - here

    def log(self, host: int) -> str:
        """What a host's Dask workers have printed."""
        return (self._folder / self.names[host] / "log").read_text(errors="replace")

    # How it is made and ended

    def _start(self, stack: ExitStack, threads: int, workers_per_host: int, tls: Mapping[str, str] | None) -> None:
        self._start_switch(stack)
        dask = (sys.executable, "-m", "dask")
        file = self._folder / "scheduler.json"
        at: tuple[str, ...] = ("--scheduler-file", str(file), "--no-dashboard", "--dashboard-address", ":0")
        security = None
        if tls is not None:
            at += ("--protocol", "tls", *(f"--tls-{name.replace('_', '-')}={path}" for name, path in tls.items()))
            ours = {"tls_ca_file": tls["ca_file"], "tls_client_cert": tls["cert"], "tls_client_key": tls["key"]}
            security = Security(require_encryption=True, **ours)
        scheduler_command = (*WITH_US, *dask, "scheduler", *at, "--host", self._here, "--port", "0")
        # A host that is slow for a moment is not to lose tasks to another, and rows with them: bytes are counted.
        no_stealing = {"DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False"}
        scheduler = _start(*scheduler_command, log=self._folder / "log", **no_stealing)
        stack.callback(_end, scheduler)
        options = ("--no-nanny", "--nthreads", str(threads), "--memory-limit", "0", "--death-timeout", str(START_S))
        for host in range(len(self.names)):
            stack.callback(self._end_host, host)
            self._start_host(host, workers_per_host, (*dask, "worker", *at, *options))
        for host, process in self._hosts.items():
            self._connect(host, process)
        self.scheduler_address = self._wait_for_scheduler(file, scheduler)
        self.client = stack.enter_context(Client(self.scheduler_address, timeout=START_S, security=security))
        self.client.wait_for_workers(len(self._hosts) * workers_per_host, timeout=START_S)

    def _start_switch(self, stack: ExitStack) -> None:
        folder = self._make_folder("switch")
        switch = _start(*WITH_US, "unshare", "--net", "sh", "-c", SWITCH, log=folder / "log")
        stack.callback(_end, switch)
        self._switch = switch.pid
        _expect_up(switch, folder / "log")
        stack.callback(_ip, "link", "delete", self._device, check=False)
        _ip("link", "add", self._device, "type", "veth", "peer", "name", "here", "netns", str(switch.pid))
        self._in_switch("link", "set", "here", "master", "bridge", "up")
        _ip("address", "add", f"{self._here}/24", "dev", self._device)
        _ip("link", "set", self._device, "up")

    def _start_host(self, host: int, num_workers: int, worker: Sequence[str]) -> None:
        name, address = self.names[host], self.addresses[host]
        folder = self._make_folder(name)
        (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")  # that of the machine is one for all
        known = [("127.0.0.1", "localhost"), *zip(self.addresses, self.names, strict=True)]
        (folder / "etc_hosts").write_text("".join(f"{address} {name}\n" for address, name in known))
        init = ("sh", "-c", INIT, "init", name, str(folder), address, str(num_workers))
        own = ("--host", address, "--local-directory", str(folder))
        command = (*WITH_US, *HOST, *init, *worker, *own)
        self._hosts[host] = _start(*command, log=folder / "log")

    def _connect(self, host: int, process: subprocess.Popen[bytes]) -> None:
        _expect_up(process, self._folder / self.names[host] / "log")
        (init,) = psutil.Process(process.pid).children()
        self._inits[host] = init.pid
        port = ("type", "veth", "peer", "name", "eth0", "netns", str(process.pid))
        self._in_switch("link", "add", f"host{host}", *port)
        self._in_switch("link", "set", f"host{host}", "master", "bridge", "up")
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()

    def _make_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _wait_for_scheduler(self, file: Path, process: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(OSError, ValueError):  # not there yet, or not all of it
                return str(json.loads(file.read_text())["address"])
            time.sleep(0.01)
        raise RuntimeError(f"No scheduler within {START_S:g} s: {(self._folder / 'log').read_text()}")

    def _in_switch(self, *arguments: str) -> None:
        _ip(*arguments, prefix=("nsenter", "--target", str(self._switch), "--net"))

    def _end_host(self, host: int) -> None:
        if host in self._hosts:  # else it has been killed
            self.kill(host)

    def logs(self) -> str:
        """What all have printed."""
        files = sorted(self._folder.rglob("log"))
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')}" for file in files)


@contextmanager
def hosts(
    num: int = 2, threads: int = 1, workers_per_host: int = 1, tls: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """So many hosts with Dask workers of so many threads, and a scheduler here; skips the test where none can be made.

    With paths of a certificate (``ca_file``, ``cert``, ``key``) all of Dask's connections are under TLS. The processes
    are ended with it, all at once.
    """
    _skip_where_impossible()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="dask-train-hosts-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        device = f"dt{os.getpid()}n{next(_numbers)}"  # 15 characters at most
        cluster = Cluster(folder, device, _unused_network(), num)
        try:
            cluster._start(stack, threads, workers_per_host, tls)
        except Exception as error:
            error.add_note(cluster.logs())
            raise
        yield cluster


def _skip_where_impossible() -> None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("hosts of their own are network namespaces, which only root on Linux can make")
    for program in ("ip", "unshare", "nsenter", "setpriv"):
        if shutil.which(program) is None:
            pytest.skip(f"hosts of their own need the program {program!r}")
    # Root of a container may make namespaces, and yet no device outside of them: "lo" is up, this only asks.
    for probe in (["ip", "link", "set", "lo", "up"], [*HOST, "sh", "-c", PROBE]):
        done = _run(probe)
        if done.returncode:
            pytest.skip(f"hosts of their own can't be made here: {done.stderr.strip()}")


def _unused_network() -> ipaddress.IPv4Network:
    """One of the private networks 10.x.y.0/24 to which this machine has no route; another for each process id."""
    routes = json.loads(_ip("-json", "-4", "route", "show", "table", "all"))
    taken = [ipaddress.IPv4Network(route["dst"]) for route in routes if route["dst"] not in ("default", "0.0.0.0/0")]
    for number in range(256 * 256):
        high, low = divmod((os.getpid() + number) % (256 * 256), 256)
        network = ipaddress.IPv4Network(f"10.{high}.{low}.0/24")
        if not any(network.overlaps(other) for other in taken):
            return network
    raise RuntimeError("This machine has routes to all private networks 10.x.y.0/24.")


def _traffic(pid: int, device: str) -> tuple[int, int]:
    """Bytes received and sent so far, by a network device that a process sees."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
        name, _, counts = line.partition(":")
        if name.strip() == device:
            fields = counts.split()
            return int(fields[0]), int(fields[8])
    raise RuntimeError(f"Process {pid} has no network device {device}.")


def _ip(*arguments: str, prefix: Sequence[str] = (), check: bool = True) -> str:
    done = _run([*prefix, "ip", *arguments])
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=END_S, check=False)


def _start(*command: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a process that is killed with this one; a terminal's Ctrl-C is not for it."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "TMPDIR": str(log.parent), **environment},
            start_new_session=True,
        )


def _expect_up(process: subprocess.Popen[Any], log: Path) -> None:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    if not readable or process.stdout.readline() != b"up\n":
        raise RuntimeError(f"Not up within {START_S:g} s: {log.read_text(errors='replace')}")


def _end(process: subprocess.Popen[Any]) -> None:
    try:
        process.kill()
        process.wait(END_S)
    finally:
        _close(process)


def _close(process: subprocess.Popen[Any]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
