"""The further hosts of a deployment: their GPUs are watched, its log and API are the first host's."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tui.core.connection import ConnectionState
from tui.core.deployment import HostSeen
from tui.core.gpu import GpuSample
from tui.host.base import Host
from tui.services.host_link import HostLink
from tui.services.watchers import GpuWatcher


class OtherHost:
    """Stays connected to one further host and samples its GPUs."""

    def __init__(self, host: Host, target: str, wanted: str = "all", *, hz: float = 2.0, become: Sequence[str] = ()) -> None:
        self.host = host
        self.target = target
        self._link = HostLink(host, target, self._show_connection)
        self._gpus = GpuWatcher(host, self._show_gpus, wanted, hz=hz, become=become)
        self._publish: Callable[[HostSeen], None] = lambda seen: None
        self._seen = HostSeen(target)

    def retry(self) -> None:
        """Try to connect now, also after a refusal."""
        self._link.retry()

    async def run(self, publish: Callable[[HostSeen], None]) -> None:
        """Watch until cancelled; then the host is closed."""
        self._publish = publish
        async with self.host:
            await self._link.run(lambda: [self._gpus.run()])

    def _show_connection(self, connection: ConnectionState) -> None:
        self._show(replace(self._seen, connection=connection))

    def _show_gpus(self, sample: GpuSample) -> None:
        self._show(replace(self._seen, gpus=sample))

    def _show(self, seen: HostSeen) -> None:
        self._seen = seen
        self._publish(seen)
