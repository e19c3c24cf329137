"""What container runtimes, journals and schedulers put around each line of a server's output, and how to take it off.

A wrapper may carry a time of its own. Its clock need not be the server's (container stores stamp UTC, servers write local time),
so it is handed on apart from the record's.
"""

import re
from calendar import timegm
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """The inner text, which may hold several lines, and what the wrapper told: seconds since 1970 as its own clock reads, UTC where
    it names a zone. `level` and `process` only come from JSON records; `local` tells that `at` is the server's own clock."""

    text: str
    at: float | None = None
    level: str | None = None
    process: str | None = None
    local: bool = False
    head: str = ""


_MONTHS = {
    name: at for at, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)
}
_ISO = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"

LEAP_YEAR_S = 366 * 86400.0
YEARLESS_UNTIL = timegm((2001, 1, 1, 0, 0, 0, 0, 0, 0))
"""Times that bear no year are taken for ones of the leap year 2000, which ends here."""

_SGR_WITHOUT_ESC = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m")
_COMPOSE = re.compile(r"[\w.@/-]{1,80} +\| ?")
_KUBECTL_PREFIX = re.compile(r"\[(?:pod/)?[\w.-]+/[\w.-]+(?:/[\w.-]+)?\] ")
_NUMBER = re.compile(r" {0,3}\d{1,4}: | {0,6}\d{1,7}\t")
"""`srun --label` and `cat -n`."""
_GREP = re.compile(r"[^\s:]{1,200}\.(?:log|txt|out|err):\d+[:-]")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))? \S+ [^\s:]{1,64}: ?")
_SYSLOG_FULL = re.compile(rf"[A-Z][a-z]{{2}} {_ISO} \S+ \S+ [^\s:]{{1,64}}: ?")
_TORCHSERVE = re.compile(rf"{_ISO} \[(?:INFO|WARN|ERROR|DEBUG) *\] \S+ \S+ (?:- )?- ?")
_CRI = re.compile(rf"{_ISO} std(?:out|err) [FP] ?")
_ISO_SYSLOG = re.compile(rf"{_ISO} [\w.-]+ [\w.@-]+\[\d+\]: ?")
_STAMP = re.compile(
    rf"{_ISO}(?: (?:UTC|GMT)(?=[ \t]))?[ \t](?:\| ?)?(?:\[(?:info|error|warn|warning|debug|stdout|stderr|out|err)\][ \t])?"
)
_LEVEL = re.compile(r"[ \t]+(?=(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b)")
_FOREIGN = re.compile(r"[-\t]|(?:INFO|WARNING|ERROR|DEBUG)\b[\t ]")
_BLOB = re.compile(r"\[[\d.]+[KMG]?B blob data\]$")

_WRAPPED_START = frozenset("0123456789{[ ") | frozenset(name[0] for name in _MONTHS) | frozenset("MTWFS")


def strip_colour_remnants(text: str) -> str:
    """Remove colour codes whose ESC byte a log store dropped: `[1;36m(Worker pid=1)[0;0m`."""
    return _SGR_WITHOUT_ESC.sub("", text)


def hides_data(text: str) -> bool:
    """Recognise journalctl's stand-in for a message that held control characters, such as every progress bar."""
    return _BLOB.match(text) is not None


def unwrap(line: str) -> Unwrapped | None:
    """Take one wrapper off; None if the line wears none."""
    first = line[:1]
    if first == "{":
        return _from_json(line)
    if first.isdigit():
        return _from_stamp(line)
    if first == "[":
        match = _KUBECTL_PREFIX.match(line)
        return Unwrapped(line[match.end() :]) if match else None
    if first.isupper() and line[3:4] == " ":
        match = _SYSLOG.match(line)
        if match and match[1] in _MONTHS:
            # No year: the caller knows it from the records inside, so only the time of day and the day of the year matter here.
            seconds = timegm((2000, _MONTHS[match[1]], int(match[2]), int(match[3]), int(match[4]), int(match[5]), 0, 0, 0))
            return Unwrapped(line[match.end() :], None if match[6] is None else seconds + float(f"0.{match[6]}"))
        match = _SYSLOG_FULL.match(line)
        return Unwrapped(line[match.end() :], _seconds(match)) if match else None
    if " | " in line[:84] or line[:84].rstrip().endswith("|"):
        match = _COMPOSE.match(line)
        return Unwrapped(line[match.end() :]) if match else None
    if first == " ":
        match = _NUMBER.match(line)
        return Unwrapped(line[match.end() :]) if match else None
    if ":" in line[4:120]:
        match = _GREP.match(line)
        if match:
            return Unwrapped(line[match.end() :])
    if first == ">" and line[1:2] in (" ", ""):
        return Unwrapped(line[2:])  # quoted, as in a mail or a report
    return None


