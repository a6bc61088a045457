//! axum and its WebSocket. Environment: HOST, PORT, THREADS, TLS_CERT, TLS_KEY, NODELAY (sets TCP_NODELAY; the libraries do not).

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::response::{Html, Response};
use axum::routing::{any, get};
use axum::serve::ListenerExt;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

/// How many broadcasts a member may fall behind before it is dropped.
const MOST_UNSENT: usize = 1 << 16;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--version") {
        println!("{}", env!("RECEIPT"));
        return;
    }
    let threads = variable("THREADS").parse().expect("THREADS is a number");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.expect("a runtime").block_on(serve());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

async fn serve() {
    let router = Router::new()
        .route("/doc", get(doc))
        .route("/echo", any(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo) }))
        .route("/ping", any(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(ping) }))
        .route("/push", any(push))
        .with_state(broadcast::Sender::new(MOST_UNSENT));
    let nodelay = std::env::var_os("NODELAY").is_some();
    let address = format!("{}:{}", variable("HOST"), variable("PORT"));
    if let Ok(certificate) = std::env::var("TLS_CERT") {
        let config =
            RustlsConfig::from_pem_file(certificate, variable("TLS_KEY")).await.expect("a certificate and its key");
        let address: SocketAddr = address.parse().expect("HOST is an IP address");
        let acceptor = RustlsAcceptor::new(config);
        let service = router.into_make_service();
        if nodelay {
            axum_server::bind(address).acceptor(acceptor.acceptor(NoDelayAcceptor)).serve(service).await
        } else {
            axum_server::bind(address).acceptor(acceptor).serve(service).await
        }
        .expect("the port is free");
        return;
    }
    let listener = TcpListener::bind(address).await.expect("the port is free");
    let listener = listener.tap_io(move |stream| {
        if nodelay {
            stream.set_nodelay(true).expect("a new connection takes the option");
        }
    });
    axum::serve(listener, router).await.expect("axum::serve never ends");
}

#[derive(Deserialize)]
struct Document {
    size: usize,
}

async fn doc(Query(document): Query<Document>) -> Html<Vec<u8>> {
    Html(vec![b'.'; document.size])
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        let is_data = matches!(message, Message::Text(_) | Message::Binary(_));
        if is_data && socket.send(message).await.is_err() {
            return;
        }
    }
}

async fn ping(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        let asked = matches!(message, Message::Text(text) if text == "Ping");
        if asked && socket.send(Message::text("Pong")).await.is_err() {
            return;
        }
    }
}

type Tokens = broadcast::Sender<Arc<str>>;

/// Subscribes before the 101 is sent: whoever has seen it is a member.
async fn push(upgrade: WebSocketUpgrade, State(tokens): State<Tokens>) -> Response {
    let pushed = tokens.subscribe();
    upgrade.on_upgrade(|socket| member(socket, tokens, pushed))
}

async fn member(mut socket: WebSocket, tokens: Tokens, mut pushed: broadcast::Receiver<Arc<str>>) {
    loop {
        tokio::select! {
            received = socket.recv() => match received {
                Some(Ok(Message::Text(text))) => {
                    if let Some(token) = text.strip_prefix("broadcast ") {
                        // It fails when there is no member: not while this one has its receiver.
                        let _ = tokens.send(token.into());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            token = pushed.recv() => {
                // The only error that can be: the member has fallen too far behind.
                let Ok(token) = token else { return };
                let text = format!("{} {token}", epoch_micros());
                if socket.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn epoch_micros() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().expect("the clock is past 1970").as_micros()
}
