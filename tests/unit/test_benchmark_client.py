"""The words for a load that its own client limited."""

from typing import Any

import pytest

from tui.core.bench_remarks import LIMITED, client_words

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
