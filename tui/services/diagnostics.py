"""Checks of a deployment, from the connection to its first token."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

from tui.core.api_status import Reach
from tui.core.checks import Check, Grade, open_files_check, python_check, shm_check, space_check
from tui.core.logs.load_state import LoadState
from tui.core.presentation import counted, some_of
from tui.core.server_end import how_it_ended
from tui.core.text import clean
from tui.engines.registry import TITLES, commands, titles
from tui.host.api import ApiClient, ApiError
from tui.host.base import Host, HostError, ProbeFailed
from tui.record.store import RecordError
from tui.services.chat_turn import one_token
from tui.services.deployment_watch import Session
from tui.services.log_following import LogDecoder, follow_arguments
from tui.services.posix_tail import tail_frames
from tui.services.server_choice import alive, meant, undecided
from tui.services.server_search import FoundServer, find_servers, servers_from_frame
from tui.wire.frames import FIND, FOLLOW, WATCH
from tui.wire.log_prefixes import FILE, split_source

FRAME_S = 15.0
FIRST_WORD_S = 10.0
QUIET_S = 1.0
"""Seconds of silence behind what a log held, after which it is taken for one that works."""
LOG_FIX = "check the source and its permissions, or set become"
API_FIX = "check api = in the configuration: it names the inference server itself, no proxy or other program"
THROUGHPUT_BYTES = 4_000_000


async def examine(session: Session, *, token: bool = True) -> AsyncGenerator[Check]:
    """Yield all checks in order. `session` must not be entered: this connects its host once and leaves it connected."""
    host = session.host
    began = time.monotonic()
    try:
        await host.connect()
    except HostError as error:
        yield Check("connection", Grade.FAIL, error.cause, error.advice)
        for name in ("python3", "GPUs", "log", "API"):
            yield Check(name, Grade.SKIPPED, "the host isn't reached")
        return
    yield Check("connection", Grade.OK, _connected(session, (time.monotonic() - began) * 1000))
    yield await _link(host)
    servers: tuple[FoundServer, ...] | None = None
    async with aclosing(_probe(session)) as told:
        async for found in told:
            if isinstance(found, Check):
                yield found
            else:
                servers = found
    with suppress(RecordError):  # nothing is known of an earlier server then
        await session.choice.last.read()
    server = meant(servers or (), session.choice.wanted, last=session.choice.last)
    choice = undecided(servers or (), session.choice.wanted)
    if choice:
        server = None
    if servers is not None:
        yield _server(session, servers, choice, server)
    if server is not None:
        session.ask(server)
        session.choice.last.see(server, servers or ())
        await session.choice.last.keep(leaving=True)
    async with aclosing(_machine(host, server)) as checks:
        async for check in checks:
            yield check
    if choice and session.deployment.engines[0].log == "auto":
        yield Check("log", Grade.SKIPPED, "several servers run, and none was named")
    else:
        yield await _log(session, server)
    if choice and not session.deployment.direct:
        yield Check("API", Grade.SKIPPED, "several servers run, and none was named")
    else:
        async with aclosing(_api(session, server, token)) as checks:
            async for check in checks:
                yield check


def _connected(session: Session, took_ms: float) -> str:
    """Say what a connection of that kind means."""
    name = session.host.name
    if session.target == "local":
        return f"{name}: this machine"
    if session.target.startswith("exec:"):
        return f"{name}: its command answers, after {took_ms:.0f} ms"
    return f"{name}: connected in {took_ms:.0f} ms, host key and login accepted"


async def _link(host: Host) -> Check:
    times = []
    try:
        for _ in range(3):
            began = time.monotonic()
            await host.run(["true"])
            times.append(time.monotonic() - began)
        began = time.monotonic()
        done = await host.run(["head", "-c", str(THROUGHPUT_BYTES), "/dev/zero"], timeout=30.0)
        rate = len(done.stdout) / max(time.monotonic() - began, 1e-6) / 1e6
    except (HostError, TimeoutError) as error:
        return Check("link", Grade.FAIL, f"a command did not come back: {_words(error)}", "try the same with ssh by hand")
    says = f"a command takes {min(times) * 1000:.0f} ms, {rate:,.1f} MB/s"
    if min(times) > 0.5 or rate < 0.2:
        return Check("link", Grade.WARN, f"{says}: slow, but usable")
    return Check("link", Grade.OK, says)


async def _probe(session: Session) -> AsyncGenerator[Check | tuple[FoundServer, ...]]:
    """Check the probe's Python, and yield the servers that run if they can be looked for."""
    host, become = session.host, session.become
    try:
        hello, frame = await _frames(host, FIND, {"become": become, "engines": commands()}, ("hello", "servers"))
    except (HostError, TimeoutError) as error:
        fix = error.advice if isinstance(error, ProbeFailed) and error.advice else "install python3 >= 3.8 on the host"
        yield Check("python3", Grade.WARN, f"{_words(error)}; nvidia-smi and a shell are used instead of the probe", fix)
        if isinstance(error, ProbeFailed):
            try:
                yield await find_servers(host, become)
            except (HostError, TimeoutError) as failed:
                yield Check("server", Grade.WARN, _words(failed), 'name the log in the configuration: log = "file:/path"')
    else:
        session.choice.last.boot = str(frame["boot"]) if frame.get("boot") else None
        yield python_check(clean(str(hello.get("python", ""))))
        yield servers_from_frame(frame)


