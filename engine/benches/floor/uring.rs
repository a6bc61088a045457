//! The same exchange over io_uring, arranged as the fastest clients do: registered sockets, a multishot receive that
//! picks its buffers from a ring, and one system call for each pass, which submits all sends and waits for completions.

use crate::socket::{Socket, give_up};
use io_uring::types::{BufRingEntry, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::alloc::{Layout, alloc_zeroed};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

const ENTRIES: u32 = 4096;
const BUFFERS: u16 = 4096;
const BUFFER_BYTES: usize = 256;
const GROUP: u16 = 0;
const PAGE: usize = 4096;
/// A pass takes this many completions if they are available within a microsecond, otherwise those
/// available. Asked for one, the kernel returns at most 20; asked for more, it waits.
const WANTED: usize = 64;
const WAIT_FOR_MORE_US: u32 = 1;
const ENDS: u64 = u64::MAX;

pub struct Completion {
    pub place: usize,
    pub result: i32,
    pub stays_armed: bool,
    /// The time set by `end_after` is over; not a connection's place.
    pub ends: bool,
}

pub struct Ring {
    ring: IoUring,
    buffers: Buffers,
    harvest: Vec<cqueue::Entry>,
    end: Timespec,
}

impl Ring {
    pub fn new(sockets: &[Socket]) -> Ring {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_cqsize(8 * ENTRIES);
        let ring: IoUring = taken("io_uring_setup", builder.build(ENTRIES));
        let descriptors: Vec<i32> = sockets.iter().map(|socket| socket.as_raw_fd()).collect();
        taken("io_uring_register", ring.submitter().register_files(&descriptors));
        taken("io_uring_register", ring.submitter().register_ring_fd());
        let buffers = Buffers::new();
        // SAFETY: the ring of buffers lives as long as the process.
        taken("io_uring_register", unsafe {
            ring.submitter().register_buf_ring_with_flags(buffers.ring as u64, BUFFERS, GROUP, 0)
        });
        Ring { ring, buffers, harvest: Vec::with_capacity(8 * ENTRIES as usize), end: Timespec::new() }
    }

    /// Called once; the ring stays in place from then on: the kernel reads the time at the next wait.
    pub fn end_after(&mut self, seconds: f64) {
        self.end = Timespec::new().sec(seconds as u64).nsec((seconds.fract() * 1e9) as u32);
        self.push(opcode::Timeout::new(&raw const self.end).build().user_data(ENDS));
    }

    pub fn receive(&mut self, place: usize) {
        self.push(opcode::RecvMulti::new(Fixed(place as u32), GROUP).build().user_data(place as u64));
    }

    /// Sends all of the bytes when there is space for them. Only a failure completes, as if nothing had been received.
    #[inline]
    pub fn send(&mut self, place: usize, bytes: &'static [u8]) {
        let send = opcode::Send::new(Fixed(place as u32), bytes.as_ptr(), bytes.len() as u32);
        let send = send.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build();
        self.push(send.flags(squeue::Flags::SKIP_SUCCESS).user_data(place as u64));
    }

    #[inline]
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: what an entry points to outlives it, see `send` and `end_after`.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            taken("io_uring_enter", self.ring.submit());
        }
    }

    /// Submits, and waits for completions; returns their number.
    #[inline]
    pub fn wait(&mut self) -> usize {
        let longest = Timespec::new().sec(1);
        let arguments = SubmitArgs::new().min_wait_usec(WAIT_FOR_MORE_US).timespec(&longest);
        match self.ring.submitter().submit_with_args(WANTED, &arguments) {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
            result => drop(taken("io_uring_enter", result)),
        }
        self.harvest.clear();
        self.harvest.extend(self.ring.completion());
        self.harvest.len()
    }

    /// A completion of the last wait; its buffer is free again.
    #[inline]
    pub fn completion(&mut self, at: usize) -> Completion {
        let entry = &self.harvest[at];
        let (token, flags, result) = (entry.user_data(), entry.flags(), entry.result());
        if let Some(buffer) = cqueue::buffer_select(flags) {
            self.buffers.free(buffer);
        }
        Completion { place: token as usize, result, stays_armed: cqueue::more(flags), ends: token == ENDS }
    }
}

struct Buffers {
    ring: *mut BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

impl Buffers {
    fn new() -> Buffers {
        let room = |bytes: usize| {
            let layout = Layout::from_size_align(bytes, PAGE).expect("a power of two");
            // SAFETY: the layout has a size, and the memory is never given back.
            unsafe { alloc_zeroed(layout) }
        };
        let ring = room(BUFFERS as usize * size_of::<BufRingEntry>()).cast();
        let mut buffers = Buffers { ring, memory: room(BUFFERS as usize * BUFFER_BYTES), tail: 0 };
        (0..BUFFERS).for_each(|buffer| buffers.free(buffer));
        buffers
    }

    #[inline]
    fn free(&mut self, buffer: u16) {
        // SAFETY: the place is within the ring and the buffer within the memory; the kernel reads entries below the tail only.
        unsafe {
            let entry = &mut *self.ring.add((self.tail % BUFFERS) as usize);
            entry.set_addr(self.memory.add(buffer as usize * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            (*BufRingEntry::tail(self.ring).cast::<AtomicU16>()).store(self.tail, Ordering::Release);
        }
    }
}

fn taken<T>(call: &str, result: std::io::Result<T>) -> T {
    result.unwrap_or_else(|error| give_up(call, &error))
}
