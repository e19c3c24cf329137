"""What is said of a point beside its figures: a client that was the limit, a schedule that was not kept, names of loads."""

from typing import Any

import pytest

from tui.core.bench_remarks import LIMITED, client_words, late_words, load_name, never_sent
from tui.core.bench_result import Point
from tui.widgets.bench_pane import remarks

FILES = (
    "the load generator ran out of open files (a process may have 1,024): 192 requests could not be sent, whatever the server does:"
    " raise the hard limit (ulimit -Hn), share the load among processes with --workers,"
    " or bound the requests in flight with --concurrency"
)


PORTS = (
    "the load generator ran out of local ports: 1 request could not be sent, whatever the server does:"
    " widen net.ipv4.ip_local_port_range, or bound the requests in flight with --concurrency"
)


STARVED = "no idle core on the load generator's machine (0.0 of 2 cores idle): everything there waited, perhaps the server too"


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({}, []),
        ({"client_limited": False, "errors_by_kind": {"http_503": 4}}, []),
        ({"client_limited": True, "errors_by_kind": {}}, [LIMITED]),
        ({"client_limited": True, "errors_by_kind": {"open_files": 192}, "client_open_files": 1024}, [FILES]),
        (
            {"client_limited": True, "errors_by_kind": {"open_files": 192}, "client_open_files": None},
            [FILES.replace(" (a process may have 1,024)", "")],
        ),
        ({"client_limited": True, "errors_by_kind": {"no_ports": 1, "http_503": 4}}, [PORTS]),
        ({"client_limited": False, "host_idle_cores": 0.0, "host_cores": 2.0, "duration": 9.0}, [STARVED]),
        ({"client_limited": True, "host_idle_cores": 0.04, "host_cores": 2.0, "duration": 9.0}, [LIMITED, STARVED]),
        ({"client_limited": False, "host_idle_cores": 0.0, "host_cores": 2.0, "duration": 0.2}, []),
        ({"client_limited": False, "host_idle_cores": 0.3, "host_cores": 2.0, "duration": 9.0}, []),
        (
            {"client_limited": False, "host_idle_cores": 0.45, "host_cores": 224.0, "duration": 9.0},
            [STARVED.replace("0.0 of 2", "0.5 of 224")],
        ),
        ({"client_limited": False, "host_idle_cores": 0.6, "host_cores": 224.0, "duration": 9.0}, []),
        ({"client_limited": False, "host_idle_cores": None, "host_cores": 2.0, "duration": 9.0}, []),
    ],
)
def test_what_the_client_ran_out_of(figures: dict[str, Any], words: list[str]) -> None:
    assert client_words(figures) == words


LATE = {"median_schedule_slip_ms": 4712.0, "p99_schedule_slip_ms": 9394.4, "peak_concurrency": 2}


@pytest.mark.parametrize(
    ("figures", "gate", "words"),
    [
        ({"median_schedule_slip_ms": 0.8, "p99_schedule_slip_ms": 7.2, "unsent_requests": 0}, 2, None),
        ({"median_schedule_slip_ms": 9.9, "p99_schedule_slip_ms": 99.0, "unsent_requests": None}, None, None),
        ({}, None, None),
        (LATE, 2, "the schedule was not kept: sent late by 4.71 s in the median, 9.39 s at p99 (at most 2 streams were allowed)"),
        (
            {**LATE, "peak_concurrency": 1, "unsent_requests": 1},
            1,
            "the schedule was not kept: sent late by 4.71 s in the median, 9.39 s at p99, 1 request was due and never sent "
            "(only 1 stream was allowed)",
        ),
        (
            {"median_schedule_slip_ms": 2.0, "p99_schedule_slip_ms": 140.2, "peak_concurrency": 2},
            64,
            "the schedule was not kept: sent late by 2 ms in the median, 140 ms at p99 "
            "(the client was the limit: it, or its connections, could not keep up)",
        ),
        (
            {"median_schedule_slip_ms": None, "p99_schedule_slip_ms": None, "unsent_requests": 1204, "peak_concurrency": 32}
            | {"client_most_streams": 32},
            None,
            "the schedule was not kept: 1,204 requests were due and never sent (the client has at most 32 streams)",
        ),
    ],
)
def test_a_schedule_that_was_not_kept(figures: dict[str, Any], gate: int | None, words: str | None) -> None:
    assert late_words(figures, gate) == words


@pytest.mark.parametrize(
    ("duration", "sent", "unsent"),
    [(3.0, 150, 0), (3.0, 149, 0), (3.0, 12, 136), (1.0, 40, 7), (30.0, 150, 0), (30.0, 0, 150)],
)
def test_what_was_due_and_never_sent(duration: float, sent: int, unsent: int) -> None:
    schedule = [0.02 * (i + 1) for i in range(150)]
    figures = {"duration": duration, "num_prompts": sent}
    assert never_sent(schedule, figures) == pytest.approx(unsent, abs=1)  # the last moments count for nothing


@pytest.mark.parametrize(
    ("streams", "figures", "name"),
    [
        (8, {"request_rate": "inf", "burstiness": 1.0, "repeat": None}, "8"),
        (1, {"request_rate": "inf", "burstiness": 1.0, "repeat": "again"}, "1 (again)"),
        (0, {"request_rate": 8.0, "burstiness": 1.0}, "8 req/s, Poisson"),
        (0, {"request_rate": 8.0}, "8 req/s"),
        (1024, {"request_rate": 0.5, "burstiness": 0.2}, "0.5 req/s, burstiness 0.2, at most 1,024 at once"),
    ],
)
def test_a_load_is_named_by_what_drives_it(streams: int, figures: dict[str, Any], name: str) -> None:
    assert load_name(Point(streams, figures)) == name


def test_its_remarks_name_the_rate() -> None:
    (told,) = remarks(None, [Point(0, {"request_rate": 50.0, "warnings": ["the schedule was not kept: sent late by 1 s"]})], None)
    assert told.plain == "▲ 50 requests/s: the schedule was not kept: sent late by 1 s"
