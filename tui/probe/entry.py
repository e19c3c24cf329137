"""Where the shipped probe starts: puts the leash on, says hello, plays its role.

A role is a module with `play(arguments: Dict[str, Any], link: Link) -> None`; when that returns, the probe ends.
"""

import importlib
import os
import platform
import sys
import time
import traceback
from typing import Any, Dict

from tui.probe.leash import Link
from tui.wire import frames

MODULES = {
    frames.WATCH: "tui.probe.watch",
    frames.FOLLOW: "tui.probe.log_sources",
    frames.RELAY: "tui.probe.relay",
    frames.LOAD: "tui.probe.load",
    frames.RUN: "tui.probe.run",
    frames.FIND: "tui.probe.find",
}


def main(arguments: Dict[str, Any]) -> None:
    """Never returns: ends the process with 0, or with 1 after an error, which is the last frame's "why"."""
    role = str(arguments.get("role"))
    link = Link()
    link.start()
    link.send(
        {
            "f": "hello",
            "protocol": frames.PROTOCOL,
            "role": role,
            "python": platform.python_version(),
            "pid": os.getpid(),
            "wall": time.time(),
            "mono": time.monotonic(),
            "zone_s": time.localtime().tm_gmtoff,
        }
    )
    status = 0
    why = "done"
    try:
        if role not in MODULES:
            raise ValueError("the probe has no role %r" % role)
        importlib.import_module(MODULES[role]).play(arguments, link)
    except BaseException as error:
        status = 1
        traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1:]
        why = "%s: %s" % (type(error).__name__, error)
        for frame in where:
            why += " (%s:%s)" % ("/".join(frame.filename.split("/")[-2:]), frame.lineno)
    link.send({"f": "end", "why": why, "ok": status == 0})
    sys.stderr.flush()
    link.end(status)
