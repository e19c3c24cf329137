"""The configuration: TOML read into a frozen, strict model. Every problem is listed at once as `file: key: reason`."""

import difflib
import math
import os
import re
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
import platformdirs
import tomli

from tui.core.bench_limits import MOST_STREAMS, MOST_TOKENS
from tui.core.text import clean
from tui.host.target import require_target
from tui.wire.log_prefixes import AUTO, NO_LOG, split_source
from tui.wire.urls import port_of, shown_url, socket_of, unsendable

LARGEST = 4 * 2**20
PATIENCE_S = 5.0
"""For the writer of a configuration that is read from a pipe."""
BEYOND = 2**53
"""No number of a configuration is as large: below, integers and floats mean the same."""
LONGEST_S = 86_400
THEMES = ("auto", "dark", "light", "16", "16-light")


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    """A named host + log + API. `api` is as seen from the first engine's host, unless `direct`."""

    api: str = "http://127.0.0.1:8000"
    api_key_env: str | None = None
    api_key_command: str | None = None
    ca_file: str | None = None
    headers: dict[str, str] = {}
    model: str | None = None
    allow_bench: bool = True
    direct: bool = False
    """The URL is reached from this machine, not through the host."""
    engines: tuple[EngineSettings, ...] = (EngineSettings(),)
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


class SettingsError(Exception):
    """All problems of a configuration file, one `file: key: reason` each."""

    def __init__(self, path: Path, problems: list[str], fitting: Settings | None = None) -> None:
        self.path = path
        self.problems = [f"{path}: {problem}" for problem in problems]
        self.fitting = fitting
        """What is left of it without the keys that don't fit, to look for further problems in; None if nothing could be read."""
        super().__init__("\n".join(self.problems))


def settings_path() -> Path:
    """READYROOM_CONFIG, or config.toml in the XDG configuration directory."""
    named = os.environ.get("READYROOM_CONFIG")
    return Path(named).expanduser() if named else platformdirs.user_config_path("readyroom") / "config.toml"


def read_within(descriptor: int, most: int, seconds: float) -> bytes:
    """Read a file descriptor to its end, or `most` bytes of it. Raise TimeoutError if that takes longer than `seconds`."""
    deadline, data = time.monotonic() + seconds, b""
    while len(data) < most:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        piece = os.read(descriptor, min(65536, most - len(data)))
        if not piece:
            break
        data += piece
    return data


