"""What is wrong with the GPUs of a deployment, over all its hosts; `gpu_health` judges one host's sample."""

from msgspec import Struct

from tui.core.connection import ConnectionState
from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, GpuSample, Headroom
from tui.core.gpu_health import headroom, health
from tui.core.gpu_others import leftovers


class HostGpus(Struct, frozen=True):
    """One host of a deployment and its GPUs as last seen."""

    host: str
    connection: ConnectionState
    sample: GpuSample | None
    wrong: tuple[str, ...] = ()
    """What is wrong there, the worst first, a line each."""


def hosts_of(state: DeploymentState) -> list[HostGpus]:
    """The first host, and the further ones in the configuration's order."""
    link = state.connection
    out = [HostGpus(state.target or link.host, link, state.gpus, wrong_on(state.gpus, leftovers(state)))]
    return out + [HostGpus(one.host, one.connection, one.gpus, wrong_on(one.gpus)) for one in state.others]


def wrong_on(sample: GpuSample | None, left: frozenset[int] = frozenset()) -> tuple[str, ...]:
    """What is wrong with the GPUs of one host, that their driver does not answer first."""
    if sample is None:
        return ()
    silent = (sample.note or "the driver does not answer",) if sample.late else ()
    return (*silent, *health(sample, left))


class GpuSeen(Struct, frozen=True):
    """One GPU, the sample that it is of, and what is wrong with it, a line each."""

    gpu: Gpu
    sample: GpuSample
    wrong: tuple[str, ...] = ()


def gpu_seen(state: DeploymentState, index: int, host: str = "") -> GpuSeen | None:
    """The GPU of that index; without a host, of the first that has it."""
    for one in hosts_of(state):
        if one.sample is None or host not in ("", one.host):
            continue
        for gpu in one.sample.gpus:
            if gpu.index == index:
                head = f"GPU {index}: "
                wrong = tuple(
                    said.removeprefix(head) for said in one.wrong if said.startswith(head) and said != f"{head}{gpu.error}"
                )
                return GpuSeen(gpu, one.sample, wrong)
    return None


def tightest(state: DeploymentState) -> tuple[HostGpus, Headroom] | None:
    """The fullest GPU of all hosts that tell of now; None where none does."""
    rooms = [
        (one, room)
        for one in hosts_of(state)
        if one.connection.online and one.sample is not None and not one.sample.late and (room := headroom(one.sample))
    ]
    return min(rooms, key=lambda found: found[1].free_mib, default=None)
