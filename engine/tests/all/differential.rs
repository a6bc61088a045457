//! The engine against tungstenite, an independent implementation of RFC 6455: every length class,
//! text and binary, both ways.

use crate::support::{echo, run, with};
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, accept_with_config};

/// An echo by tungstenite, which rejects violations of the RFC; the end of each connection is kept.
fn tungstenite_echo() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let said = ends.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let said = said.clone();
            std::thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let config = WebSocketConfig::default().max_frame_size(Some(17 << 20)).max_message_size(Some(17 << 20));
                let mut socket =
                    accept_with_config(stream, Some(config)).expect("a handshake that tungstenite accepts");
                let end = loop {
                    match socket.read() {
                        Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                            if let Err(error) = socket.send(message) {
                                break error;
                            }
                        }
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                };
                said.lock().unwrap().push(end.to_string());
            });
        }
    });
    (address, ends)
}

#[test]
fn every_size_comes_back_as_it_went() {
    let (address, ends) = tungstenite_echo();
    for opcode in ["text", "binary"] {
        for bytes in [0usize, 1, 15, 16, 17, 125, 126, 127, 65_535, 65_536, 1 << 20] {
            let run = run(&with(echo(address, opcode, bytes), json!({"connections": 2, "measure": {"messages": 20}})));
            run.errors_are(json!({}));
            run.ledger_is(20, 0, 0);
            let header = if bytes < 126 {
                2
            } else if bytes < 65_536 {
                4
            } else {
                10
            };
            assert_eq!(run.measured("bytes_received"), 20 * (header + bytes as u64), "{opcode} {bytes}");
            assert_eq!(run.measured("bytes_sent"), 20 * (header + 4 + bytes as u64), "{opcode} {bytes}");
        }
    }
    // The engine's closing is a Close frame that tungstenite understands.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let ends = ends.lock().unwrap();
    assert_eq!(ends.len(), 44);
    assert!(ends.iter().all(|end| end == "Connection closed normally"), "{ends:?}");
}

#[test]
fn the_largest_message_comes_back_as_it_went() {
    let (address, _) = tungstenite_echo();
    let limits = json!({"connect_s": 5.0, "reply_s": 20.0, "deadline_s": 35.0});
    let run = run(&with(echo(address, "binary", 16 << 20), json!({"measure": {"messages": 3}, "limits": limits})));
    run.errors_are(json!({}));
    run.ledger_is(3, 0, 0);
}

#[test]
fn many_connections_on_several_workers_mix_nothing_up() {
    let (address, _) = tungstenite_echo();
    let plan = with(
        echo(address, "text", 200),
        json!({"connections": 60, "threads": 2, "warmup": {"messages": 600}, "measure": {"messages": 6000}, "source_addresses": ["127.0.0.1", "127.0.0.2"]}),
    );
    let run = run(&plan);
    run.errors_are(json!({}));
    run.ledger_is(6000, 0, 0);
    assert_eq!(run.count("connect"), 60);
}
