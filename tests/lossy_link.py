"""A real network between two network namespaces that delays, loses and freezes packets, for tests.

Between the client's namespace and the host's lies a pair of TUN devices, and a thread that carries their packets: what TCP does
about delay and loss is the kernel's own. It is what `tc netem` does, which not every kernel has, and it needs root as that does.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

CLIENT, HOST = "10.213.77.1", "10.213.77.2"
CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
Result = TypeVar("Result")


def why_not() -> str | None:
    """Return why there can be no such network on this machine; None if there can."""
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    if subprocess.run(["unshare", "--net", "--", "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode:
        return "network namespaces can't be made (unshare, ip)"
    return None


class Namespace:
    """A network namespace with a TUN device, and a thread in it: `call` runs a function there, and what it starts is there, too."""

    def __init__(self, address: str, peer: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.packets = self.call(lambda: _device(address, peer))

    def call(self, function: Callable[[], Result]) -> Result:
        return self._thread.submit(function).result()

    def close(self) -> None:
        os.close(self.packets)
        self._thread.shutdown()


def _device(address: str, peer: str) -> int:
    """Give this thread a network of its own; return the descriptor of its device."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"far", IFF_TUN | IFF_NO_PI))
    for words in (["link", "set", "lo", "up"], ["addr", "add", address, "peer", peer, "dev", "far"], ["link", "set", "far", "up"]):
        subprocess.run(["ip", *words], check=True)
    return device


class LossyLink:
    """`delay` seconds each way, `loss` of 1 packet each way; `freeze` lets nothing through and tells nobody."""

    def __init__(self, *, delay: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        self.delay = delay
        self.loss = loss
        self.carried = 0
        self.lost = 0
        self._frozen = threading.Event()
        self._random = random.Random(seed)
        self._stop, self._stopper = os.pipe()

    def __enter__(self) -> Self:
        self.client = Namespace(CLIENT, HOST)
        self.host = Namespace(HOST, CLIENT)
        self._carrier = threading.Thread(target=self._carry, daemon=True)
        self._carrier.start()
        return self

    def __exit__(self, *exc: object) -> None:
        os.write(self._stopper, b"!")
        self._carrier.join()
        self.client.close()
        self.host.close()
        os.close(self._stop)
        os.close(self._stopper)

    def freeze(self) -> None:
        self._frozen.set()

    def thaw(self) -> None:
        self._frozen.clear()

    def _carry(self) -> None:
        to = {self.client.packets: self.host.packets, self.host.packets: self.client.packets}
        under_way: list[tuple[float, int, int, bytes]] = []
        number = 0
        while True:
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            ready, _, _ = select.select([*to, self._stop], [], [], wait)
            if self._stop in ready:
                return
            for device in ready:
                with contextlib.suppress(BlockingIOError):
                    while packet := os.read(device, 65536):
                        number += 1
                        if self._frozen.is_set() or self._random.random() < self.loss:
                            self.lost += 1
                        else:
                            heapq.heappush(under_way, (time.monotonic() + self.delay, number, to[device], packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, device, packet = heapq.heappop(under_way)
                self.carried += 1
                with contextlib.suppress(OSError):  # its queue is full: lost, as on any router
                    os.write(device, packet)
