//! fastwebsockets at hyper's upgrades. Environment: HOST, PORT, THREADS.

use fastwebsockets::upgrade::{UpgradeFut, upgrade};
use fastwebsockets::{FragmentCollector, FragmentCollectorRead, Frame, OpCode, WebSocketError};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

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
    let Ok((response, websocket)) = upgrade(&mut request) else { return Ok(status(StatusCode::BAD_REQUEST)) };
    match request.uri().path() {
        "/echo" => drop(tokio::spawn(echo(websocket))),
        "/ping" => drop(tokio::spawn(ping(websocket))),
        "/push" => {
            // Joined before the 101 is sent: whoever has seen it is a member.
            let (sender, tokens) = mpsc::unbounded_channel();
            let number = JOINED.fetch_add(1, Ordering::Relaxed);
            members.lock().expect("no panic under the lock").insert(number, sender);
            tokio::spawn(async move {
                // However it ends, the connection leaves.
                let _ = push(websocket, &members, tokens).await;
                members.lock().expect("no panic under the lock").remove(&number);
            });
        }
        _ => return Ok(status(StatusCode::NOT_FOUND)),
    }
    Ok(response.map(|_| Full::default()))
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

async fn echo(websocket: UpgradeFut) -> Result<(), WebSocketError> {
    let mut websocket = FragmentCollector::new(websocket.await?);
    loop {
        let frame = websocket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary => websocket.write_frame(frame).await?,
            _ => {}
        }
    }
}

async fn ping(websocket: UpgradeFut) -> Result<(), WebSocketError> {
    let mut websocket = FragmentCollector::new(websocket.await?);
    loop {
        let frame = websocket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text if *frame.payload == *b"Ping" => {
                websocket.write_frame(Frame::text(b"Pong".as_slice().into())).await?;
            }
            _ => {}
        }
    }
}

/// Reads and writes at once. A read that is given up loses what it has read: each half is one future that lives as long as the connection.
async fn push(
    websocket: UpgradeFut,
    members: &Members,
    mut tokens: UnboundedReceiver<Arc<str>>,
) -> Result<(), WebSocketError> {
    let (reader, writer) = websocket.await?.split(tokio::io::split);
    let writer = tokio::sync::Mutex::new(writer);
    let read = async {
        let mut reader = FragmentCollectorRead::new(reader);
        loop {
            // Pongs and the answer to Close are handed to the caller to send.
            let answer = &mut async |frame| writer.lock().await.write_frame(frame).await;
            let frame = reader.read_frame(answer).await?;
            match frame.opcode {
                OpCode::Close => return Ok(()),
                OpCode::Text => broadcast(&frame.payload, members),
                _ => {}
            }
        }
    };
    let write = async {
        while let Some(token) = tokens.recv().await {
            let micros = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is past 1970").as_micros();
            let text = Frame::text(format!("{micros} {token}").into_bytes().into());
            writer.lock().await.write_frame(text).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}

fn broadcast(text: &[u8], members: &Members) {
    // The package has checked that a text is UTF-8.
    let Some(token) = text.strip_prefix(b"broadcast ").and_then(|token| str::from_utf8(token).ok()) else { return };
    let token: Arc<str> = token.into();
    for member in members.lock().expect("no panic under the lock").values() {
        // A member that is just leaving takes itself off the list.
        let _ = member.send(token.clone());
    }
}
