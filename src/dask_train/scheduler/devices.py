"""GPUs for roles: each is given out once in the cluster, unless the roles of one run may share. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Offer:
    """The devices that one Dask worker sees, by uuid, the preferred one first, and how many its roles may use."""

    devices: tuple[str, ...] = ()
    num_devices: int = 0


@dataclass(frozen=True)
class DeviceRequest:
    """What a run asks for besides threads: a device for each role process of these roles.

    Attributes
    ----------
    roles
        Names of the roles.
    may_share
        Whether several roles of the run may be given one device.
    offers
        By address of the Dask worker.
    """

    roles: frozenset[str] = frozenset()
    may_share: bool = False
    offers: Mapping[str, Offer] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: Mapping[str, Any] | None) -> DeviceRequest:
        """Read what a driver sends; None for a run that asks for no devices."""
        if plain is None:
            return cls()
        offers = {address: Offer(tuple(devices), int(most)) for address, (devices, most) in plain["offers"].items()}
        return cls(frozenset(plain["roles"]), bool(plain["may_share"]), offers)

    def never(self, num_roles: int, addresses: Iterable[str]) -> str:
        """Say why that many roles could never be given a device on these Dask workers; empty if they could."""
        there = [self.offers[address] for address in addresses if address in self.offers]
        num_devices = min(
            len({device for one in there for device in one.devices}), sum(one.num_devices for one in there)
        )
        if not num_devices:
            return "no Dask worker sees a GPU (nvidia-smi lists those of a host; CUDA_VISIBLE_DEVICES may hide them)"
        if num_roles > num_devices and not self.may_share:
            which = "1 GPU" if num_devices == 1 else f"{num_devices} GPUs"
            return f"{num_roles} roles need a GPU each, and the Dask workers have {which}"
        return ""


@dataclass
class DeviceRoom:
    """The devices that roles of one run may be given now.

    Attributes
    ----------
    request
        What the run asks for.
    of_others
        Devices of other runs' roles.
    num_roles
        By device, how many roles of this run use it.
    in_use
        By Dask worker, the devices of all roles there.
    """

    request: DeviceRequest = field(default_factory=DeviceRequest)
    of_others: frozenset[str] = frozenset()
    num_roles: Counter[str] = field(default_factory=Counter)
    in_use: dict[str, set[str]] = field(default_factory=dict)

    def copy(self) -> DeviceRoom:
        """Return one that can be changed by itself."""
        in_use = {address: set(devices) for address, devices in self.in_use.items()}
        return replace(self, num_roles=Counter(self.num_roles), in_use=in_use)

    def choice(self, address: str) -> str:
        """Return the device that the next role on a Dask worker gets; empty if there is none for it now."""
        offer = self.request.offers.get(address, Offer())
        in_use = self.in_use.get(address, set())
        is_full = len(in_use) >= offer.num_devices
        open_devices = [
            device for device in offer.devices if device not in self.of_others and (device in in_use or not is_full)
        ]
        if not open_devices:
            return ""
        device = min(open_devices, key=self.num_roles.__getitem__)  # the first of those that fewest use
        return device if self.request.may_share or not self.num_roles[device] else ""

    def take(self, address: str, device: str) -> None:
        """Give a role a device."""
        self.num_roles[device] += 1
        self.in_use.setdefault(address, set()).add(device)