def _server(
    session: Session, servers: tuple[FoundServer, ...], choice: tuple[FoundServer, ...], server: FoundServer | None
) -> Check:
    """Say which server is examined from here on: the one that the session would watch."""
    running = alive(servers)
    if choice:
        listed = "; ".join(found.words for found in choice)
        fix = f"name one with --port, or keep one in the configuration with readyroom init {session.target}"
        return Check("server", Grade.FAIL, f"{len(choice)} run, and none was named: {listed}", fix)
    if server is None and running:
        listed = "; ".join(found.words for found in running)
        return Check(
            "server", Grade.WARN, f"the configured server does not run; these do: {listed}", "start it, or correct the port"
        )
    if server is None:
        return Check("server", Grade.WARN, f"no {titles()} process is seen", "start it, or log in as a user who may see it")
    more = f" (and {len(running) - 1} more)" if len(running) > 1 else ""
    return Check("server", Grade.OK, f"{server.words}{more}")


async def _machine(host: Host, server: FoundServer | None) -> AsyncGenerator[Check]:
    """Check the GPUs, and what of the machine decides whether a server can work."""
    gpus: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    trouble = ""
    try:
        gpus, machine = await _frames(
            host, WATCH, {"titles": list(TITLES), "hz": 2.0, "pids": None, "paths": []}, ("gpus", "machine")
        )
    except (HostError, TimeoutError) as error:
        trouble = _words(error)
    yield await _gpus(host, gpus, trouble)
    total = machine.get("shm_total_mib")
    yield shm_check(float(total) if isinstance(total, int | float) else None, len(gpus.get("gpus") or []))
    try:
        limit = await host.run(["sh", "-c", "ulimit -n"])
        yield open_files_check(clean(limit.stdout.decode("utf-8", "replace")).strip())
        model = server.model if server is not None and server.model and server.model.startswith("/") else None
        for name, path in (("space of the model", model), ("space of /tmp", "/tmp")):
            if path is not None:
                done = await host.run(["df", "-Pk", path])
                yield space_check(name, done.stdout.decode("utf-8", "replace"))
    except (HostError, TimeoutError) as error:
        yield Check("machine", Grade.WARN, _words(error))


async def _gpus(host: Host, frame: dict[str, Any], trouble: str) -> Check:
    gpus = frame.get("gpus") or []
    note = trouble or clean(str(frame.get("note") or ""))
    if gpus and frame.get("source") == "nvml":
        name = clean(str(gpus[0].get("name", "GPU")))
        return Check("GPUs", Grade.OK, f"{len(gpus)} × {name}, driver {clean(str(frame.get('driver') or '—'))}, through NVML")
    try:
        done = await host.run(["nvidia-smi", "-L"], timeout=15.0)
    except (HostError, TimeoutError) as error:
        return Check("GPUs", Grade.FAIL, f"nvidia-smi: {_words(error)}", "check the driver: nvidia-smi must answer within seconds")
    lines = [clean(line) for line in done.stdout.decode("utf-8", "replace").splitlines() if line.startswith("GPU ")]
    if done.status == 0 and lines:
        return Check(
            "GPUs",
            Grade.WARN,
            f"{len(lines)} through nvidia-smi only: {note}",
            "install python3 and the driver's libnvidia-ml.so.1",
        )
    return Check(
        "GPUs", Grade.WARN, f"none: {note or 'nvidia-smi lists none'}", "a container needs --gpus all; else check the driver"
    )


