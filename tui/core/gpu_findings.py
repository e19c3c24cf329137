"""What is wrong with the GPUs of a deployment, over all its hosts; `gpu_health` judges one host's sample."""

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from tui.core.connection import ConnectionState
from tui.core.deployment import DeploymentState
from tui.core.gpu import IN_USE_SHARE, Gpu, GpuSample, Headroom, Uniformity
from tui.core.gpu_groups import UNKNOWN, EngineLayout, engine_of, leftovers
from tui.core.gpu_health import findings, headroom, health
from tui.core.gpu_uniformity import uniformity
from tui.core.trends import MemoryCourse, outgrowth


class HostGpus(Struct, frozen=True):
    """One host of a deployment and its GPUs as last seen."""

    host: str
    connection: ConnectionState
    sample: GpuSample | None
    wrong: tuple[str, ...] = ()
    """What is wrong there, the worst first, a line each."""
    found: tuple[str, ...] = ()
    """The same, but for the driver that does not answer."""
    alarming: tuple[int, ...] = ()
    """The numbers of its GPUs that grow until they are full, or have less free than is expected."""
    judged: Uniformity = Uniformity()
    """Whether its memory is even; of a deployment over several hosts each has its part."""
    ready_memory: MemoryCourse | None = None


def hosts_of(state: DeploymentState) -> list[HostGpus]:
    """Return the first host and the further ones, in the configuration's order."""
    link, engine = state.connection, engine_of(state)
    out = [_host(state, state.target or link.host, link, engine)]
    for other in state.others:  # orphans are looked for on the first host
        there = replace(state, gpus=other.gpus, ready_memory=other.ready_memory, orphans=())
        out.append(_host(there, other.host, other.connection, engine))
    return out


def _host(state: DeploymentState, host: str, connection: ConnectionState, engine: EngineLayout) -> HostGpus:
    """Return a host's findings out of a state that has this host's sample; `engine` is the whole deployment's."""
    sample, course = state.gpus, state.ready_memory
    if sample is None:
        return HostGpus(host, connection, None)
    silent = (sample.note or sample.silence,) if sample.late else ()
    alarmed = alarms(state, sample, course)
    found = (*(finding for _, finding in alarmed), *health(sample, leftovers(state), engine))
    alarming = tuple(index for index, _ in alarmed)
    return HostGpus(host, connection, sample, (*silent, *found), found, alarming, uniformity(sample, engine), course)


def serving(state: DeploymentState) -> bool:
    return state.api.ready or (state.load is not None and state.load.ready)


def short_of(state: DeploymentState, sample: GpuSample) -> Headroom | None:
    """Return the fullest GPU if it has less free memory than the configuration expects, else None."""
    least, room = state.expected.headroom_mib, headroom(sample)
    return room if least is not None and room and serving(state) and not sample.late and room.free_mib < least else None


def alarms(state: DeploymentState, sample: GpuSample, course: MemoryCourse | None) -> list[tuple[int, str]]:
    """Return the alarms, each with its GPU's index: memory that grows until it is full, less free memory than expected."""
    out = []
    grown = outgrowth(course, sample)
    if grown is not None and grown.full_s is not None:
        pace = f"{grown.growth.mib_per_hour:,.0f} MiB an hour"
        out.append((grown.growth.gpu, f"GPU {grown.growth.gpu}: grows by {pace}, at this pace full in {roughly(grown.full_s)}"))
    if (room := short_of(state, sample)) is not None:
        free = f"{room.free_mib:,.0f} MiB free" + (f" in {room.mig}" if room.mig is not None else "")
        out.append((room.gpu, f"GPU {room.gpu}: {free}, {state.expected.headroom_mib:,.0f} expected"))
    return out


def roughly(seconds: float) -> str:
    """`17 min`, `3 h`."""
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


class GpuSeen(Struct, frozen=True):
    """One GPU, the sample that it is of, and what is wrong with it, a line each."""

    gpu: Gpu
    sample: GpuSample
    wrong: tuple[str, ...] = ()


