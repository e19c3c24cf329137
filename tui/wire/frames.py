"""Names of the probe's protocol, shared by the client and the GPU host.

A probe process plays one *role*. It is started by `boot` with a length, JSON arguments and a zip on its stdin; from then on
both directions carry JSON objects, one a line, UTF-8:

    client -> probe   {"do": "beat"}                         every BEAT_S; the probe ends after SILENCE_S without any line
                      {"do": NAME, ...}                      requests of the role (see the role's module)
    probe -> client   {"f": "hello", "role", "python", "pid", "wall", "mono", "zone_s"}   first
                      {"f": NAME, ...}                       frames of the role; "wall" and "mono" are the host's clocks in seconds
                      {"f": "error", "what", "why"}          something that the role could not do; it goes on
                      {"f": "end", "why"}                    last, when the role ends by itself

Python 3.8: this runs on the GPU host.
"""

import json
from typing import Any, Dict

PROTOCOL = 1
BEAT_S = 2.0
SILENCE_S = 8.0

# roles
WATCH = "watch"  # GPUs (frame "gpus"), the machine ("machine"), the engine's processes ("processes")
FOLLOW = "follow"  # one log source: frames "lines", "start", "source", "skipped"
RELAY = "relay"  # byte streams to a TCP or Unix socket of the host: frames "opened", "data", "closed"
LOAD = "load"  # the load generator: frames "progress", "point", "records"
RUN = "run"  # one foreign command on the leash: frames "out" (base64 bytes, "fd" 1 or 2), "exit"
FIND = "find"  # what serves there: frame "servers"
ROLES = (WATCH, FOLLOW, RELAY, LOAD, RUN, FIND)

# codes of the relay's frame "failed"
FORBIDDEN = 1
NOTHING_LISTENS = 2


def encode(message: Dict[str, Any]) -> bytes:
    """Return one message as a line of JSON (ASCII, so no byte of it can be cut inside a character)."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Dict[str, Any]:
    """Return the message in a line. Raise ValueError if it is no JSON object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("a frame must be a JSON object")
    return message
