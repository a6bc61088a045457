"""The checker checked: a right server passes everything, and every check fails for a fault of its own.

`FAULTS` says for each fault which checks fail, among those of the rooms that it concerns (all others are left out, for time).
"""

import os

import pytest
from faulty_server import serving

from wsbench.checks import conformance
from wsbench.checks.conformance import deep, push, registry, sockets

EVERYTHING = ("doc", "echo", "ping", "push")
LARGE = {"echo_keeps_lengths", "echo_returns_1_mib", "echo_returns_16_mib"}
DOCUMENTS = {spec.name for spec in registry.SPECS if spec.scenarios == ("doc",)}
REFUSALS = {spec.name for spec in registry.SPECS if spec.name.endswith(("_is_refused", "_are_refused"))}
VIOLATIONS = {name for name in REFUSALS if not name.startswith(("handshake", "close"))}
ECHOES = {spec.name for spec in registry.SPECS if spec.function.__module__.endswith("messages")}
AFTER = "still_serves_after_violations"
BURST = "echo_answers_a_burst_in_order"
STAMPS, SLOW = "push_stamps_are_in_microseconds", "push_does_not_wait_for_one_that_does_not_read"
CHURN = "push_keeps_its_members_while_others_come_and_go"
PUSHES = {
    "push_reaches_every_member_once",
    "push_reaches_a_crowd",
    "push_keeps_other_texts_apart",
    "push_survives_members_that_leave",
}

