"""Examines a deployment from here to its first token, and yields what it finds one check at a time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from tui.core.api import Reach
from tui.core.checkup import Check, Grade, open_files_check, python_check, shm_check, space_check
from tui.core.text import clean
from tui.host.api import ApiError
from tui.host.base import Host, HostError, ProbeFailed
from tui.services.found import Server, best_server, servers_from_frame
from tui.services.search import find_servers
from tui.services.session import Session
from tui.services.tail import tail_frames
from tui.wire.frames import FIND, FOLLOW, WATCH

FRAME_S = 15.0
THROUGHPUT_BYTES = 4_000_000


async def examine(session: Session, *, token: bool = True) -> AsyncIterator[Check]:
    """All checks in order. `session` must not be entered: this connects its host once and leaves it connected."""
    host = session.host
    began = time.monotonic()
    try:
        await host.connect()
    except HostError as error:
        yield Check("connection", Grade.FAIL, error.cause, error.advice)
        for name in ("python3", "GPUs", "log", "API"):
            yield Check(name, Grade.SKIPPED, "the host isn't reached")
        return
    yield Check(
        "connection", Grade.OK, f"{host.name}: connected in {(time.monotonic() - began) * 1000:.0f} ms, host key and login accepted"
    )
    yield await _link(host)
    server: Server | None = None
    async for check, found in _probe(host):
        server = server or found
        yield check
    async for check in _machine(host, server):
        yield check
    yield await _log(session, server)
    async for check in _api(session, server, token):
        yield check


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
        return Check("link", Grade.WARN, f"{says}: slow, but the control room works on it")
    return Check("link", Grade.OK, says)


async def _probe(host: Host) -> AsyncIterator[tuple[Check, Server | None]]:
    """The probe: Python, servers, GPUs."""
    try:
        hello, frame = await _frames(host, FIND, {}, ("hello", "servers"))
    except (HostError, TimeoutError) as error:
        fix = error.advice if isinstance(error, ProbeFailed) and error.advice else "install python3 >= 3.8 on the host"
        yield Check("python3", Grade.WARN, f"{_words(error)}; nvidia-smi and a shell stand in for the probe", fix), None
        if isinstance(error, ProbeFailed):
            try:
                yield _server(await find_servers(host))
            except (HostError, TimeoutError) as failed:
                yield Check("server", Grade.WARN, _words(failed), 'name the log in the configuration: log = "file:/path"'), None
    else:
        yield python_check(clean(str(hello.get("python", "")))), None
        yield _server(servers_from_frame(frame))


def _server(servers: tuple[Server, ...]) -> tuple[Check, Server | None]:
    server = best_server(servers, None)
    if server is None:
        return Check(
            "server", Grade.WARN, "no vLLM or SGLang process is seen", "start it, or log in as a user who may see it"
        ), None
    more = f" (and {len(servers) - 1} more)" if len(servers) > 1 else ""
    where = f", port {server.port}" if server.port else ""
    says = f"{server.engine} pid {server.pid}, {server.model or 'model unknown'}{where}, user {server.user or '—'}{more}"
    return Check("server", Grade.OK, says), server


async def _machine(host: Host, server: Server | None) -> AsyncIterator[Check]:
    """The GPUs, and what of the machine decides whether a server can work."""
    gpus: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    trouble = ""
    try:
        gpus, machine = await _frames(host, WATCH, {"hz": 2.0, "pids": None, "paths": []}, ("gpus", "machine"))
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


async def _log(session: Session, server: Server | None) -> Check:
    source = session.deployment.engines[0].log
    if source == "none":
        return Check("log", Grade.SKIPPED, 'log = "none" in the configuration')
    if source == "auto":
        if server is None:
            return Check("log", Grade.SKIPPED, "log = auto, and no server was found to ask")
        if server.source is None:
            fix = 'start the server with its output in a file, and set log = "file:/path"'
            return Check("log", Grade.WARN, f"where pid {server.pid} writes can't be read: {clean(server.why or '')}", fix)
        source = server.source
    kind, _, rest = source.partition(":")
    arguments: dict[str, Any] = {"source": kind, "path": rest, "from": None, "start_markers": [], "important": [], "tail": 5}
    try:
        (frame,) = await _frames(session.host, FOLLOW, arguments, ("source",), or_error=True)
    except ProbeFailed as error:
        return await _log_without_probe(session.host, kind, rest, _words(error))
    except (HostError, TimeoutError) as error:
        return Check("log", Grade.FAIL, f"{clean(source)}: {_words(error)}", "check the path and its permissions, or set become")
    return _log_check(source, frame)


def _log_check(source: str, frame: dict[str, Any]) -> Check:
    if frame.get("f") == "error" or frame.get("why"):
        fix = "check the path and its permissions, or set become"
        return Check("log", Grade.FAIL, f"{clean(source)}: {clean(str(frame.get('why')))}", fix)
    size = frame.get("size")
    return Check("log", Grade.OK, f"{clean(source)}" + (f", {size / 1e6:,.1f} MB" if isinstance(size, int) else ""))


async def _log_without_probe(host: Host, kind: str, path: str, why: str) -> Check:
    """Of a file a shell of the host tells the same."""
    source = f"{kind}:{path}"
    if kind != "file":
        fix = 'install python3 >= 3.8 on the host, or set log = "file:/path"'
        return Check("log", Grade.FAIL, f"{clean(source)}: {why}; without it only files can be followed", fix)
    try:
        async with asyncio.timeout(FRAME_S), aclosing(tail_frames(host, path, None, seconds=0.0)) as frames:
            async for frame in frames:
                if frame.get("f") == "source":
                    return _log_check(source, frame)
    except (HostError, TimeoutError) as error:
        why = _words(error)
    return Check("log", Grade.FAIL, f"{clean(source)}: {why}", "check the path and its permissions")


async def _api(session: Session, server: Server | None, token: bool) -> AsyncIterator[Check]:
    api, url = session.api, session.deployment.api
    status = await api.poll()
    if status.reach is Reach.CLOSED:
        listens = f"; a server listens on port {server.port}" if server is not None and server.port else ""
        yield Check(
            "API",
            Grade.WARN,
            f"{url}: nothing listens there yet{listens}",
            "wait for the load to end, or set api = in the configuration",
        )
        return
    if status.reach is not Reach.UP:
        yield Check("API", Grade.FAIL, f"{url}: {status.error or f'/health answers {status.health}'}", "see the log of the server")
        return
    yield Check("API", Grade.OK, f"{url}: healthy" + (f", version {status.version}" if status.version else ""))
    if not status.models:
        fix = "set api_key_env or VLLM_API_KEY" if status.error and "401" in status.error else "see the log of the server"
        yield Check("model", Grade.FAIL, status.error or "none is listed", fix)
        return
    wanted = session.deployment.model or status.models[0].id
    if wanted not in {one.id for one in status.models}:
        listed = ", ".join(one.id for one in status.models)
        yield Check("model", Grade.FAIL, f"{wanted!r} is not served; listed: {listed}", f"set model = {status.models[0].id!r}")
        return
    yield Check("model", Grade.OK, wanted)
    if token:
        began = time.monotonic()
        try:
            await api.post("/v1/completions", {"model": wanted, "prompt": "1", "max_tokens": 1, "temperature": 0}, timeout=60.0)
        except ApiError as error:
            yield Check("one token", Grade.FAIL, str(error), "see the log of the server")
        else:
            yield Check("one token", Grade.OK, f"generated in {(time.monotonic() - began) * 1000:.0f} ms")


async def _frames(
    host: Host, role: str, arguments: dict[str, Any], wanted: tuple[str, ...], *, or_error: bool = False
) -> list[dict[str, Any]]:
    """The first frame of each name, in that order; with `or_error`, an error frame stands for any of them.

    Raises ProbeFailed, Unreachable or TimeoutError.
    """
    found: dict[str, dict[str, Any]] = {}
    stream = await host.start_probe(role, arguments)
    try:
        async with asyncio.timeout(FRAME_S):
            async for frame in stream:
                name = str(frame.get("f"))
                if name == "error" and or_error:
                    return [frame for _ in wanted]
                if name in wanted:
                    found.setdefault(name, frame)
                if len(found) == len(wanted):
                    return [found[one] for one in wanted]
                if name == "end":
                    break
    finally:
        await stream.close()
    raise ProbeFailed(f"the probe's role {role} ended without saying {', '.join(wanted)}")


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {FRAME_S:.0f} s"
    return error.cause if isinstance(error, HostError) else clean(str(error))
