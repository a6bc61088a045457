//! The system calls of the kernel floor. None is unnecessary (every read and write is itself
//! non-blocking), and every result is checked. Any refusal by the kernel ends the process.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const BATCH: usize = 1024;
const TIMER: u64 = u64::MAX;
/// Edges: the kernel does not ask a socket again at the next wait.
const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const READ_WRITE: u32 = READ | libc::EPOLLOUT as u32;

pub struct Socket(OwnedFd);

impl Socket {
    /// Connects and waits: on loopback the connection is established within the call.
    pub fn connect(address: SocketAddrV4) -> Socket {
        let name = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
            sin_zero: [0; 8],
        };
        // SAFETY: no pointer is passed; the descriptor is new and has no other owner.
        let socket = unsafe {
            let descriptor = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            Socket(OwnedFd::from_raw_fd(checked("socket", descriptor)))
        };
        let size = size_of_val(&name) as libc::socklen_t;
        // SAFETY: the address is valid for its size.
        checked("connect", unsafe { libc::connect(socket.0.as_raw_fd(), (&raw const name).cast(), size) });
        socket
    }

    pub fn send_at_once(&self) {
        let on: libc::c_int = 1;
        let size = size_of_val(&on) as libc::socklen_t;
        let descriptor = self.0.as_raw_fd();
        // SAFETY: the option's value is valid for its size.
        checked("setsockopt", unsafe {
            libc::setsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const on).cast(), size)
        });
    }

    /// How many of the bytes the kernel accepted.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> usize {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the bytes are valid for their length.
        let count = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        transferred("send", count).unwrap_or(0)
    }

    /// `None`: nothing available. 0: the peer has closed.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        self.receive_with(buffer, libc::MSG_DONTWAIT)
    }

    pub fn receive_waiting(&self, buffer: &mut [u8]) -> usize {
        let count = self.receive_with(buffer, 0).unwrap_or(0);
        assert!(count > 0, "the server closed, or its reply is too long");
        count
    }

    #[inline]
    fn receive_with(&self, buffer: &mut [u8], flags: i32) -> Option<usize> {
        // SAFETY: the buffer is valid for its length.
        let count = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        transferred("recv", count)
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

pub struct Event {
    pub place: usize,
    pub writable: bool,
    /// The peer has closed: a read that does not fill its buffer is not the last.
    pub closed: bool,
    /// The time set by `end_after` is over; not a connection's place.
    pub ends: bool,
}

pub struct Poll {
    epoll: OwnedFd,
    timer: Option<OwnedFd>,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    pub fn new() -> Poll {
        // SAFETY: no pointer is passed; the descriptor is new and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(checked("epoll_create1", libc::epoll_create1(libc::EPOLL_CLOEXEC))) };
        Poll { epoll, timer: None, events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH] }
    }

    pub fn add(&self, socket: &Socket, place: usize) {
        self.control(libc::EPOLL_CTL_ADD, &socket.0, place as u64, READ);
    }

    pub fn read_only(&self, socket: &Socket, place: usize) {
        self.control(libc::EPOLL_CTL_MOD, &socket.0, place as u64, READ);
    }

    pub fn read_and_write(&self, socket: &Socket, place: usize) {
        self.control(libc::EPOLL_CTL_MOD, &socket.0, place as u64, READ_WRITE);
    }

    /// A timer among the events, so that the end of the run needs no clock reading.
    pub fn end_after(&mut self, seconds: f64) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: seconds as i64, tv_nsec: (seconds.fract() * 1e9) as i64 };
        let once = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the descriptor is new and has no other owner; the time is valid.
        let timer = unsafe {
            let descriptor = checked("timerfd_create", libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC));
            checked("timerfd_settime", libc::timerfd_settime(descriptor, 0, &once, std::ptr::null_mut()));
            OwnedFd::from_raw_fd(descriptor)
        };
        self.control(libc::EPOLL_CTL_ADD, &timer, TIMER, READ);
        self.timer = Some(timer);
    }

    fn control(&self, operation: i32, descriptor: &OwnedFd, token: u64, interest: u32) {
        let mut event = libc::epoll_event { events: interest, u64: token };
        let (epoll, descriptor) = (self.epoll.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: valid descriptors and a valid event.
        checked("epoll_ctl", unsafe { libc::epoll_ctl(epoll, operation, descriptor, &mut event) });
    }

    /// Waits for events; how many there are.
    #[inline]
    pub fn wait(&mut self) -> usize {
        let (epoll, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: there is room for BATCH events.
        checked("epoll_wait", unsafe { libc::epoll_wait(epoll, events, BATCH as i32, -1) }) as usize
    }

    #[inline]
    pub fn event(&self, at: usize) -> Event {
        let libc::epoll_event { events, u64: token } = self.events[at];
        let has = |any: i32| events & any as u32 != 0;
        let closed = has(libc::EPOLLRDHUP | libc::EPOLLHUP);
        Event { place: token as usize, writable: has(libc::EPOLLOUT), closed, ends: token == TIMER }
    }
}

/// Wall and CPU time of the process.
pub struct Usage {
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
}

impl Usage {
    pub fn now() -> Usage {
        // SAFETY: both are plain numbers, and valid to write to.
        let (time, usage) = unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            let mut usage: libc::rusage = std::mem::zeroed();
            checked("clock_gettime", libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time));
            checked("getrusage", libc::getrusage(libc::RUSAGE_SELF, &mut usage));
            (time, usage)
        };
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        let wall_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        Usage { wall_ns, user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) }
    }

    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            wall_ns: self.wall_ns - earlier.wall_ns,
            user_ns: self.user_ns - earlier.user_ns,
            system_ns: self.system_ns - earlier.system_ns,
        }
    }
}

/// The floor does not outlive its parent, nor its time limit.
pub fn end_with_parent_or_after(seconds: f64) {
    // SAFETY: no pointer is passed.
    unsafe {
        checked("prctl", libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL));
        libc::alarm(seconds.ceil() as u32);
    }
}

#[inline]
fn transferred(call: &str, count: isize) -> Option<usize> {
    if count >= 0 {
        return Some(count as usize);
    }
    let error = std::io::Error::last_os_error();
    if error.kind() != std::io::ErrorKind::WouldBlock {
        give_up(call, &error);
    }
    None
}

#[inline]
fn checked(call: &str, result: i32) -> i32 {
    if result < 0 {
        give_up(call, &std::io::Error::last_os_error());
    }
    result
}

#[cold]
pub fn give_up(call: &str, error: &std::io::Error) -> ! {
    eprintln!("floor: {call}: {error}");
    std::process::exit(1);
}
