//! The system calls of a worker: epoll, connect, recv, send and a waker. A thin safe layer that
//! contains nearly all `unsafe` code of the hot path.

use crate::clock::{self, Usage};
use crate::plan::Plan;
use crate::system::{Event, Interest, System};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

impl Interest {
    fn events(self) -> u32 {
        match self {
            Interest::Nothing => 0,
            Interest::Read => READ,
            Interest::ReadWrite => READ | libc::EPOLLOUT as u32,
        }
    }
}

/// Edges, so that the kernel does not ask every socket again at the next wait. Behind urgent data the kernel begins another
/// read (tcp(7)).
const READ: u32 = (libc::EPOLLET | libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;
const GOES_ON: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;
/// For the waker and the timer.
const LEVEL: u32 = libc::EPOLLIN as u32;

/// The tokens of the waker and of the timer; connections are numbered from 0.
const WAKER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const BATCH: usize = 1024;

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Wakes a worker from another thread.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight valid bytes. A full counter means that the worker is awake already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), 8) };
    }
}

pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    waker: Waker,
    /// Ends a wait on kernels before 5.11, which have no epoll_pwait2.
    timer: Option<OwnedFd>,
}

impl Poll {
    pub fn new() -> io::Result<Poll> {
        // SAFETY: plain system calls; the descriptors they return are owned here alone.
        let (epoll, event) = unsafe {
            let epoll = OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?);
            let event = OwnedFd::from_raw_fd(checked(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?);
            (epoll, event)
        };
        let poll = Poll { epoll, events: Vec::with_capacity(BATCH), waker: Waker(Arc::new(event)), timer: None };
        poll.control(libc::EPOLL_CTL_ADD, poll.waker.0.as_raw_fd(), WAKER, LEVEL)?;
        Ok(poll)
    }

    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    #[inline]
    fn wait_precisely(&mut self, timeout_ns: u64) -> io::Result<i32> {
        let timeout = timespec(timeout_ns);
        // SAFETY: the vector has room for BATCH events.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                BATCH as libc::c_int,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        checked(count as i32)
    }

    /// The same before Linux 5.11: epoll_wait has milliseconds, a timer has nanoseconds.
    #[cold]
    fn wait_by_timer(&mut self, timeout_ns: u64) -> io::Result<i32> {
        let timer = self.timer.as_ref().expect("it was made").as_raw_fd();
        let milliseconds = if timeout_ns == 0 { 0 } else { -1 };
        // A time of zero would stop the timer, which is what a wait without a time wants: an old end is silent then.
        let time = libc::itimerspec { it_interval: timespec(0), it_value: timespec(timeout_ns) };
        // SAFETY: a valid time, and a vector with room for BATCH events.
        unsafe {
            checked(libc::timerfd_settime(timer, 0, &time, std::ptr::null_mut()))?;
            let events = self.events.as_mut_ptr();
            checked(libc::epoll_wait(self.epoll.as_raw_fd(), events, BATCH as libc::c_int, milliseconds))
        }
    }

    #[cold]
    fn make_timer(&mut self) -> io::Result<()> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: a plain system call; the descriptor that it returns is owned here alone.
        let timer = unsafe { OwnedFd::from_raw_fd(checked(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?) };
        self.control(libc::EPOLL_CTL_ADD, timer.as_raw_fd(), TIMER, LEVEL)?;
        self.timer = Some(timer);
        Ok(())
    }

    fn control(&self, operation: i32, descriptor: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: valid descriptors and a valid event.
        checked(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &mut event) }).map(drop)
    }
}

impl System for Poll {
    type Socket = OwnedFd;
    type Handle = RawFd;

    fn handle(socket: &OwnedFd) -> RawFd {
        socket.as_raw_fd()
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn unix_ns(&self) -> u64 {
        clock::unix_ns()
    }

    fn to_unix_ns(&self) -> u64 {
        clock::to_unix_ns()
    }

    fn usage(&self) -> Usage {
        Usage::of_this_thread()
    }

    fn connect(&mut self, plan: &Plan, number: u32) -> io::Result<OwnedFd> {
        let target = plan.address_of(number);
        let kind = Type::from(libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let socket = Socket::new_raw(Domain::for_address(target), kind, Some(Protocol::TCP))?;
        if !plan.connection_per_request() {
            socket.set_tcp_nodelay(true)?;
        }
        let source = plan.source_of(number);
        if !is_natural(source, target.ip()) {
            bind_address_only(&socket);
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&target.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(socket.into()),
        }
    }

    fn watch(&mut self, socket: RawFd, index: usize, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, index as u64, interest.events())
    }

    fn change(&mut self, socket: RawFd, index: usize, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, index as u64, interest.events())
    }

