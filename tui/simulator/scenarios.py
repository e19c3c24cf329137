"""What can happen on the simulated host: one table of scenarios, by name."""

from dataclasses import dataclass, field
from typing import Any

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Model:
    """What is served. `kind` is how it answers: "chat", "base" (no chat template) or "gibberish" (broken weights)."""

    path: str = "/models/kimi-k2-w4"
    name: str = "kimi"
    architecture: str = "DeepseekV3ForCausalLM"
    quantization: str | None = "compressed-tensors"
    size_bytes: int = 547_000_000_000
    shards: int = 64
    max_model_len: int = 131_072
    kind: str = "chat"
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that each part of a start takes at speed 1.

    A shard takes `shard` with a jitter; shard `slow_at` takes `slow` times that.
    """

    starting: float = 75.0
    shard: float = 24.9
    jitter: float = 0.06
    slow_at: int = 19
    slow: float = 1.36
    post_load: float = 101.0
    compile: float = 158.0
    profile: float = 31.0
    kv_cache: float = 4.0
    capture: float = 96.0
    warm_up: float = 72.0
    api: float = 3.0


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """The GPUs: all alike, but for what `odd` says. `memory_mib` is what each holds when the server is ready."""

    gpus: int = 8
    name: str = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    total_mib: int = 97_887
    ready_mib: int = 96_733
    power_limit_w: int = 600
    driver: str = "580.159.04"
    odd: dict[int, int] = field(default_factory=dict)
    """GPU index -> MiB that it holds more (or less) than the others once the weights are there."""
    foreign: dict[int, int] = field(default_factory=dict)
    """GPU index -> MiB that a process which is none of the engine's holds."""
    lost: int | None = None
    """The GPU that falls off the bus some seconds after the server is ready."""
    smi: str = "works"
    """"works", "hangs" (the driver never answers) or "missing"."""
    start: str = ""
    """What starting NVML gives instead of success, in nvidia-smi's words (`nvml.scenario.ERRORS`)."""
    untold: tuple[str, ...] = ()
    """Values that the driver doesn't tell, by the names of a GPU's fields."""
    broken: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """GPU index -> values that it can't read any more."""
    events: tuple["DriverEvent", ...] = ()
    cards: tuple["Card", ...] | None = None
    """What is on the PCI bus; None for the NVIDIA GPUs above."""
    kernel: str | None = None
    """The kernel's release, if it is another than this machine's."""


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """What happens to a GPU, or to the driver if none is named, `after_s` after the server is ready.

    `change` of a GPU are fields of its row ("error", "hang", any value), or {"gone": True}: lost to those who counted it,
    not there for those who start anew; of the driver "start" (see Machine), "hang" and "driver" (its version).
    """

    after_s: float
    change: dict[str, Any]
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A device on the PCI bus: numbers as sysfs writes them, and the name that its driver gives, if any."""

    vendor: str
    device: str
    kind: str = "0x030200"
    """Class: 3D controller; 0x120000 is a processing accelerator, 0x030000 a display."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One course of events. `ends` is how the start goes: "ready", "oom", "stall", "crash" (each start dies, but the last)."""

    name: str
    about: str
    model: Model = Model()
    times: Times = Times()
    machine: SimulatedMachine = SimulatedMachine()
    ends: str = "ready"
    at_shard: int = 41
    """Where the start fails or stalls."""
    crashes: int = 0
    """Starts that die before one succeeds; the supervisor starts the server again each time."""
    cached: bool = False
    """The checkpoint lies in the page cache: nothing is read from the disk, and processors set the pace."""
    already_up: bool = False
    """The server became ready before anybody came: the log holds a whole start, and no time is spent on it."""
    under_way_s: float = 0.0
    """The start began that long before anybody came."""
    kill_engine_after_s: float | None = None
    """Seconds after ready at which the engine is killed."""
    python: bool = True
    log_lines_per_s: int = 0
    """A flood of log lines once the server is loading."""
    garbage: bool = False
    """Binary bytes, escape sequences and markup in the log, the model's name and the replies."""
    drop_every_s: float | None = None
    """The link is cut this often."""
    freeze_after_s: float | None = None
    """The link stands still, without being cut, this long after the first login; for `freeze_s`."""
    freeze_s: float = 20.0
    api_key: str | None = None

    @property
    def start_s(self) -> float:
        """Seconds of a whole start at speed 1, but for the jitter of the shards."""
        times = self.times
        rest = times.starting + times.post_load + times.compile + times.profile + times.kv_cache + times.capture + times.warm_up
        return rest + times.shard * (self.model.shards + times.slow - 1) * (1 + times.jitter * 0.35) + times.api


_FAST = Times(
    starting=4.0, shard=0.33, post_load=1.5, compile=3.0, profile=1.0, kv_cache=0.4, capture=4.0, warm_up=3.0, api=0.4
)  # about 39 s


_SMALL = Model(
    path="/models/qwen3-8b-awq",
    name="qwen3-8b",
    architecture="Qwen3ForCausalLM",
    quantization="awq_marlin",
    size_bytes=6_100_000_000,
    shards=2,
    max_model_len=32_768,
)
_MI300X = Card("0x1002", "0x74a1", "0x120000", "AMD Instinct MI300X OAM")
_H100 = Card("0x10de", "0x2330")


def _table(*scenarios: Scenario) -> dict[str, Scenario]:
    return {scenario.name: scenario for scenario in scenarios}


