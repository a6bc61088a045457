//! tokio-tungstenite at hyper's upgrades. Environment: HOST, PORT, THREADS.

use futures_util::{SinkExt, StreamExt};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

type WebSocket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;
type Members = Arc<Mutex<HashMap<u64, UnboundedSender<Arc<str>>>>>;

/// How many have ever joined: a member's number in the list.
static JOINED: AtomicU64 = AtomicU64::new(0);

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
    let address = format!("{}:{}", variable("HOST"), variable("PORT"));
    let listener = TcpListener::bind(address).await.expect("the port is free");
    let members = Members::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: some connection has to close first.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let members = members.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| respond(request, members.clone()));
            let http = hyper::server::conn::http1::Builder::new();
            // What goes wrong on a connection ends it, no more.
            let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
    }
}

async fn respond(mut request: Request<Incoming>, members: Members) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/doc" {
        return Ok(doc(request.uri().query()));
    }
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY) else { return Ok(status(StatusCode::BAD_REQUEST)) };
    let accept = derive_accept_key(key.as_bytes());
    let path = request.uri().path().to_owned();
    let upgraded = hyper::upgrade::on(&mut request);
    let websocket = async {
        let io = TokioIo::new(upgraded.await.ok()?);
        Some(WebSocketStream::from_raw_socket(io, Role::Server, None).await)
    };
    match path.as_str() {
        "/echo" => drop(tokio::spawn(async { echo(websocket.await?).await })),
        "/ping" => drop(tokio::spawn(async { ping(websocket.await?).await })),
        "/push" => {
            // Joined before the 101 is sent: whoever has seen it is a member.
            let (sender, tokens) = mpsc::unbounded_channel();
            let number = JOINED.fetch_add(1, Ordering::Relaxed);
            members.lock().expect("no panic under the lock").insert(number, sender);
            tokio::spawn(async move {
                if let Some(websocket) = websocket.await {
                    push(websocket, &members, tokens).await;
                }
                members.lock().expect("no panic under the lock").remove(&number);
            });
        }
        _ => return Ok(status(StatusCode::NOT_FOUND)),
    }
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response.body(Full::default()).expect("a valid response"))
}

fn doc(query: Option<&str>) -> Response<Full<Bytes>> {
    match query.and_then(|query| query.strip_prefix("size=")).map(str::parse) {
        Some(Ok(size)) => {
            let body = Full::from(vec![b'.'; size]);
            Response::builder().header(CONTENT_TYPE, "text/html").body(body).expect("a valid response")
        }
        _ => status(StatusCode::BAD_REQUEST),
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::default()).expect("a valid response")
}

async fn echo(mut websocket: WebSocket) -> Option<()> {
    loop {
        let message = websocket.next().await?.ok()?;
        if message.is_text() || message.is_binary() {
            websocket.send(message).await.ok()?;
        }
    }
}

async fn ping(mut websocket: WebSocket) -> Option<()> {
    loop {
        let message = websocket.next().await?.ok()?;
        if matches!(message, Message::Text(text) if text == "Ping") {
            websocket.send(Message::text("Pong")).await.ok()?;
        }
    }
}

async fn push(mut websocket: WebSocket, members: &Members, mut tokens: UnboundedReceiver<Arc<str>>) -> Option<()> {
    loop {
        tokio::select! {
            message = websocket.next() => {
                if let Message::Text(text) = message?.ok()? && let Some(token) = text.strip_prefix("broadcast ") {
                    let token: Arc<str> = token.into();
                    for member in members.lock().expect("no panic under the lock").values() {
                        // A member that is just leaving takes itself off the list.
                        let _ = member.send(token.clone());
                    }
                }
            }
            token = tokens.recv() => {
                let micros = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is past 1970").as_micros();
                websocket.send(Message::text(format!("{micros} {}", token?))).await.ok()?;
            }
        }
    }
}