def _from_stamp(line: str) -> Unwrapped | None:
    if line[4:5] != "-" or line[7:8] != "-":
        match = _NUMBER.match(line) or (_COMPOSE.match(line) if " | " in line[:84] else None)
        return Unwrapped(line[match.end() :]) if match else None
    for pattern in (_TORCHSERVE, _CRI, _ISO_SYSLOG):
        match = pattern.match(line)
        if match:
            return Unwrapped(line[match.end() :], _seconds(match))
    match = _STAMP.match(line)
    if match is None:
        match = re.fullmatch(_ISO, line.strip())
        return Unwrapped("", _seconds(match)) if match else None
    rest = line[match.end() :]
    if rest[:1] in " \t":
        rest = _LEVEL.sub("", rest, count=1)  # of a traceback's lines the indentation tells which they are
    if line[10:11] == " " and match[8] is None and _FOREIGN.match(rest):
        return None  # a record of Ray, FlashInfer and the like, in the server's own clock: no wrapper
    return Unwrapped(rest, _seconds(match))


def _seconds(match: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second, fraction, zone = match.groups()[:8]
    if not (int(year) >= 1 and 1 <= int(month) <= 12):
        return None  # it only looks like a time
    seconds = float(timegm((int(year), int(month), int(day), int(hour), int(minute), int(second), 0, 0, 0)))
    if fraction:
        seconds += int(fraction) / 10 ** len(fraction)
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return seconds


def _iso_seconds(text: object) -> float | None:
    match = re.match(_ISO, text) if isinstance(text, str) else None
    return _seconds(match) if match else None


def _from_json(line: str) -> Unwrapped | None:
    """docker's json-file, `journalctl -o json`, and JSON records of vLLM itself or of any logging library."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if isinstance(record.get("log"), str):
        return Unwrapped(record["log"], _iso_seconds(record.get("time")))
    if "MESSAGE" in record:
        message = record["MESSAGE"]
        if isinstance(message, list):  # bytes, since it holds control characters
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")
        stamp = record.get("__REALTIME_TIMESTAMP")
        at = int(stamp) / 1e6 if isinstance(stamp, str) and stamp.isdigit() else None
        return Unwrapped(message if isinstance(message, str) else "", at)
    if isinstance(record.get("fields"), dict):
        record = {**record["fields"], **record}  # as Rust's tracing writes them
    for name in ("message", "msg", "textPayload", "event"):
        message = record.get(name)
        if isinstance(message, str):
            break
    else:
        return None
    level = record.get("levelname") or record.get("level") or record.get("severity")
    process = record.get("vllm_process_name") or record.get("processName")
    pid = record.get("process") or record.get("pid")
    for name in ("exc_info", "exc_text", "traceback"):
        if isinstance(record.get(name), str) and record[name] not in message:
            message = f"{message}\n{record[name]}"
    local = isinstance(record.get("asctime"), str)
    at = next(
        (at for at in (_iso_seconds(record.get(name)) for name in ("asctime", "timestamp", "time", "ts")) if at is not None), None
    )
    where = record.get("filename") or record.get("name") or ""
    return Unwrapped(
        message,
        at,
        level.upper() if isinstance(level, str) else None,
        f"{process} pid={pid}" if isinstance(process, str) and isinstance(pid, int) else None,
        local,
        f"{where}:{record.get('lineno', record.get('line', ''))}",
    )
