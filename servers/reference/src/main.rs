//! The reference server: the least work a correct server can do for a message.
//!
//! In: HOST, PORT and THREADS. THREADS event loops share the port by SO_REUSEPORT and nothing else but the broadcasts of `/push`.
//! This file opens the listeners and starts the loops.

mod connection;
mod event_loop;
mod frame;
mod handshake;
mod http;
mod push;
mod spin;
mod websocket;

use event_loop::EventLoop;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::{env, process::ExitCode, sync::Arc, thread};

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("--version") {
        println!("reference {}, {}", env!("CARGO_PKG_VERSION"), env!("RUSTC_VERSION"));
        return ExitCode::SUCCESS;
    }
    match spin_per_message().and_then(|()| serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reference: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `--spin NS`: burns that much CPU time for every message.
fn spin_per_message() -> Result<(), String> {
    let mut arguments = env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(()),
        (Some("--spin"), Some(text)) => {
            spin::set(text.parse().map_err(|_| format!("--spin is not a number of nanoseconds: {text}"))?);
            Ok(())
        }
        _ => Err("allowed: --version, or --spin NS".into()),
    }
}

fn serve() -> Result<(), String> {
    let address = address()?;
    let threads = threads()?;
    // SO_REUSEPORT would let a second server join the first unseen and take half of its connections. This bind, which lacks it, refuses.
    drop(TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?);

    let hub = Arc::new(push::Hub::new(threads).map_err(|error| error.to_string())?);
    let mut loops = Vec::new();
    for number in 0..threads {
        let listener = listener(address).map_err(|error| format!("{address}: {error}"))?;
        let event_loop = EventLoop::new(number, listener, hub.clone()).map_err(|error| error.to_string())?;
        loops.push(thread::spawn(move || event_loop.run()));
    }
    for event_loop in loops {
        event_loop.join().expect("a panic aborts").map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn address() -> Result<SocketAddr, String> {
    let host = env::var("HOST").map_err(|_| "HOST is not set")?;
    let port = env::var("PORT").map_err(|_| "PORT is not set")?;
    let port: u16 = port.parse().map_err(|_| format!("PORT is not a port: {port}"))?;
    let found = (host.as_str(), port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?.next();
    found.ok_or_else(|| format!("{host}: no address"))
}

fn threads() -> Result<usize, String> {
    match env::var("THREADS") {
        Err(_) => Ok(thread::available_parallelism().map_or(1, usize::from)),
        Ok(text) => match text.parse() {
            Ok(threads) if threads > 0 => Ok(threads),
            _ => Err(format!("THREADS is not a number above 0: {text}")),
        },
    }
}

fn listener(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    // Accepted sockets inherit it: one system call for all of them.
    sockopt::set_tcp_nodelay(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, i32::MAX)?; // the kernel caps it at net.core.somaxconn
    Ok(socket)
}
