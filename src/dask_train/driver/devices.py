"""Which GPUs the roles of a run ask for, and which they were given; what is unusual about that is reported once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dask_train.cluster.devices import AUTO, DeviceOffer, Gpus, ask_offers
from dask_train.cluster.peer import Peer
from dask_train.process.devices import NO_DEVICE, DeviceUse

Key = tuple[str, int]


class RunDevices:
    """The devices of a run.

    Parameters
    ----------
    peer
        The client.
    gpus
        As :func:`~dask_train.cluster.devices.check_gpus` has it.
    roles
        Names of the roles that get a device; others never do.
    tell
        Called with each notice.
    """

    def __init__(self, peer: Peer, gpus: Gpus, roles: Collection[str], tell: Callable[[str], None]) -> None:
        self._peer, self._gpus, self._roles, self._tell = peer, gpus, frozenset(roles), tell
        self._offers: dict[str, DeviceOffer] = {}
        self._uses_devices: bool | None = None if gpus == AUTO else gpus == 1
        self._given: dict[Key, str] = {}  # uuids
        self._has_said_sharing = False
        self.waits_for = ""  # why "auto" can't be decided yet, as a sentence

    async def request(self, on: Sequence[str] | None) -> dict[str, Any] | None:
        """Return what the scheduler is asked for besides threads; None for nothing.

        ``"auto"`` is decided once, when a Dask worker has answered: when a role starts again, it does not move from a
        device to the processor.
        """
        if self._gpus not in (AUTO, 1):
            return None
        # The scheduler refuses addresses of no Dask worker; asking these would last as long as Dask tries to connect.
        known = [address for address in await self._peer.workers() if on is None or address in on]
        if new := [address for address in known if address not in self._offers]:
            self._offers |= await ask_offers(self._peer, new)
        self.waits_for = ""
        if self._uses_devices is None and not self._offers and (known or on is None):
            self.waits_for = "No Dask worker has said yet which GPUs it has." if known else "There is no Dask worker."
            return None
        if self._uses_devices is None:
            self._uses_devices = any(offer.is_given for offer in self._offers.values())
            if not self._uses_devices:
                self._tell_of_unused()
        if not self._uses_devices:
            return None
        usable = {a: offer for a, offer in self._offers.items() if offer.is_given or self._gpus == 1}
        offers = {a: [[device.uuid for device in offer.devices], offer.num_devices] for a, offer in usable.items()}
        return {"roles": sorted(self._roles), "may_share": self._gpus == AUTO, "offers": offers}

    def _tell_of_unused(self) -> None:
        names = {
            device.uuid: name
            for offer in self._offers.values()
            for device, name in zip(offer.devices, offer.names, strict=True)
        }
        if names:
            listed = ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names.values()).items()))
            self._tell(
                f"The cluster's hosts have GPUs ({listed}) that were given to no Dask worker, so the run computes on "
                "CPUs. Pass gpus=1 to use them, or gpus=0 to leave this notice out."
            )

    def placed(self, devices: Mapping[Key, str]) -> None:
        """Take over which devices roles were given, by uuid; empty for none."""
        self._given.update(devices)
        shared = [device for device, count in Counter(self._given.values()).items() if device and count > 1]
        if shared and not self._has_said_sharing:
            self._has_said_sharing = True
            num_roles = sum(bool(device) for device in self._given.values())
            num_devices = len({device for device in self._given.values() if device})
            which = "1 GPU" if num_devices == 1 else f"{num_devices} GPUs"
            self._tell(
                f"{num_roles} roles share {which}: their computations take turns there, and each may use its part of "
                "the memory. With gpus=1 each has one of its own; with fewer workers none is shared."
            )

    def use_of(self, key: Key, address: str) -> DeviceUse:
        """Return which device a role that has been placed uses."""
        if self._gpus is None:
            return DeviceUse()
        offer = self._offers.get(address)
        uuid = self._given.get(key, "")
        if not uuid or offer is None:
            hides = self._gpus == 0 or offer is None or offer.devices
            return DeviceUse(entry=NO_DEVICE) if hides else DeviceUse()
        entry = next(device.entry for device in offer.devices if device.uuid == uuid)
        return DeviceUse(entry=entry, num_sharing=Counter(self._given.values())[uuid])
