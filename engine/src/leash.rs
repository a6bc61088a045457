//! Ends this process, and records why: the deadline, a signal, a parent that died, a standard input that closed. First
//! the workers are asked to stop, so that measurements are written. A few seconds later the process ends in any case.

use crate::clock;
use crate::console;
use crate::control::Control;
use crate::poll::Waker;
use std::io::BufRead;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::Duration;

/// 0: none yet; 1: interrupted; 2: the deadline passed; 3: no start time was given.
static CAUSE: AtomicU8 = AtomicU8::new(0);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const GRACE_NS: u64 = 3_000_000_000;

/// The outcome that the leash imposes on the run, if any.
pub fn outcome() -> Option<&'static str> {
    match CAUSE.load(SeqCst) {
        0 => None,
        1 => Some("interrupted"),
        2 => Some("deadline"),
        _ => Some("not_begun"),
    }
}

fn pull(cause: u8) {
    let _ = CAUSE.compare_exchange(0, cause, SeqCst, SeqCst);
}

pub fn not_begun() {
    pull(3);
}

extern "C" fn on_signal(_: libc::c_int) {
    pull(1);
}

/// Begins to watch, and passes on the lines of standard input. Call it first: the parent may die at any moment.
pub fn tie(hear: fn(&str)) {
    let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler only touches an atomic; the other calls have no preconditions.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::signal(libc::SIGINT, handler);
        libc::signal(libc::SIGTERM, handler);
    }
    if stdin_is_a_pipe() {
        std::thread::spawn(move || {
            let (mut input, mut line) = (std::io::stdin().lock(), Vec::new());
            while matches!(input.read_until(b'\n', &mut line), Ok(1..)) {
                hear(&String::from_utf8_lossy(&line));
                line.clear();
            }
            pull(1);
        });
    }
}

/// A terminal or /dev/null has no other end; only a pipe or a socket can close.
pub fn stdin_is_a_pipe() -> bool {
    // SAFETY: an all-zero stat is valid, and the kernel fills it.
    let mode = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(std::io::stdin().as_raw_fd(), &mut stat) != 0 {
            return false;
        }
        stat.st_mode & libc::S_IFMT
    };
    mode == libc::S_IFIFO || mode == libc::S_IFSOCK
}

/// Watches until the process ends. `parent` is the parent's process id, read before anything else.
pub fn watch(control: Arc<Control>, wakers: Vec<Waker>, deadline_ns: u64, parent: u32) {
    std::thread::spawn(move || {
        while outcome().is_none() {
            std::thread::sleep(LOOK_EVERY);
            if clock::now_ns() >= deadline_ns {
                pull(2);
            }
            if std::os::unix::process::parent_id() != parent {
                pull(1);
            }
        }
        control.stop();
        wakers.iter().for_each(Waker::wake);
        let hard_end_ns = clock::now_ns() + GRACE_NS;
        while clock::now_ns() < hard_end_ns {
            std::thread::sleep(LOOK_EVERY);
        }
        console::complain(&format!("ended hard, {} s after it was told to stop", GRACE_NS / 1_000_000_000));
        std::process::exit(1);
    });
}