async def _log(session: Session, server: FoundServer | None) -> Check:
    source = session.deployment.engines[0].log
    if source == "none":
        return Check("log", Grade.SKIPPED, 'log = "none" in the configuration')
    if source == "auto":
        if server is None:
            return await _last_log(session)
        if server.source is None:
            fix = 'start the server with its output in a file, and set log = "file:/path"'
            return Check("log", Grade.WARN, f"where pid {server.pid} writes can't be read: {clean(server.why or '')}", fix)
        source = server.source
    return await _read(session, LogDecoder(source))


async def _last_log(session: Session) -> Check:
    """Check the log of the server that was last seen there, which tells how that one ended."""
    last = session.choice.last.server
    none = "log = auto, but no server was found"
    if last is None or last.source is None:
        return Check("log", Grade.SKIPPED, none if last is None else f"{none}; {clean(last.unread(None))}")
    decoder = LogDecoder(last.source)
    check = await _read(session, decoder)
    load = decoder.reader.state
    if check.grade is Grade.FAIL and not load.lines:
        return Check("log", Grade.SKIPPED, f"{none}; {clean(last.unread(check.says))}")
    advice = load.failure.advice if load.failure is not None else ""
    says = f"{last.source.removeprefix('file:')}, {last.of(session.choice.last.boot)}: {how_it_ended(load)}"
    return Check("log", Grade.WARN, clean(says), advice or "start it again; dmesg or its supervisor may say more")


async def _read(session: Session, decoder: LogDecoder) -> Check:
    """Check whether the log can be read; `decoder` gets what it holds."""
    try:
        return await _followed(session, decoder)
    except ProbeFailed as error:
        return await _log_without_probe(session.host, decoder, _words(error))
    except (HostError, TimeoutError) as error:
        return Check("log", Grade.FAIL, f"{clean(decoder.source)}: {_words(error)}", LOG_FIX)


async def _followed(session: Session, decoder: LogDecoder) -> Check:
    """Follow the log as the session would, until it is plain whether that works.

    What a source says of itself comes first; a command that fails says so behind all that it had to tell.
    """
    source = decoder.source
    told: dict[str, Any] = {}
    stream = await session.host.start_probe(FOLLOW, follow_arguments(source, become=session.become))
    try:
        async with asyncio.timeout(FIRST_WORD_S) as limit:
            async for frame in stream:
                await _taken(decoder, frame)
                match frame.get("f"):
                    case "source" | "error":
                        told = frame
                        if frame.get("why"):
                            break
                    case "caught_up":
                        limit.reschedule(asyncio.get_running_loop().time() + QUIET_S)
                    case "end":
                        raise ProbeFailed(f"the log's follower ended: {clean(str(frame.get('why')))}")
    except TimeoutError:
        if not told:
            return Check("log", Grade.WARN, f"{clean(source)}: it said nothing within {FIRST_WORD_S:.0f} s", LOG_FIX)
    finally:
        await stream.close()
    load = decoder.reader.state
    if told.get("f") == "source" and told.get("why") and load.lines:
        return Check("log", Grade.WARN, f"{clean(source)}: it can be read, but {clean(str(told['why']))}", LOG_FIX)
    return _log_check(source, told, load)


def _log_check(source: str, frame: dict[str, Any], load: LoadState) -> Check:
    if frame.get("f") == "error" or frame.get("why"):
        return Check("log", Grade.FAIL, f"{clean(source)}: {clean(str(frame.get('why')))}", LOG_FIX)
    if load.lines and not load.recognised:
        says = f"{clean(source)}: it can be read, but no line of it is of a {titles()} server ({counted(load.lines, 'line')} read)"
        return Check("log", Grade.WARN, says, 'name the server\'s log: log = "file:/path", or log = "auto" to have it found')
    size = frame.get("size")
    return Check("log", Grade.OK, f"{clean(source)}" + (f", {size / 1e6:,.1f} MB" if isinstance(size, int) else ""))


async def _taken(decoder: LogDecoder, frame: dict[str, Any]) -> None:
    async with aclosing(decoder.take(frame)) as events:
        async for _ in events:
            pass


