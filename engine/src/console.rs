//! Lines for people, on standard output and standard error. They are no result: what the other end does not take at once
//! is left out, so that neither a measurement nor the end of the process waits for a reader.

use std::io::{self, Write};
use std::os::fd::AsRawFd;

/// A pipe that is ready takes so many bytes at once (PIPE_BUF).
const PIECE: usize = 4096;

/// Progress, on standard output.
pub fn tell(line: &str) {
    write(&mut io::stdout(), format!("{line}\n"));
}

/// Something is wrong: a line on standard error.
pub fn complain(line: &str) {
    write(&mut io::stderr(), format!("wsbench-engine: {line}\n"));
}

fn write(output: &mut (impl Write + AsRawFd), line: String) {
    for piece in line.as_bytes().chunks(PIECE) {
        if !takes(output) || output.write_all(piece).is_err() {
            return;
        }
    }
    let _ = output.flush();
}

/// Whether a piece can be written without waiting. The descriptor is not made non-blocking: it is the parent's too.
fn takes(output: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: output.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 1 && asked.revents & libc::POLLOUT != 0 }
}
