//! The plans that a seed draws.

use super::peer;
use crate::plan::Plan;
use fastrand::Rng;
use serde_json::{Value, json};

pub fn one<T: Clone>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())].clone()
}

pub fn drawn_plan(random: &mut Rng, hostile: bool) -> Value {
    let bytes = one(random, &[1, 15, 16, 17, 60, 125, 126, 1000, 65_535, 65_536, 200_000]);
    let (scenario, transport) = match random.u32(..14) {
        0..4 => {
            let opcode = one(random, &["text", "binary"]);
            (json!({"kind": "echo", "opcode": opcode, "bytes": bytes, "content": null}), "websocket")
        }
        4 => (json!({"kind": "ping"}), "websocket"),
        5 => (json!({"kind": "ping"}), "tcp"),
        6 | 7 => (json!({"kind": "doc", "persistent": random.bool(), "bytes": bytes}), "http"),
        8 => (json!({"kind": "push", "slow_readers": one(random, &[0.0, 0.0, 0.3])}), "websocket"),
        9 => (json!({"kind": "idle"}), "websocket"),
        10 | 11 => (drawn_session(random, bytes.min(20_000)), "websocket"),
        _ => (drawn_rooms(random, bytes.min(20_000), hostile), "websocket"),
    };
    let in_rooms = scenario["rooms"].is_object();
    let kind = scenario["kind"].as_str().expect("a kind");
    let think = one(
        random,
        &[
            Value::Null,
            Value::Null,
            json!({"kind": "constant", "mean_s": 0.01}),
            json!({"kind": "exponential", "mean_s": 0.005}),
            json!({"kind": "uniform", "from_s": 0.0, "to_s": 0.02}),
        ],
    );
    let most = one(random, &[Value::Null, Value::Null, json!(1), json!(5)]);
    let depth = one(random, &[1usize, 1, 2, 5, 16]);
    let rate = one(random, if in_rooms { &[20.0, 300.0, 1000.0] } else { &[20.0, 300.0, 3000.0] });
    let segments = one(
        random,
        &[
            json!([{"from_per_s": rate, "to_per_s": rate, "for_s": 1.0}]),
            json!([{"from_per_s": 0.0, "to_per_s": rate, "for_s": 0.5}]),
            json!([{"from_per_s": rate, "to_per_s": rate, "for_s": 0.1}, {"from_per_s": 0.0, "to_per_s": 0.0, "for_s": 0.1}, {"from_per_s": rate, "to_per_s": rate, "for_s": 0.1}]),
        ],
    );
    let open_depth = one(random, &[Value::Null, json!(1), json!(4)]);
    let arrivals = one(random, &["constant", "poisson"]);
    let open = json!({"kind": "open", "arrivals": arrivals, "rate": segments, "depth": open_depth});
    let closed = json!({"kind": "closed", "depth": depth, "think": think, "messages_per_connection": most});
    let pace = match kind {
        "idle" => json!({"kind": "none"}),
        "push" => {
            json!({"kind": "open", "arrivals": arrivals, "rate": [{"from_per_s": 40.0, "to_per_s": 40.0, "for_s": 1.0}], "depth": null})
        }
        _ if random.bool() => closed,
        _ => open,
    };
    let deflate = json!({"level": random.u32(1..=6), "client_context_takeover": random.bool(), "server_context_takeover": random.bool()});
    let tls = json!({"verify": false, "ca": null});
    let shard = one(random, &[json!([0, 1]), json!([0, 1]), json!([0, 1]), json!([0, 2]), json!([1, 2])]);
    let connections = random.usize(1..=12);
    let users = random.usize(..=connections);
    let stages = json!([{"to": connections, "over_s": 0.2, "chunk": 1}, {"to": users, "over_s": 0.2, "chunk": 2}, {"to": connections, "over_s": 0.1, "chunk": 1}]);
    let by_count = kind != "idle" && kind != "push" && random.bool();
    let measure = if by_count { json!({"messages": random.u64(1..200)}) } else { json!({"seconds": 0.4}) };
    let warmup = match random.u32(..3) {
        0 => Value::Null,
        1 => json!({"seconds": 0.15}),
        _ if by_count => json!({"messages": random.u64(1..40)}),
        _ => Value::Null,
    };
    let sliced = json!({
        "windows": [[0.03, 0.06], [0.1, 0.12], [0.2, 0.26], [0.3, 0.34]], "lead_s": 0.01, "tail_s": 0.01,
        "frozen": random.bool(),
    });
    // An honest server is never too late, even where the machine takes the worker off its CPU for longer than that.
    let patience = if hostile && !in_rooms { one(random, &[0.1, 0.4]) } else { one(random, &[1.0, 8.0]) };
    let patience = if in_rooms { 8.0 } else { patience };
    json!({
        "format": 1, "scenario": scenario, "transport": transport,
        "target": {"address": "127.0.0.1:9", "replicas": [], "host": "x", "path": "/"},
        "loop": pace, "connections": connections,
        "connect": {"per_s": one(random, &[Value::Null, json!(500.0)]), "at_once": random.usize(1..=10)},
        "stages": if random.u32(..5) == 0 && !by_count { stages } else { Value::Null },
        "mask": one(random, &["random", "zero"]), "tls": if random.u32(..8) == 0 { tls } else { Value::Null },
        "deflate": if random.u32(..6) == 0 && transport == "websocket" { deflate } else { Value::Null },
        "fragment_bytes": if transport == "websocket" { one(random, &[Value::Null, Value::Null, json!(if bytes > 1000 { 5000 } else { 7 }), json!(1000)]) } else { Value::Null },
        "subprotocols": [], "warmup": warmup, "measure": measure,
        "slices": if random.u32(..4) == 0 { sliced } else { Value::Null },
        "drain_s": if kind == "push" || in_rooms { 10.0 } else { 0.3 }, "tick_s": one(random, &[1.0, 0.2]),
        "limits": {"connect_s": patience, "reply_s": patience, "deadline_s": 20.0},
        "threads": random.usize(1..=3.min(connections)), "cpus": [], "busy_poll": random.u32(..4) == 0,
        "receive_stamps": one(random, &[Value::Null, Value::Null, json!(2)]),
        "source_addresses": ["127.0.0.1"], "headers": [], "seed": random.u64(..1 << 40), "shard": shard, "gate_s": null,
    })
}