def load_settings(path: Path | None = None) -> Settings:
    """Read the settings of a file; return the defaults if the default file doesn't exist.

    Raise SettingsError with every problem found.
    """
    wanted = path or settings_path()
    try:
        # a pipe whose writer never comes must not hold the command: opened without waiting, read within a time
        descriptor = os.open(wanted, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = read_within(descriptor, LARGEST + 1, PATIENCE_S)
        finally:
            os.close(descriptor)
        if len(data) > LARGEST:
            raise SettingsError(wanted, [f"it is larger than {LARGEST // 2**20} MiB: is it a configuration?"])
        text = data.decode("utf-8")
    except FileNotFoundError:
        if path is None and "READYROOM_CONFIG" not in os.environ:
            return Settings()
        raise SettingsError(wanted, ["there is no such file (READYROOM_CONFIG or --config names it)"]) from None
    except TimeoutError:
        raise SettingsError(wanted, [f"it is a pipe, and nothing more came out of it within {PATIENCE_S:.0f} s"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(wanted, [f"it can't be read: {error}"]) from None
    return parse_settings(text, wanted)


def parse_settings(text: str, path: Path) -> Settings:
    """Read the settings in a TOML text; `path` only names it in problems. Raise SettingsError."""
    try:
        document = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise SettingsError(path, [f"not valid TOML: {error}"]) from None
    except RecursionError:
        raise SettingsError(path, ["its tables or lists are nested too deeply"]) from None
    except ValueError:  # Python reads no integer of more than some 4,300 digits
        raise SettingsError(path, ["a number in it has too many digits"]) from None
    misfits = [f"{key}: {reason}" for key, reason in _misfits(document, Settings, "")]
    settings = _named_cleanly(_with_home(msgspec.convert(_fitting(document, Settings) if misfits else document, Settings)))
    named = document.get("deployments")
    problems = [
        f"{key}: {reason}"
        for key, reason in _contradictions(settings)
        # the deployment may be there and be what does not fit
        if not (key == "default" and misfits and (not isinstance(named, dict) or document.get("default") in named))
    ]
    if misfits or problems:
        raise SettingsError(path, [*misfits, *problems], settings)
    return settings


def _with_home(settings: Settings) -> Settings:
    """Return the settings with `~` in the names of files replaced by the home directory."""
    deployments = {
        name: msgspec.structs.replace(entry, ca_file=os.path.expanduser(entry.ca_file)) if entry.ca_file else entry
        for name, entry in settings.deployments.items()
    }
    return msgspec.structs.replace(settings, deployments=deployments)


def _named_cleanly(settings: Settings) -> Settings:
    """Return the settings with deployments' names as they can be shown; names that would be empty, or the same, stay."""
    clear = {name: clean(name).strip() for name in settings.deployments}
    names = {name: new if new and list(clear.values()).count(new) == 1 else name for name, new in clear.items()}
    deployments = {names[name]: deployment for name, deployment in settings.deployments.items()}
    default = names.get(settings.default, settings.default) if settings.default is not None else None
    return msgspec.structs.replace(settings, deployments=deployments, default=default)


_SECRET_KEYS = frozenset({"api", "api_key", "api_key_command", "api_key_env", "headers"})
"""Keys at and under which no value is ever repeated."""


def _misfits(value: Any, kind: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield every key that is unknown or has a value of the wrong type, with the reason."""
    info = msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind
    at = key or "(top level)"
    if isinstance(info, msgspec.inspect.StructType):
        if not isinstance(value, dict):
            yield at, f"must be a table, not {_word(value)}"
            return
        fields = {field.encode_name: field for field in info.fields}
        for name, inner in value.items():
            path = f"{key}.{name}" if key else name
            if name not in fields:
                near = difflib.get_close_matches(name, fields, 1)
                yield path, "no such key" + (f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(fields)})")
            else:
                yield from _misfits(inner, fields[name].type, path)
    elif isinstance(info, msgspec.inspect.DictType) and isinstance(info.value_type, msgspec.inspect.StructType):
        if not isinstance(value, dict):
            yield at, f"must be a table, not {_word(value)}"
            return
        for name, inner in value.items():
            yield from _misfits(inner, info.value_type, f"{key}.{name}")
    elif isinstance(info, msgspec.inspect.VarTupleType) and isinstance(info.item_type, msgspec.inspect.StructType):
        if not isinstance(value, list):
            yield at, f"must be a list of tables ([[{key}]]), not {_word(value)}"
            return
        for number, inner in enumerate(value):
            yield from _misfits(inner, info.item_type, f"{key}[{number}]")
    else:
        if not _fits(value, info):
            secret = _SECRET_KEYS.intersection(re.split(r"[.\[]", at))
            if _has_nul(value):
                yield at, "must not have a NUL character in it"
            else:
                yield at, f"must be {_expected(info)}, not {_kind(value) if secret else _word(value)}"


def _fitting(value: Any, kind: Any) -> Any:
    """Return the value without the keys that `_misfits` names: each has a default. In a list of tables each keeps its place."""
    info = msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind
    match info:
        case msgspec.inspect.StructType(fields=fields):
            known = {field.encode_name: field.type for field in fields}
            given = value.items() if isinstance(value, dict) else ()
            return {name: _fitting(inner, known[name]) for name, inner in given if name in known and _bears(inner, known[name])}
        case msgspec.inspect.DictType(value_type=msgspec.inspect.StructType() as inner):
            return {name: _fitting(item, inner) for name, item in value.items() if isinstance(item, dict)}
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.StructType() as inner):
            return [_fitting(item, inner) for item in value]
    return value


def _bears(value: Any, info: msgspec.inspect.Type) -> bool:
    """Return whether anything of the value fits at all."""
    match info:
        case msgspec.inspect.StructType() | msgspec.inspect.DictType(value_type=msgspec.inspect.StructType()):
            return isinstance(value, dict)
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.StructType()):
            return isinstance(value, list)
    return _fits(value, info)


def _fits(value: Any, info: msgspec.inspect.Type) -> bool:
    match info:
        case msgspec.inspect.UnionType(types=types):
            return any(_fits(value, kind) for kind in types)
        case msgspec.inspect.NoneType():
            return value is None
        case msgspec.inspect.BoolType():
            return isinstance(value, bool)
        case msgspec.inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) < BEYOND
        case msgspec.inspect.FloatType():
            number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < BEYOND
            return number and math.isfinite(value)
        case msgspec.inspect.StrType():
            return isinstance(value, str) and "\0" not in value
        case msgspec.inspect.DictType(value_type=inner):
            return isinstance(value, dict) and all(_fits(entry, inner) for entry in value.values())
        case _:
            return False


def _has_nul(value: Any) -> bool:
    """Return whether a text, or one in a table, has a NUL: no file, command or header can have one in it."""
    return "\0" in value if isinstance(value, str) else isinstance(value, dict) and any(map(_has_nul, value.values()))


def _expected(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(_expected(kind) for kind in types if not isinstance(kind, msgspec.inspect.NoneType))
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType():
            return "a whole number"
        case msgspec.inspect.FloatType():
            return "a finite number"
        case msgspec.inspect.StrType():
            return "a text in quotes"
        case msgspec.inspect.DictType():
            return 'a table of texts, such as { key = "value" }'
        case _:
            return "another kind of value"


def _kind(value: Any) -> str:
    """Return what a value is without repeating it: it may be secret."""
    named = {dict: "a table", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return named.get(type(value), type(value).__name__)


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and abs(value) >= BEYOND:
        return "one so large"
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | str) else type(value).__name__


def _contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what has the right type, but can't be meant."""
    if settings.default is not None and settings.default not in settings.deployments:
        known = ", ".join(settings.deployments) or "none is configured"
        yield "default", f"there is no deployment {settings.default!r} ({known})"
    for name, deployment in settings.deployments.items():
        if clean(name).strip() != name:
            yield (
                f"deployments.{clean(name).strip()}",
                "its name has characters that can't be shown; without them it is empty or a duplicate",
            )
        yield from _deployment_problems(f"deployments.{name}", deployment)
    if settings.ui.theme not in THEMES:
        yield "ui.theme", f"must be one of {', '.join(THEMES)}, not {settings.ui.theme!r}"
    if not 0.2 <= settings.ui.gpu_hz <= 10:
        yield "ui.gpu_hz", f"must be between 0.2 and 10 samples a second, not {settings.ui.gpu_hz:g}"
    if settings.bench.endpoint not in ("chat", "completions"):
        yield "bench.endpoint", f"must be chat or completions, not {settings.bench.endpoint!r}"
    for key in ("input_tokens", "output_tokens", "single_requests", "sweep_top", "min_seconds"):
        if getattr(settings.bench, key) <= 0:
            yield f"bench.{key}", "must be above 0"
    for key, most in (("input_tokens", MOST_TOKENS), ("output_tokens", MOST_TOKENS), ("sweep_top", MOST_STREAMS)):
        if getattr(settings.bench, key) > most:
            yield f"bench.{key}", f"must be {most:,} at most"
    if settings.bench.min_seconds > LONGEST_S:
        yield "bench.min_seconds", f"must be {LONGEST_S:,} at most"
    for key, most in (("max_tokens", MOST_TOKENS), ("timeout_s", LONGEST_S)):
        if not 0 < (amount := getattr(settings.smoke, key)) <= most:
            yield f"smoke.{key}", "must be above 0" if amount <= 0 else f"must be {most:,} at most"


def _server_url(text: str) -> SplitResult | None:
    """Return the parts of a server's URL; None for what is none."""
    try:
        port_of(text)
        parts = urlsplit(text)
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def _deployment_problems(key: str, deployment: Deployment) -> Iterator[tuple[str, str]]:
    socket = socket_of(deployment.api)
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in deployment.api):
        yield f"{key}.api", "must have no blank, line break or control character in it"
    elif socket is not None:
        if not socket.startswith("/"):
            yield f"{key}.api", 'must name the socket by its whole path, such as "unix:/run/vllm.sock"'
    elif (url := _server_url(deployment.api)) is None:
        yield f"{key}.api", f'must be a URL such as "http://127.0.0.1:8000", not {shown_url(deployment.api)!r}'
    elif url.query or url.fragment:
        why = (
            "a query string is not sent with requests: give a key by api_key_env or headers"
            if url.query
            else "the part after # is never sent"
        )
        yield f"{key}.api", f"must be a URL that ends with its path, not {shown_url(deployment.api)!r} and more: {why}"
    for header, value in deployment.headers.items():
        if (wrong := unsendable(header, value)) is not None:
            yield f"{key}.headers.{header}", wrong
    if deployment.api_key_env is not None and not re.fullmatch(r"[A-Za-z_]\w*", deployment.api_key_env):
        yield f"{key}.api_key_env", "must be the name of an environment variable, not the key itself"
    if deployment.api_key_env and deployment.api_key_command:
        yield f"{key}.api_key_command", "api_key_env is set as well; keep one of the two"
    if deployment.ca_file:
        try:
            with open(deployment.ca_file, "rb"):
                pass
        except OSError as error:
            yield f"{key}.ca_file", f"{deployment.ca_file} can't be read: {error.strerror}"
    if not deployment.engines:
        yield f"{key}.engines", "must name at least one host"
    for number, engine in enumerate(deployment.engines):
        at = f"{key}.engines[{number}]"
        if not engine.host.strip():
            yield f"{at}.host", 'must name a host ("local", "user@host", an alias, "exec:COMMAND")'
        else:
            try:
                require_target(engine.host)
            except ValueError as error:
                yield f"{at}.host", str(error)
        try:
            if engine.log not in (AUTO, NO_LOG):
                split_source(engine.log)
        except ValueError as error:
            yield f"{at}.log", str(error)
        if not re.fullmatch(r"all|\d+(-\d+)?(,\d+(-\d+)?)*|(GPU-[\w-]+)(,GPU-[\w-]+)*", engine.gpus):
            yield f"{at}.gpus", f'must be "all", indices such as "0-3,6" or UUIDs, not {engine.gpus!r}'
    for name, amount in msgspec.structs.asdict(deployment.expect).items():
        if amount is not None and amount <= 0:
            yield f"{key}.expect.{name}", "must be above 0"


def redacted(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values to show: values of headers and the key's command are hidden."""
    document: dict[str, Any] = msgspec.to_builtins(settings)
    for deployment in document["deployments"].values():
        deployment["headers"] = dict.fromkeys(deployment["headers"], "(hidden)")
        if deployment["api_key_command"]:
            deployment["api_key_command"] = "(hidden)"
        url = urlsplit(deployment["api"])
        if url.username or url.password:
            deployment["api"] = url._replace(netloc=f"(hidden)@{url.hostname}" + (f":{url.port}" if url.port else "")).geturl()
    return document
