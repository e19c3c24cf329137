"""When the load generator sends its requests, and when it has sent enough."""

import pytest

from tui.probe.load_schedule import Agenda, LoadOrder

BEGIN = 1000.0


@pytest.mark.parametrize(
    ("order", "sent", "after", "enough", "by_time"),
    [
        (LoadOrder(concurrency=2, requests=4), 3, 99.0, False, False),
        (LoadOrder(concurrency=2, requests=4), 4, 0.0, True, False),
        (LoadOrder(concurrency=2, duration_s=5.0), 999, 99.0, False, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0), 4, 4.9, False, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0), 3, 5.1, False, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0), 4, 5.1, True, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0, at_most_s=9.0), 3, 9.0, True, True),
        (LoadOrder(schedule=[0.5, 1.0]), 0, 0.0, False, False),
        (LoadOrder(schedule=[]), 0, 0.0, True, False),
    ],
)
def test_when_it_is_enough(order: LoadOrder, sent: int, after: float, enough: bool, by_time: bool) -> None:
    agenda = Agenda(order, lambda: 0)
    agenda.start(BEGIN)
    agenda.sent = sent
    assert agenda.is_enough(BEGIN + after) is enough
    assert agenda.wants_another(BEGIN + after) is (order.concurrency is not None and not enough)
    agenda.close(BEGIN + after)
    assert agenda.dispatch_end == (BEGIN + after if by_time else None)
    assert not agenda.wants_another(BEGIN + after)


def test_a_schedule_behind_a_gate() -> None:
    in_flight = 0
    agenda = Agenda(LoadOrder(schedule=[0.5, 1.0, 1.5], gate=2), lambda: in_flight)
    agenda.start(BEGIN)
    assert (agenda.planned, agenda.spare, agenda.next_at()) == (3, 2, 1000.5)
    assert agenda.take_due(1000.4) is None
    assert agenda.take_due(1001.2) == 1000.5
    in_flight = 2
    assert agenda.take_due(1001.2) is None
    assert agenda.next_at() == float("inf")
    in_flight = 1
    assert agenda.take_due(1001.2) == 1001.0
    assert agenda.next_at() == 1001.5
    assert not agenda.is_enough(1001.4)
    assert agenda.take_due(1001.6) == 1001.5
    assert agenda.is_enough(1001.6)


def test_slots_that_wait_come_in_the_order_of_their_times() -> None:
    agenda = Agenda(LoadOrder(concurrency=2, requests=9), lambda: 0)
    agenda.start(BEGIN)
    agenda.postpone(1002.0, 0)
    agenda.postpone(1001.0, 1)
    assert agenda.next_at() == 1001.0
    assert [agenda.take_later(now) for now in (1000.9, 1001.0, 1001.9, 1002.0, 1003.0)] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("schedule", "spare"), [(None, 0), ([], 2), ([0.0], 2), ([n / 100 for n in range(1, 301)], 12), ([0.001], 64)]
)
def test_idle_connections_follow_the_rate(schedule: list[float] | None, spare: int) -> None:
    assert Agenda(LoadOrder(schedule=schedule), lambda: 0).spare == spare
