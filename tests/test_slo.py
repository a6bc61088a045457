"""SLOs as text."""

import pytest

from wsbench.analysis import slo
from wsbench.metrics import ladder
from wsbench.records.errors import UserError


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("p99 < 20ms", [("response_us_p99", "<", 20_000.0)]),
        ("response.p99.9 <= 1.5 s and lost = 0", [("response_us_p999", "<=", 1.5e6), ("errors", "==", 0.0)]),
        ("p95 < 7ms", [("response_us_p95", "<", 7_000.0)]),
        ("service.p50 < 300us", [("service_us_p50", "<", 300.0)]),
        ("push_last.p99 < 50ms and reach >= 99%", [("push_last_us_p99", "<", 50_000.0), ("push_reach", ">=", 0.99)]),
        ("error_fraction < 0.1 %", [("error_fraction", "<", 0.001)]),
    ],
)
def test_an_slo_is_conditions_that_all_hold(text, conditions):
    assert slo.parse(text).conditions == conditions


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p99 < 20", "p99 is a time; give the unit, such as p99 < 20ms"),
        ("p99 > 20ms", "an SLO says what holds, such as p99 < 20ms"),
        ("nothing.p99 < 1ms", "no latency 'nothing.p99'; allowed: response.p99"),
        ("messages_per_s > 100", "allowed: a time such as 'response.p99 < 20ms', or 'lost = 0'"),
        ("p99 < 20furlongs", "units allowed"),
        ("lost != 0", "an SLO says what holds"),
    ],
)
def test_another_text_is_refused_in_one_line(text, says):
    with pytest.raises(UserError) as refused:
        slo.parse(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_bound_of_a_time_leads():
    assert ladder.bound_us(slo.parse("lost = 0 and p99 < 5ms")) == 5_000
    assert ladder.timed([slo.parse("lost = 0"), slo.parse("push.p99 < 5ms"), slo.parse("push.p50 < 9ms")]) == ("push", 9_000)
    assert ladder.timed([slo.parse("lost = 0")]) == ("response", None)