FAULTS = [
    # The handshake
    ("wrong accept", "handshake", {"handshake_is_accepted"}),
    ("compresses unasked", "handshake", {"handshake_is_accepted"}),
    ("sensitive to case", "handshake", {"handshake_may_be_written_otherwise"}),
    (
        "any version",
        "handshake",
        {"handshake_of_another_version_is_refused", "handshake_refused_names_the_version"},
    ),
    ("does not name its version", "handshake", {"handshake_refused_names_the_version"}),
    ("any key", "handshake", {"handshake_without_a_key_is_refused", "handshake_with_a_short_key_is_refused"}),
    ("any method", "handshake", {"handshake_by_post_is_refused"}),
    ("upgrades unasked", "handshake", {"request_without_upgrade_is_no_handshake"}),
    # Messages
    ("text becomes binary", "messages", ECHOES - {"echo_returns_binary", "echo_returns_16_mib", BURST}),
    ("alters bytes", "messages survival", {"echo_returns_binary", "still_serves", AFTER}),
    ("ignores empty", "messages", {"echo_returns_empty"}),
    ("loses the last byte", "messages", LARGE),
    ("swaps", "messages", {"echo_answers_a_burst_in_order"}),
    ("needs whole heads", "messages", {"echo_takes_a_frame_in_pieces"}),
    ("mixes connections", "messages", {"echo_keeps_connections_apart"}),
    ("masks", "messages ping", ECHOES | {"ping_is_answered"}),
    # Fragments
    (
        "forgets fragments",
        "fragments",
        {
            *("fragments_are_assembled", "fragments_may_be_many", "fragments_may_be_empty"),
            *("fragments_may_split_a_character", "ping_frame_between_fragments_gets_a_pong"),
        },
    ),
    ("fifty fragments at most", "fragments", {"fragments_may_be_many"}),
    ("no empty fragments", "fragments", {"fragments_may_be_empty"}),
    ("UTF-8 by fragment", "fragments", {"fragments_may_split_a_character"}),
    ("late pong", "fragments", {"ping_frame_between_fragments_gets_a_pong"}),
    # Control frames
    (
        "no pong",
        "control survival",
        {
            *("ping_frame_gets_a_pong", "ping_frame_may_be_empty", "ping_frame_may_have_125_bytes"),
            *("ping_frame_may_be_binary", "pong_unasked_is_ignored", "still_serves", AFTER),
        },
    ),
    ("no empty pong", "control", {"ping_frame_may_be_empty"}),
    ("pong of 100 bytes", "control", {"ping_frame_may_have_125_bytes"}),
    ("pong is text", "control", {"ping_frame_may_be_binary"}),
    ("minds pongs", "control", {"pong_unasked_is_ignored"}),
    # What is not to be taken
    ("takes unmasked frames", "violations", {"unmasked_frame_is_refused"}),
    ("takes reserved bits", "violations", {"reserved_bits_are_refused"}),
    ("takes reserved opcodes", "violations", {"reserved_opcodes_are_refused"}),
    ("takes large control frames", "violations", {"large_control_frame_is_refused"}),
    ("takes fragmented control frames", "violations", {"fragmented_control_frame_is_refused"}),
    ("takes stray continuations", "violations", {"continuation_without_start_is_refused"}),
    ("takes messages inside messages", "violations", {"message_inside_a_message_is_refused"}),
    ("takes any text", "violations", {"invalid_utf8_is_refused", "invalid_utf8_over_fragments_is_refused"}),
    ("wrong code", "violations", VIOLATIONS),
    (
        "dies of bad text",
        "violations survival",
        {"invalid_utf8_is_refused", "invalid_utf8_over_fragments_is_refused", AFTER},
    ),
    # The close
    (
        "no close",
        "closing",
        {
            *("close_frame_is_answered", "close_frame_may_be_empty", "close_codes_of_applications_are_taken"),
            "nothing_follows_the_close_frame",
        },
    ),
    ("needs a code", "closing", {"close_frame_may_be_empty"}),
    ("only normal closes", "closing", {"close_codes_of_applications_are_taken"}),
    ("takes any code", "closing", {"close_codes_that_do_not_exist_are_refused"}),
    ("takes half a code", "closing", {"close_frame_of_one_byte_is_refused"}),
    ("takes any reason", "closing", {"close_reason_that_is_not_utf8_is_refused"}),
    ("talks after the end", "closing", {"nothing_follows_the_close_frame"}),
    (
        "stays open",
        "closing documents",
        {"close_frame_ends_the_connection", "nothing_follows_the_close_frame", "doc_closes_when_asked"},
    ),
    # Ping and push
    ("wrong answer", "ping survival", {"ping_is_answered", "still_serves", AFTER}),
    ("sends twice", "push", PUSHES | {STAMPS, CHURN}),
    ("not to the sender", "push", PUSHES | {STAMPS, SLOW, CHURN}),
    ("milliseconds", "push", PUSHES | {STAMPS, SLOW}),
    ("whole milliseconds", "push", {STAMPS}),
    ("reaches forty", "push", {"push_reaches_a_crowd"}),
    ("broadcasts everything", "push", {"push_keeps_other_texts_apart"}),
    ("keeps those who left", "push", PUSHES - {"push_reaches_every_member_once"} | {STAMPS, SLOW, CHURN}),
    ("waits for slow ones", "push", {SLOW}),
    ("loses some", "push", {STAMPS, SLOW, CHURN}),
    # Documents
    (
        "short document",
        "documents survival",
        {"doc_is_exact_and_persistent", "doc_closes_when_asked", "still_serves", AFTER},
    ),
    ("plain text", "documents", DOCUMENTS - {"doc_announces_the_close"}),
    ("speaks first", "documents", DOCUMENTS - {"doc_keeps_a_connection", "doc_never_breaks_off"}),
    (
        "closes always",
        "documents",
        {
            *("doc_is_exact_and_persistent", "doc_keeps_a_connection", "doc_never_breaks_off"),
            "doc_waits_for_a_request",
        },
    ),
    ("closes without a word", "documents", {"doc_announces_the_close"}),
    ("tires of documents", "documents", {"doc_keeps_a_connection"}),
    ("tires without a word", "documents", {"doc_keeps_a_connection", "doc_never_breaks_off"}),
    # The process
    ("listens everywhere", "sockets", {"listens_nowhere_else"}),
    ("leaks", "sockets", {"ended_connections_are_released"}),
    # Deep
    ("tires of idling", "deep", {"idle_connections_live"}),
    ("loses the last byte", "deep", {"echo_returns_16_mib_again_and_again"}),
    ("reaches forty", "deep", {"push_reaches_fifteen_thousand"}),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """The same checks, with fewer of everything."""
    monkeypatch.setattr(push, "CHURN", 10)
    monkeypatch.setattr(deep, "MEMBERS", 60)


def failed(fault: str, rooms: str, patience_s: float = 2.0) -> dict[str, str]:
    """Which checks of these rooms fail, and what they say."""
    modules = {f"wsbench.checks.conformance.{room}" for room in rooms.split()}
    chosen = [spec for spec in registry.SPECS if spec.function.__module__ in modules]
    with pytest.MonkeyPatch.context() as patch, serving(fault) as port:
        patch.setattr(registry, "SPECS", chosen)
        patch.setattr(sockets, "RELEASE_S", patience_s)
        patch.setattr(deep, "BROADCAST_S", min(5 * patience_s, 60))
        results = conformance.check(
            "127.0.0.1", port, EVERYTHING, "websocket", pid=os.getpid(), deep=True, idle_s=0.7, patience_s=patience_s
        )
    return {result.name: result.detail for result in results if not result.passed}


@pytest.mark.system
def test_a_right_server_passes_every_check() -> None:
    with serving() as port:
        results = conformance.check("127.0.0.1", port, EVERYTHING, "websocket", pid=os.getpid(), deep=True, idle_s=0.7)
    assert [result for result in results if not result.passed] == []
    spoken = {spec.name for spec in registry.SPECS if spec.transport != "tcp"}
    assert {result.name for result in results} == spoken


@pytest.mark.system
def test_every_check_is_seen_failing() -> None:
    seen = {name for _, _, fails in FAULTS for name in fails} | TCP
    assert {spec.name for spec in registry.SPECS} == seen


TCP = {"ping_is_answered_over_tcp", "ping_keeps_connections_apart", "idle_tcp_connections_live"}


@pytest.mark.system
def test_a_chunked_document_is_a_document() -> None:
    assert failed("chunked", "documents") == {}


@pytest.mark.system
@pytest.mark.parametrize(("fault", "rooms", "fails"), FAULTS)
def test_a_fault_fails_its_checks_and_no_other(fault: str, rooms: str, fails: set[str]) -> None:
    found = set(failed(fault, rooms))
    # On a busy machine others take longer than that.
    assert (set(failed(fault, rooms, patience_s=120)) if found > fails else found) == fails
