"""The titles of metrics: what people read in place of `half_response_us_p99`."""

from __future__ import annotations

import re

TITLES = {
    "messages_per_s": "throughput",
    "requests_per_s": "throughput",
    "time_per_request_ms": "time per request",
    "time_per_request_across_ms": "time per request, across all",
    "served_90_ms": "time in which 90 % were served",
    "elapsed_us_per_message": "window per message",
    "received_bytes_per_s": "bytes received per second",
    "sent_bytes_per_s": "bytes sent per second",
    "connects_per_s": "connections per second",
    "ready_s": "time to the first handshake",
    "recovery_s": "recovery from overload",
    "start_spread_us": "spread of the workers' starts",
    "rate_ratio": "messages sent, of those due",
    "planned_rate_ratio": "messages due, of those planned",
    # broadcasts and losses
    "push_reach": "delivery ratio",
    "pushes_per_s": "delivery rate",
    "push_spread_us": "time from the first to the last receiver",
    "error_fraction": "share of errors",
    "listen_overflows": "connects dropped at a full listen queue",
    "backlog_drops": "packets dropped at a CPU's full queue",
    # the server
    "server_cpu_percent_mean": "server CPU",
    "server_cpu_percent_max": "highest server CPU",
    "server_cpu_us_per_message": "server CPU per message",
    "server_cpu_us_per_push": "server CPU per delivered message",
    "server_rss_bytes_max": "server memory",
    "server_rss_bytes_start": "server memory at the start",
    "server_pss_bytes_ready": "server memory (PSS) before the load",
    "server_pss_bytes_idle": "server memory (PSS) while idle",
    "server_pss_bytes_ended": "server memory (PSS) after the load",
    "server_group_bytes_max": "most memory of the server's control group",
    "server_group_socket_bytes_max": "most socket memory of the server's control group",
    "server_group_kernel_bytes_max": "most kernel memory of the server's control group",
    "server_threads_max": "most threads of the server",
    "server_fds_max": "most open files of the server",
    "server_voluntary_switches_per_s": "voluntary context switches of the server",
    "server_involuntary_switches_per_s": "involuntary context switches of the server",
    # the engine and the machine
    "engine_adds_us": "engine's part of the response time",
    "engine_cpu_percent_mean": "engine CPU",
    "engine_cpu_percent_connecting": "engine CPU while connecting",
    "engine_wait_percent": "engine's wait for a CPU",
    "engine_wait_us_per_message": "engine's wait for a CPU per message",
    "engine_voluntary_switches_per_s": "voluntary context switches of the engine",
    "engine_involuntary_switches_per_s": "involuntary context switches of the engine",
    "cpu_idle_percent": "idle CPU of the machine",
    "memory_available_bytes_min": "least available memory of the machine",
    "sampling_cpu_percent": "CPU of the sampling",
    "turns_disturbed": "disturbed turns",
    "resting_cpu_ms": "server CPU between its slices",
    # the runtime
    "gc_minor": "collections of the young generation",
    "gc_mixed": "mixed collections",
    "gc_full": "full collections",
    "gc_concurrent": "concurrent collections",
    "gc_pause_ms_sum": "time in GC pauses",
    "gc_pause_ms_max": "longest GC pause",
    "gc_pause_ms_p99": "p99 GC pause",
    "gc_pause_percent": "share of time in GC pauses",
    "near_gc_replies_percent": "share of replies near GC pauses",
    "near_gc_service_percent": "share of service time near GC pauses",
    "service_us_mean_apart_from_gc": "mean service time apart from GC pauses",
    "safepoint_ms_sum": "time in safepoints",
    "safepoint_ms_max": "longest safepoint",
    "heap_used_bytes_max": "largest heap in use",
    "heap_committed_bytes_max": "largest committed heap",
    "heap_after_gc_bytes_max": "largest heap after a collection",
    # of a span of the trial
    "s": "time",
    "server_cpu_percent": "server CPU",
    "rss_bytes": "server memory",
    "memory_used_bytes": "memory in use on the machine",
    "memory_free_bytes": "unused memory of the machine",
    "memory_grown_bytes": "growth of the machine's used memory",
    "slab_grown_bytes": "kernel memory growth",
    "socket_buffer_bytes_max": "most memory in TCP buffers",
}
SPANS = {"connect": "while connecting", "idle": "while idle", "sending": "while sending"}
STATISTICS = {"p50": "median", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "maximum", "mean": "mean"}
TIMES = {
    "service": "service time",
    "request": "request time",
    "response": "response time",
    "connect": "connect time",
    "setup": "setup of a session",
    "send_lag": "delay of sending",
    "receive_delay": "delay of receiving",
    "push": "delivery time",
    "push_stamp": "one-way delivery time",
    "push_last": "time to the last receiver",
    "event_loop_delay": "delay of the event loop",
}


def title(metric: str, inside: bool = False) -> str:
    """A metric as a heading, e.g. `Median service time`; with `inside`, in lower case for use in a sentence."""
    found = _statistic(metric) or _capacity(metric) or TITLES.get(metric) or _of_span(metric) or metric.replace("_", " ")
    if inside or found.startswith("p9"):
        return found
    return found[0].upper() + found[1:]


def _statistic(metric: str) -> str | None:
    prefix, unit, statistic = re.fullmatch(r"(.*?)(?:_(us|ms)_(\w+))?", metric).groups()
    if unit is None or prefix not in TIMES:
        return None
    if (of_tick := re.fullmatch(r"tick_mean_(max|p99)", statistic)) is not None:
        return f"{STATISTICS[of_tick[1]]} of the ticks' mean {TIMES[prefix]}"
    return f"{STATISTICS[statistic]} {TIMES[prefix]}" if statistic in STATISTICS else None


def _capacity(metric: str) -> str | None:
    """The first SLO of a ladder has no number."""
    found = re.fullmatch(r"capacity(?:_(\d))?_(per_s|connections)", metric)
    if found is None:
        return None
    number, over = found.groups()
    return ("capacity" if over == "per_s" else "capacity in connections") + (f", SLO {number}" if number else "")


def _of_span(metric: str) -> str | None:
    span, _, rest = metric.partition("_")
    return f"{TITLES[rest]} {SPANS[span]}" if span in SPANS and rest in TITLES else None
