"""Role "run": one foreign command on the leash (`nvidia-smi -lms`, `journalctl -f`, `docker logs -f`).

    arguments  {"argv": [word…], "environment": {name: value} added, "cwd": path}; only argv is needed
    requests   {"do": "stop"}   kills it, with all that it started

    {"f": "started", "pid"}
    {"f": "out", "fd": 1|2, "b64"}                 bytes as the command writes them; a slow client holds the command up
    {"f": "exit", "status": n or null, "signal": n or null}
    {"f": "error", "what", "why", "code"}          it could not be started: code is the error's name (`ENOENT`)

The command gets no stdin.
"""

import base64
import errno
import os
import selectors
import subprocess
import time
from typing import Any, Dict

from tui.probe.leash import Link

PIECE = 65536
LINGER_S = 1.0
"""How long output is still read after the command ended; what it left behind is killed first."""


def play(arguments: Dict[str, Any], link: Link) -> None:
    argv = [str(word) for word in arguments["argv"]]
    environment = dict(os.environ)
    environment.update(arguments.get("environment") or {})
    try:
        child = link.spawn(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=arguments.get("cwd"),
        )
    except OSError as error:
        link.send({"f": "error", "what": argv[0], "why": error.strerror, "code": errno.errorcode.get(error.errno or 0)})
        return
    link.send({"f": "started", "pid": child.pid})
    _pump(child, link)
    status = child.wait()
    link.reaped(child)
    link.send({"f": "exit", "status": status if status >= 0 else None, "signal": -status if status < 0 else None})


def _pump(child: "subprocess.Popen[bytes]", link: Link) -> None:
    """Pass output on until both pipes are at their end, or the command ended and the rest is read."""
    watcher = selectors.DefaultSelector()
    watcher.register(link.wake_fd, selectors.EVENT_READ, 0)
    pipes = 0
    for number, pipe in ((1, child.stdout), (2, child.stderr)):
        if pipe is not None:
            watcher.register(pipe, selectors.EVENT_READ, number)
            pipes += 1
    deadline = None
    while pipes and (deadline is None or time.monotonic() < deadline):
        for key, _ in watcher.select(0.2):
            if key.data == 0:
                request = link.request(0)
                if request is not None and request.get("do") == "stop":
                    link.kill(child)
                continue
            data = os.read(key.fd, PIECE)
            if data:
                link.send({"f": "out", "fd": key.data, "b64": base64.b64encode(data).decode("ascii")})
            else:
                watcher.unregister(key.fileobj)
                pipes -= 1
        if deadline is None and child.poll() is not None:
            link.reaped(child)
            deadline = time.monotonic() + LINGER_S
    watcher.close()
    while child.poll() is None:  # it closed its output and goes on
        request = link.request(0.5)
        if request is not None and request.get("do") == "stop":
            link.kill(child)