    fn error_of(&mut self, socket: RawFd) -> io::Result<()> {
        let mut code = 0i32;
        let mut size = size_of::<i32>() as libc::socklen_t;
        // SAFETY: room for one int, and its size.
        checked(unsafe {
            libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut code).cast(), &mut size)
        })?;
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
    }

    #[inline]
    fn send(&mut self, socket: RawFd, bytes: &[u8]) -> io::Result<Option<usize>> {
        // SAFETY: the bytes are valid for their length.
        let count = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        nonblocking(count)
    }

    #[inline]
    fn receive(&mut self, socket: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the buffer is valid for its length.
        let count = unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        nonblocking(count)
    }

    fn ask_for_stamps(&mut self, socket: RawFd) -> io::Result<()> {
        set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    fn receive_stamped(&mut self, socket: RawFd, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = [0u64; 16];
        // SAFETY: an all-zero header is valid; it points to one buffer and to room for control messages, both alive. The
        // control messages are walked by the library's own macros, and a timespec is read unaligned.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let Some(count) = nonblocking(libc::recvmsg(socket, &mut message, 0))? else { return Ok(None) };
            let mut stamp = None;
            let mut header = libc::CMSG_FIRSTHDR(&message);
            while !header.is_null() {
                if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_TIMESTAMPNS {
                    let time: libc::timespec = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                    stamp = Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
                }
                header = libc::CMSG_NXTHDR(&message, header);
            }
            Ok(Some((count, stamp)))
        }
    }

    fn end_sending(&mut self, socket: RawFd) {
        // SAFETY: shutdown of any socket is safe; one that is not connected is an error that changes nothing.
        unsafe { libc::shutdown(socket, libc::SHUT_WR) };
    }

    /// Waits at most `timeout_ns`, in nanoseconds and not in milliseconds. Returns the number of events.
    #[inline]
    fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        self.events.clear();
        let count = match &self.timer {
            None => self.wait_precisely(timeout_ns),
            Some(_) => self.wait_by_timer(timeout_ns),
        };
        match count {
            // SAFETY: exactly as many events as the kernel wrote are taken as valid.
            Ok(count) => unsafe { self.events.set_len(count as usize) },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A sandbox that does not know the call may say that it is forbidden.
            Err(error) if self.timer.is_none() && matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                self.make_timer()?;
                return self.wait(timeout_ns);
            }
            Err(error) => return Err(error),
        }
        Ok(self.events.len())
    }

    #[inline]
    fn reported_all(&self) -> bool {
        self.events.len() < BATCH
    }

    #[inline]
    fn event(&mut self, at: usize) -> Option<Event> {
        let event = self.events[at];
        if event.u64 == WAKER {
            let mut count = [0u8; 8];
            // SAFETY: eight valid bytes to read into.
            unsafe { libc::read(self.waker.0.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
            return None;
        }
        if event.u64 == TIMER {
            // Setting it again makes it silent.
            return None;
        }
        let has = |any: u32| event.events & any != 0;
        Some(Event { index: event.u64 as usize, writable: has(libc::EPOLLOUT as u32), goes_on: has(GOES_ON) })
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as libc::c_long }
}

fn set_option(descriptor: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: an option value of the size given; a wrong descriptor or option is an error.
    checked(unsafe { libc::setsockopt(descriptor, level, name, (&raw const value).cast(), size) }).map(drop)
}

#[inline]
fn nonblocking(count: isize) -> io::Result<Option<usize>> {
    if count >= 0 {
        return Ok(Some(count as usize));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// Whether the kernel would choose this source anyway: that saves two system calls for each connection.
fn is_natural(source: IpAddr, target: IpAddr) -> bool {
    source.is_unspecified() || source == IpAddr::V4(Ipv4Addr::LOCALHOST) && target == source
}

/// Leaves the choice of the port to `connect`, so that one source address provides the same ports for every target.
fn bind_address_only(socket: &Socket) {
    // Failure only costs ports.
    let _ = set_option(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
}