async def _log_without_probe(host: Host, decoder: LogDecoder, why: str) -> Check:
    """Check the log with a shell of the host, which can read files only."""
    source = decoder.source
    prefix, path = split_source(source)
    if prefix != FILE:
        fix = 'install python3 >= 3.8 on the host, or set log = "file:/path"'
        return Check("log", Grade.FAIL, f"{clean(source)}: {why}; without it only files can be followed", fix)
    told: dict[str, Any] = {}
    try:
        async with asyncio.timeout(FRAME_S), aclosing(tail_frames(host, path, None, seconds=FRAME_S)) as frames:
            async for frame in frames:
                await _taken(decoder, frame)
                told = frame if frame.get("f") == "source" else told
                if told.get("why") or (told and frame.get("f") == "caught_up"):
                    return _log_check(source, told, decoder.reader.state)
    except (HostError, TimeoutError) as error:
        if told:
            return _log_check(source, told, decoder.reader.state)  # it can be read, be it slowly
        why = _words(error)
    return Check("log", Grade.FAIL, f"{clean(source)}: {why}", LOG_FIX)


async def _api(session: Session, server: FoundServer | None, token: bool) -> AsyncGenerator[Check]:
    api = session.api
    url = api.shown
    status = await api.poll()
    if status.reach is Reach.CLOSED:
        yield _closed(session, url, server)
        return
    if status.reach is not Reach.UP:
        says = (status.error or f"/health answers {status.health}").removeprefix(url).lstrip(": ")
        yield Check("API", Grade.FAIL, f"{url}: {says}", API_FIX if status.reach is Reach.ERROR else "see the log of the server")
        return
    yield Check("API", Grade.OK, f"{url}: healthy" + (f", version {status.version}" if status.version else ""))
    if not status.models:
        fix = "set api_key_env or VLLM_API_KEY" if status.error and "401" in status.error else "see the log of the server"
        yield Check("model", Grade.FAIL, status.error or "none is listed", fix)
        return
    wanted = status.asked(session.deployment.model) or ""
    if not status.lists(wanted):
        listed = some_of(model.id for model in status.models)
        yield Check("model", Grade.FAIL, f"{wanted!r} is not served; listed: {listed}", f"set model = {status.models[0].id!r}")
        return
    yield Check("model", Grade.OK, clean(wanted))
    if token:
        yield await _token(api, wanted)


def _closed(session: Session, url: str, server: FoundServer | None) -> Check:
    """Say why nothing listens on the port: before a start has ended that is as it should be."""
    where = "the API was looked for there" if session.deployment.direct else f"no server runs on {session.host.name}"
    if server is None:
        fix = "start the server, or set api = in the configuration to where it listens"
        return Check("API", Grade.WARN, f"{url}: nothing listens there, and {where}", fix)
    if server.port is not None and urlsplit(url).port not in (None, server.port):
        says = f"{url}: nothing listens there; the server of pid {server.pid} has port {server.port}"
        return Check("API", Grade.WARN, says, f"set api = with port {server.port} in the configuration")
    says = f"{url}: nothing listens there yet; the server of pid {server.pid} opens it when the model is loaded"
    return Check("API", Grade.WARN, says, "wait for the end of its start: readyroom wait does")


async def _token(api: ApiClient, model: str) -> Check:
    began = time.monotonic()
    try:
        generated = await one_token(api, model)
    except ApiError as error:
        return Check("one token", Grade.FAIL, str(error), "see the log of the server")
    if not generated:
        return Check("one token", Grade.OK, "this model generates none: it embeds or classifies")
    return Check("one token", Grade.OK, f"generated in {(time.monotonic() - began) * 1000:.0f} ms")


async def _frames(host: Host, role: str, arguments: dict[str, Any], wanted: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the first frame of each name, in that order. Raise ProbeFailed, Unreachable or TimeoutError."""
    found: dict[str, dict[str, Any]] = {}
    stream = await host.start_probe(role, arguments)
    try:
        async with asyncio.timeout(FRAME_S):
            async for frame in stream:
                name = str(frame.get("f"))
                if name in wanted:
                    found.setdefault(name, frame)
                if len(found) == len(wanted):
                    return [found[name] for name in wanted]
                if name == "end":
                    break
    finally:
        await stream.close()
    raise ProbeFailed(f"the probe's role {role} ended without saying {', '.join(wanted)}")


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {FRAME_S:.0f} s"
    return error.cause if isinstance(error, HostError) else clean(str(error))
