//! The time from the read that freed a place for a message until the message is passed to the
//! kernel: the engine's own share of `service` (benches/RESULTS.md). A measurement, not a test:
//! `cargo test --release --lib -- --ignored --nocapture from_the_read`.

use crate::clock::{self, Usage};
use crate::control::{self, Control, Phase, Report};
use crate::counts::{Counts, new_histogram};
use crate::plan::Plan;
use crate::poll::Poll;
use crate::push::Board;
use crate::run::begin_from;
use crate::system::{Event, Interest, System};
use crate::worker::{Common, Worker};
use hdrhistogram::Histogram;
use serde_json::json;
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

/// The real machine, with a record of the time from a read to the next send.
struct Timed {
    poll: Poll,
    read_ns: u64,
    gaps: Rc<RefCell<Histogram<u64>>>,
}

impl System for Timed {
    type Socket = OwnedFd;
    type Handle = RawFd;

    fn handle(socket: &OwnedFd) -> RawFd {
        Poll::handle(socket)
    }

    fn now_ns(&self) -> u64 {
        self.poll.now_ns()
    }

    fn unix_ns(&self) -> u64 {
        self.poll.unix_ns()
    }

    fn to_unix_ns(&self) -> u64 {
        self.poll.to_unix_ns()
    }

    fn usage(&self) -> Usage {
        self.poll.usage()
    }

    fn connect(&mut self, plan: &Plan, number: u32) -> io::Result<OwnedFd> {
        self.poll.connect(plan, number)
    }

    fn watch(&mut self, socket: RawFd, index: usize, interest: Interest) -> io::Result<()> {
        self.poll.watch(socket, index, interest)
    }

    fn change(&mut self, socket: RawFd, index: usize, interest: Interest) -> io::Result<()> {
        self.poll.change(socket, index, interest)
    }

    fn error_of(&mut self, socket: RawFd) -> io::Result<()> {
        self.poll.error_of(socket)
    }

    fn send(&mut self, socket: RawFd, bytes: &[u8]) -> io::Result<Option<usize>> {
        // The first piece sent after a read; the others are in flight with it.
        if let read_ns @ 1.. = std::mem::take(&mut self.read_ns) {
            self.gaps.borrow_mut().saturating_record(clock::now_ns() - read_ns);
        }
        self.poll.send(socket, bytes)
    }

    fn receive(&mut self, socket: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let received = self.poll.receive(socket, buffer);
        self.read_ns = clock::now_ns();
        received
    }

    fn ask_for_stamps(&mut self, socket: RawFd) -> io::Result<()> {
        self.poll.ask_for_stamps(socket)
    }

    fn receive_stamped(&mut self, socket: RawFd, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        self.poll.receive_stamped(socket, buffer)
    }

    fn end_sending(&mut self, socket: RawFd) {
        self.poll.end_sending(socket);
    }

    fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        self.poll.wait(timeout_ns)
    }

    fn reported_all(&self) -> bool {
        true
    }

    fn event(&mut self, at: usize) -> Option<Event> {
        self.poll.event(at)
    }
}

/// An echo server with one connection for each thread: unmasks the input and returns it with a server's header.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream).ok());
        }
    });
    address
}

fn serve(mut stream: std::net::TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::with_capacity(1 << 18, stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        input.read_line(&mut head)?;
    }
    let key = head.split("Sec-WebSocket-Key: ").nth(1).and_then(|rest| rest.lines().next()).expect("a key");
    let accept = crate::handshake::accept(key);
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes())?;
    let mut out = Vec::new();
    loop {
        let mut front = [0; 2];
        input.read_exact(&mut front)?;
        let mut wide = [0; 8];
        let extended = match front[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        input.read_exact(&mut wide[8 - extended..])?;
        let length = if extended == 0 { u64::from(front[1] & 0x7f) } else { u64::from_be_bytes(wide) } as usize;
        let mut key = [0; 4];
        input.read_exact(&mut key)?;
        let mut payload = vec![0; length];
        input.read_exact(&mut payload)?;
        payload.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        out.extend_from_slice(&[front[0], front[1] & 0x7f]);
        out.extend_from_slice(&wide[8 - extended..]);
        out.extend_from_slice(&payload);
        // Replies to messages that arrived together return together.
        if input.buffer().is_empty() {
            stream.write_all(&out)?;
            out.clear();
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn from_the_read_to_the_send() {
    for (connections, depth, bytes) in [(50, 1, 16), (50, 16, 16), (10, 1, 16 << 10), (4, 1, 1 << 20)] {
        let address = echo();
        let plan = json!({
            "format": 1, "scenario": {"kind": "echo", "opcode": "binary", "bytes": bytes, "content": null}, "transport": "websocket",
            "target": {"address": address.to_string(), "replicas": [], "host": "x", "path": "/"},
            "loop": {"kind": "closed", "depth": depth, "think": null, "messages_per_connection": null},
            "connections": connections, "connect": {"per_s": null, "at_once": 10}, "stages": null, "mask": "random", "tls": null,
            "deflate": null, "fragment_bytes": null, "subprotocols": [], "warmup": null, "measure": {"seconds": 3.0}, "slices": null, "drain_s": 1.0, "tick_s": 1.0,
            "limits": {"connect_s": 5.0, "reply_s": 5.0, "deadline_s": 20.0}, "threads": 1, "cpus": [], "busy_poll": false,
            "receive_stamps": null, "source_addresses": ["127.0.0.1"], "headers": [], "seed": 1, "shard": [0, 1], "gate_s": null,
        });
        let plan: Arc<Plan> = Arc::new(serde_json::from_value(plan).expect("a plan"));
        let (sender, reports) = control::channel(1);
        let control = Arc::new(Control::default());
        let board = Arc::new(Board::new(&plan));
        let common = Common { plan: plan.clone(), tls: None, control: control.clone(), board, reports: sender };
        let gaps = Rc::new(RefCell::new(new_histogram()));
        let system = Timed { poll: Poll::new().expect("epoll"), read_ns: 0, gaps: gaps.clone() };
        let mut worker = Worker::new(0, common, system).expect("a worker");
        let (mut all, mut service) = (Counts::new(), new_histogram());
        worker.begin(clock::now_ns());
        while worker.goes_on() {
            worker.step();
            for (_, report) in reports.try_iter() {
                match report {
                    Report::Settled { .. } => {
                        gaps.borrow_mut().reset();
                        begin_from(&plan, &control, clock::now_ns() + 2_000_000);
                    }
                    Report::Tick(tick) => tick.interval.lent.each(|_, bucket, count| all.add(bucket, count)),
                    _ => {}
                }
            }
        }
        assert!(worker.timeline.phase >= Phase::Drain);
        all.copy_to(&mut service);
        let (gaps, us) = (gaps.borrow(), |ns: u64| ns as f64 / 1000.0);
        println!(
            "{connections} connections, depth {depth}, {bytes} B: from the read to the send p50 {:.2} µs, p99 {:.2} µs; service p50 {:.1} µs",
            us(gaps.value_at_quantile(0.5)),
            us(gaps.value_at_quantile(0.99)),
            us(service.value_at_quantile(0.5)),
        );
    }
}