SCENARIOS: dict[str, Scenario] = _table(
    Scenario("start", "a 36-minute start: 547 GB in 64 shards on 8 GPUs, then ready"),
    Scenario("midway", "the same start, under way for eight minutes: best watched at speed 1", under_way_s=470.0),
    Scenario("fast", "the same start in about 40 s", times=_FAST),
    Scenario("cached", "the same again, with all weights in the page cache: the disk rests", times=_FAST, cached=True),
    Scenario("ready", "a server that is already up", already_up=True),
    Scenario(
        "oom",
        "CUDA out of memory in one worker at shard 41: another process holds 52.3 GiB of GPU 3",
        ends="oom",
        machine=SimulatedMachine(foreign={3: 53_555}),
    ),
    Scenario("stall", "a shard that never ends", ends="stall", at_shard=37),
    Scenario("slow", "a start at a third of the usual speed", times=Times(shard=75.0)),
    Scenario("crash", "the engine is killed 15 s after the server is ready", already_up=True, kill_engine_after_s=15.0),
    Scenario("restart", "three starts that die, then one that succeeds", times=_FAST, ends="ready", crashes=3, at_shard=9),
    Scenario(
        "odd",
        "one GPU holds less than the others: a broken tensor-parallel load",
        times=_FAST,
        machine=SimulatedMachine(odd={5: -2_612}),
    ),
    Scenario("lost-gpu", "a GPU falls off the bus while serving", already_up=True, machine=SimulatedMachine(lost=6)),
    Scenario(
        "gone-gpu",
        "a GPU goes from the bus while serving: lost to who watches, and not counted by who starts anew",
        already_up=True,
        machine=SimulatedMachine(events=(DriverEvent(10.0, {"gone": True}, gpu=3),)),
    ),
    Scenario(
        "unknown-error",
        "a GPU that answers Unknown Error to every question",
        already_up=True,
        machine=SimulatedMachine(events=(DriverEvent(6.0, {"error": "Unknown Error"}, gpu=2),)),
    ),
    Scenario(
        "sensor-error",
        "a GPU whose power and fan can't be read (ERR!)",
        already_up=True,
        machine=SimulatedMachine(broken={5: ("power_w", "fan_percent")}),
    ),
    Scenario(
        "untold",
        "a GPU that tells no memory of its own ([N/A]): it shares the host's",
        already_up=True,
        model=_SMALL,
        machine=SimulatedMachine(
            gpus=1,
            name="NVIDIA GB10",
            untold=("memory_used_mib", "memory_total_mib", "power_limit_w", "memory_utilisation", "fan_percent"),
        ),
    ),
    Scenario("no-gpu", "a host with processors alone", times=_FAST, machine=SimulatedMachine(gpus=0, smi="missing")),
    Scenario(
        "amd", "a host with eight AMD GPUs", times=_FAST, machine=SimulatedMachine(gpus=0, smi="missing", cards=(_MI300X,) * 8)
    ),
    Scenario(
        "no-driver",
        "a host with NVIDIA cards, but without their driver",
        times=_FAST,
        machine=SimulatedMachine(gpus=0, smi="missing", cards=(_H100,) * 8),
    ),
    Scenario(
        "driver-mismatch",
        "the driver was updated, the loaded one is older",
        already_up=True,
        machine=SimulatedMachine(start="driver/library version mismatch"),
    ),
    Scenario(
        "driver-reload",
        "the driver is replaced while in use, and comes back 20 s later",
        already_up=True,
        machine=SimulatedMachine(
            events=(
                DriverEvent(6.0, {"start": "driver/library version mismatch"}),
                DriverEvent(26.0, {"start": "", "driver": "590.48.01"}),
            )
        ),
    ),
    Scenario(
        "no-permission", "a user who may not ask the driver", already_up=True, machine=SimulatedMachine(start="no permission")
    ),
    Scenario("hung-smi", "a driver that never answers", already_up=True, machine=SimulatedMachine(smi="hangs")),
    Scenario(
        "hung-driver",
        "a driver that stops answering while serving, for 40 s",
        already_up=True,
        machine=SimulatedMachine(events=(DriverEvent(6.0, {"hang": True}), DriverEvent(46.0, {"hang": False}))),
    ),
    Scenario(
        "wsl",
        "Windows Subsystem for Linux: one GPU, whose processes and sensors stay Windows' own",
        already_up=True,
        model=_SMALL,
        machine=SimulatedMachine(
            gpus=1,
            name="NVIDIA GeForce RTX 4090",
            total_mib=24_564,
            ready_mib=21_870,
            power_limit_w=450,
            untold=("processes", "ecc_corrected", "ecc_uncorrected", "energy_j", "fan_percent"),
            kernel="6.6.87.2-microsoft-standard-WSL2",
        ),
    ),
    Scenario("no-python", "a host without Python", times=_FAST, python=False),
    Scenario("flood", "100,000 log lines a second", times=_FAST, log_lines_per_s=100_000),
    Scenario(
        "garbage",
        "hostile bytes in the log, the model's name and the replies",
        times=_FAST,
        garbage=True,
        model=Model(name="kimi[red]\x1b[31m\u202e"),
    ),
    Scenario("gibberish", "broken weights: the model babbles", already_up=True, model=Model(kind="gibberish")),
    Scenario("reasoning", "a model that thinks before it answers", already_up=True, model=Model(reasoning=True)),
    Scenario(
        "base",
        "a base model without a chat template",
        already_up=True,
        model=Model(path="/models/kimi-k2-base-w4", name="kimi-base", kind="base"),
    ),
    Scenario("drop", "a link that is cut every 20 s", already_up=True, drop_every_s=20.0),
    Scenario("freeze", "a link that stands still for 20 s", already_up=True, freeze_after_s=8.0),
)
