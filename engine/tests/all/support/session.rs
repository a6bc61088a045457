//! JSON-RPC as a session, and servers that answer its calls.

use super::server::{Peer, TEXT, websocket};
use super::{closed, plan, with};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// JSON-RPC: `call` echoes its parameters, and the reply has its number.
pub fn rpc() -> Value {
    json!({
        "kind": "session", "opcode": "text", "records": {"kind": "message"}, "longest": 4096,
        "fields": [{"kind": "json", "path": ["id"]}, {"kind": "json", "path": ["error", "code"]}],
        "rules": [
            {"name": "error", "when": [{"kind": "has", "field": 1}], "does": {"kind": "fail", "by": 0, "last": true}, "captures": []},
            {"name": "result", "when": [{"kind": "has", "field": 0}], "does": {"kind": "reply", "by": 0, "marked": true, "last": true}, "captures": []},
            {"name": "notification", "when": [], "does": {"kind": "push"}, "captures": []},
        ],
        "templates": [[
            {"text": "{\"id\":"}, {"number": "sequence"}, {"text": ",\"params\":[\""}, {"postmark": {}}, {"letters": 20},
            {"text": "\"]}"},
        ]],
        "steps": [{"name": "call", "sends": 0, "awaits": {"kind": "rule", "rule": 1}}],
        "setup": 0, "keepalives": [], "data": null, "captured": 0, "rooms": null, "traced": false,
    })
}

pub fn session(address: SocketAddr, scenario: Value, changes: Value) -> Value {
    let usual = json!({"loop": closed(1), "connections": 4, "threads": 2, "measure": {"messages": 100}});
    with(with(plan(scenario, "websocket", address, "/"), usual), changes)
}

/// Answers every call with what `reply` makes of its number and its parameters.
pub fn answering(reply: impl Fn(&mut Peer, u64, &str) -> std::io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    websocket(move |peer, _, _, payload| {
        let call: Value = serde_json::from_slice(&payload).expect("JSON");
        reply(peer, call["id"].as_u64().expect("a number"), &call["params"].to_string())
    })
}

pub fn result(peer: &mut Peer, id: u64, params: &str) -> std::io::Result<()> {
    peer.send(TEXT, format!("{{\"jsonrpc\":\"2.0\",\"result\":{params},\"id\":{id}}}").as_bytes())
}