/// A session that a server of echoes keeps, which sometimes asks itself.
fn drawn_session(random: &mut Rng, letters: usize) -> Value {
    let opcode = one(random, &["text", "binary"]);
    let step = |name| json!({"name": name, "sends": 0, "awaits": {"kind": "rule", "rule": 0}});
    let reply = json!({"kind": "reply", "by": 0, "marked": true, "last": true});
    // In a stream of lines a server's messages are any parts of it.
    let (records, end) = match random.bool() {
        true => (json!({"kind": "message"}), ""),
        false => (json!({"kind": "lines", "counted": "MSG "}), "\r\n"),
    };
    let asked = json!({"name": "asked", "when": [{"kind": "begins", "text": "p"}], "does": {"kind": "answer", "template": 1}, "captures": []});
    json!({
        "kind": "session", "opcode": opcode, "records": records, "longest": 100_000,
        "fields": [{"kind": "json", "path": ["id"]}],
        "rules": [{"name": "reply", "when": [{"kind": "has", "field": 0}], "does": reply, "captures": []}, asked],
        "templates": [
            [
                {"text": "{\"id\":"}, {"number": "sequence"}, {"text": ",\"p\":\""}, {"postmark": {}}, {"letters": letters},
                {"text": format!("\"}}{end}")},
            ],
            [{"text": peer::ANSWER}, {"letters": one(random, &[10, 1000, 20_000])}, {"text": end}],
        ],
        "steps": [step("first"), step("second")], "setup": random.usize(..2), "keepalives": [], "data": null, "captured": 0,
        "rooms": null, "traced": false,
    })
}

/// Rooms, of which `Hub` is the server: its answer to a message follows the copies, or the copy is the answer.
fn drawn_rooms(random: &mut Rng, letters: usize, hostile: bool) -> Value {
    let own = random.u32(..4) > 0;
    let awaits_own = own && !hostile && random.bool();
    let awaits = if awaits_own { json!({"kind": "own"}) } else { json!({"kind": "rule", "rule": 0}) };
    json!({
        "kind": "session", "opcode": one(random, &["text", "binary"]), "records": {"kind": "message"}, "longest": 100_000,
        "fields": [{"kind": "json", "path": ["ack"]}, {"kind": "json", "path": ["id"]}],
        "rules": [
            {"name": "ack", "when": [{"kind": "has", "field": 0}], "does": {"kind": "reply", "by": 0, "marked": false, "last": true}, "captures": []},
            {"name": "copy", "when": [{"kind": "has", "field": 1}], "does": {"kind": "push"}, "captures": []},
        ],
        "templates": [
            [{"text": "{\"join\":"}, {"number": "sequence"}, {"text": "}"}],
            [
                {"text": "{\"id\":"}, {"number": "sequence"}, {"text": ",\"p\":\""}, {"postmark": {}}, {"letters": letters},
                {"text": "\"}"},
            ],
        ],
        "steps": [
            {"name": "join", "sends": 0, "awaits": {"kind": "rule", "rule": 0}},
            {"name": "say", "sends": 1, "awaits": awaits},
        ],
        "setup": 1, "keepalives": [], "data": null, "captured": 0, "traced": false,
        "rooms": {"count": random.u32(1..=4), "publishers": one(random, &[Value::Null, json!(1), json!(2)]), "own": own},
    })
}

/// A plan that the engine accepts: not every drawn plan is valid.
pub fn plan_of(random: &mut Rng, hostile: bool) -> Plan {
    loop {
        let plan: Plan = serde_json::from_value(drawn_plan(random, hostile)).expect("every key is there");
        if plan.check().is_ok() {
            return plan;
        }
    }
}