def gpu_seen(state: DeploymentState, index: int, host: str = "") -> GpuSeen | None:
    """Return the GPU with that index; without a host, that of the first host that has it."""
    for seen in hosts_of(state):
        if seen.sample is None or host not in ("", seen.host):
            continue
        for gpu in seen.sample.gpus:
            if gpu.index == index:
                head = f"GPU {index}: "
                wrong = tuple(
                    said.removeprefix(head) for said in seen.wrong if said.startswith(head) and said != f"{head}{gpu.error}"
                )
                return GpuSeen(gpu, seen.sample, wrong)
    return None


def tightest(state: DeploymentState) -> tuple[HostGpus, Headroom] | None:
    """Return the fullest GPU of all hosts with a current sample; None if there is none."""
    rooms = [
        (seen, room)
        for seen in hosts_of(state)
        if seen.connection.online and seen.sample is not None and not seen.sample.late and (room := headroom(seen.sample))
    ]
    return min(rooms, key=lambda found: found[1].free_mib, default=None)


BY_NUMBER, ALL = "by number", "all"

ORDERS: dict[str, Callable[[Gpu], float | None] | None] = {
    BY_NUMBER: None,
    "by memory": lambda gpu: gpu.memory_used_mib,
    "by utilisation": lambda gpu: gpu.utilisation,
    "by temperature": lambda gpu: gpu.temperature_c,
    "by power": lambda gpu: gpu.power_w,
}
"""All but the first put the highest on top; what is not known goes last."""
KINDS = (ALL, "in use", "with findings")


def wrong(sample: GpuSample, leftovers: Collection[int] = (), engine: EngineLayout = UNKNOWN) -> frozenset[int | None]:
    """Return the indices of the GPUs with a finding: an error, a fault, slower than the others, memory out of line.

    What is said beside the list and what is in it are the same.
    """
    return frozenset(uniformity(sample, engine).odd) | {index for index, _ in findings(sample, leftovers, engine)}


def listed(
    sample: GpuSample,
    order: str,
    kind: str,
    leftovers: Collection[int] = (),
    engine: EngineLayout = UNKNOWN,
    alarming: Collection[int] = (),
) -> tuple[Gpu, ...]:
    """Return the GPUs of that kind in that order.

    `leftovers` are the pids of processes whose engine is gone, `alarming` the numbers of GPUs whose free memory is worth a word.
    """
    gpus = list(sample.gpus)
    if kind == "in use":
        gpus = [gpu for gpu in gpus if (gpu.memory_share or 0.0) >= IN_USE_SHARE or gpu.utilisation]
    elif kind == "with findings":
        said = wrong(sample, leftovers, engine).union(alarming)
        gpus = [gpu for gpu in gpus if gpu.index in said]
    value = ORDERS.get(order)
    if value is not None:
        gpus.sort(key=lambda gpu: -known if (known := value(gpu)) is not None else 1.0)
    return tuple(gpus)


ALL_GPUS = ("", "all")
IN_USE_MIB = 1024.0
"""A GPU that holds less is idle: its driver and what shows the desktop take some."""


def together(wanted: Iterable[str]) -> str:
    """Return the GPUs that several engines of one host mean together, as a configuration writes it."""
    named = [name.strip() for name in wanted]
    return "all" if any(name in ALL_GPUS for name in named) else ",".join(named)


def only(sample: GpuSample, wanted: str) -> GpuSample:
    """Return the sample without the GPUs that are not meant.

    If none fits, return all of it: a wrong index must not hide what is there.
    """
    if wanted.strip() in ALL_GPUS:
        return sample
    chosen = engine_gpus(sample, wanted)
    return replace(sample, gpus=chosen, part=True) if chosen else sample


def engine_gpus(sample: GpuSample, wanted: str = "all") -> tuple[Gpu, ...]:
    """Return the GPUs that the engine uses: those that the configuration names ("0-3", "0,2", UUIDs), or all in use."""
    if wanted.strip() not in ALL_GPUS:
        names = _names(wanted)
        return tuple(gpu for gpu in sample.gpus if str(gpu.index) in names or gpu.uuid in names)
    used = tuple(gpu for gpu in sample.gpus if (gpu.memory_used_mib or 0.0) >= IN_USE_MIB)
    return used or sample.gpus


def _names(wanted: str) -> set[str]:
    names: set[str] = set()
    for word in wanted.replace(" ", "").split(","):
        first, dash, last = word.partition("-")
        if dash and first.isdigit() and last.isdigit():
            names.update(str(i) for i in range(int(first), int(last) + 1))
        else:
            names.add(word)
    return names
