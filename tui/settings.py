"""The configuration: TOML read into a frozen, strict model. Every problem is listed at once as `file: key: reason`."""

import msgspec


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One host of a deployment, and where its log goes."""

    host: str = "local"
    log: str = "auto"
    gpus: str = "all"
    become: str = ""


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What makes the verdicts; unset means "compare with the record"."""

    gpus: int | None = None
    load_minutes: float | None = None
    seconds_per_shard: float | None = None
    tokens_per_s: float | None = None
    headroom_mib: float | None = None


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A named host + log + API. `api` is as seen from the first engine's host, or any URL."""

    api: str = "http://127.0.0.1:8000"
    api_key_env: str | None = None
    api_key_command: str | None = None
    ca_file: str | None = None
    headers: dict[str, str] = {}
    model: str | None = None
    allow_bench: bool = True
    direct: bool = False
    """The URL is reached from this machine, not through the host."""
    engines: tuple[Engine, ...] = (Engine(),)
    expect: Expect = Expect()


class SmokeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    max_tokens: int = 4096
    timeout_s: float = 120.0


class BenchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    input_tokens: int = 512
    output_tokens: int = 512
    single_requests: int = 5
    sweep_top: int = 256
    min_seconds: float = 20.0
    endpoint: str = "chat"


class UiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    theme: str = "auto"
    gpu_hz: float = 2.0
    ascii: bool = False
    system_prompt: str = ""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    default: str | None = None
    deployments: dict[str, Deployment] = {}
    smoke: SmokeSettings = SmokeSettings()
    bench: BenchSettings = BenchSettings()
    ui: UiSettings = UiSettings()
    keys: dict[str, str] = {}
