"""The further hosts of a deployment, over real connections: their GPUs come into its state, one that is not there says why."""

import asyncio
import time

from tui.cli.context import open_session
from tui.core.connection import Link
from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_choice import only, together
from tui.core.gpu_health import health
from tui.settings import Deployment, Engine, Settings

ENGINES = (
    Engine(host="local", log="none"),
    Engine(host="exec:env", log="none"),
    Engine(host="exec:env", gpus="0-3", log="none"),
    Engine(host="exec:/nonexistent/prefix", log="none"),
)


async def test_every_further_host_is_watched_once_and_none_stops_the_others() -> None:
    settings = Settings(deployments={"two": Deployment(engines=ENGINES)})

    def there(state: DeploymentState) -> bool:
        first, second = state.others
        return (
            state.gpus is not None
            and first.gpus is not None
            and first.connection.online
            and second.connection.link in (Link.UNREACHABLE, Link.REFUSED)
        )

    async with open_session(settings, "two") as session:
        assert [one.host for one in session.state.others] == ["exec:env", "exec:/nonexistent/prefix"]
        deadline = time.monotonic() + 30
        while not there(session.state):
            assert time.monotonic() < deadline, session.state.others
            await session.next_state(1.0)
        assert session.state.others[1].connection.cause
        session.retry()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_the_gpus_that_a_configuration_means() -> None:
    sample = GpuSample(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}") for n in range(8)), source="nvml")
    assert only(sample, "all") is sample
    assert [gpu.index for gpu in only(sample, "4-5,7").gpus] == [4, 5, 7]
    assert [gpu.index for gpu in only(sample, "GPU-2").gpus] == [2]
    assert only(sample, "12").gpus == sample.gpus  # a wrong index hides nothing
    assert health(only(sample, "4-7")) == ()  # those left out are not missing
    assert together(["0-3", "6"]) == "0-3,6"
    assert together(["0-3", "all"]) == "all"
