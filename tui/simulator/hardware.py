"""What the simulated host's kernel tells of its hardware: the cards on the PCI bus, and which kernel it is.

Laid over this machine's own /sys and /proc in the mount namespace that `counters` made.
"""

import ctypes
from pathlib import Path

from tui.simulator.scenarios import Card, Machine

_MS_BIND = 4096
_BUS = "/sys/bus/pci/devices"
_RELEASE = "/proc/sys/kernel/osrelease"
_NVIDIA = Card("0x10de", "0x2bb5")
_SERVERS_OWN = (Card("0x1a03", "0x2000", "0x030000"), Card("0x15b3", "0x1021", "0x020700"))
"""What every server has: its management controller's display, and a network card."""


def lay(folder: Path, machine: Machine) -> None:
    """Covers the machine's own; what can't be covered stays this machine's."""
    cards = (_NVIDIA,) * machine.gpus if machine.cards is None else machine.cards
    bus = folder / "pci"
    for number, card in enumerate((*_SERVERS_OWN, *cards)):
        device = bus / f"0000:{0x10 + number:02x}:00.0"
        device.mkdir(parents=True)
        for name, text in (("vendor", card.vendor), ("device", card.device), ("class", card.kind), ("product_name", card.name)):
            if text:
                (device / name).write_text(text + "\n")
    _bind(bus, _BUS)
    if machine.kernel is not None:
        release = folder / "osrelease"
        release.write_text(machine.kernel + "\n")
        _bind(release, _RELEASE)


def _bind(source: Path, target: str) -> None:
    ctypes.CDLL(None, use_errno=True).mount(str(source).encode(), target.encode(), None, _MS_BIND, None)
