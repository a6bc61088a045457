//! The phases of a trial: starts the workers, gives them common times, collects their reports tick
//! by tick, and writes them. It touches no socket.

use crate::clock;
use crate::console;
use crate::control::{Control, Final, Phase, Report};
use crate::emit::Emit;
use crate::gate::{self, Gate};
use crate::leash;
use crate::merge::Merge;
use crate::plan::{Plan, Until};
use crate::poll::{Poll, Waker};
use crate::push::{self, Board};
use crate::worker::{Common, Worker};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The workers see the start time before it comes.
pub const AHEAD_NS: u64 = 2_000_000;

/// A process that begins this much later than requested uses its own start time.
const LATE_NS: u64 = 1_000_000_000;

/// Why a plan could not be carried out.
pub enum Stop {
    /// This host lacks something: the line says what to do.
    Host(String),
    /// Something that the plan names cannot be used.
    Plan(String),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Io(error)
    }
}

struct Run {
    plan: Arc<Plan>,
    control: Arc<Control>,
    board: Arc<Board>,
    wakers: Vec<Waker>,
    emit: Emit,
    settled: usize,
    /// Connections of the workers that have settled.
    open: u64,
    /// By worker: the last reply of a phase that ends by count.
    counted: Vec<Option<u64>>,
    ticks: Merge,
    finals: Vec<Option<Final>>,
}

pub fn run(plan: Plan, folder: &Path, parent: u32) -> Result<(), Stop> {
    let tables = file_tables(&plan)?;
    if plan.gate_s.is_some() && !leash::stdin_is_a_pipe() {
        return Err(Stop::Plan("`gate_s` is set, but standard input is no pipe that could open a gate".into()));
    }
    let plan = Arc::new(plan);
    let (common, receiver) = Common::new(&plan).map_err(Stop::Plan)?;
    let workers: Vec<Ready> = (0..plan.threads)
        .map(|index| spawn(index, common.clone(), tables))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|made| made.recv().unwrap_or_else(|_| Err(without_report())))
        .collect::<Result<_, Stop>>()?;
    let mut run = Run {
        emit: Emit::open(folder)?,
        wakers: workers.iter().map(|worker| worker.waker.clone()).collect(),
        control: common.control,
        board: common.board,
        settled: 0,
        open: 0,
        counted: vec![None; plan.threads],
        ticks: Merge::new(plan.threads),
        finals: (0..plan.threads).map(|_| None).collect(),
        plan,
    };
    let origin_ns = run.pass_first_gate()?;
    let deadline_ns = origin_ns + (run.plan.limits.deadline_s * 1e9) as u64;
    leash::watch(run.control.clone(), run.wakers.clone(), deadline_ns, parent);
    // Now only the workers hold senders, so their end is detected.
    drop(common.reports);
    for worker in workers {
        let _ = worker.start.send(origin_ns);
    }
    run.gather(&receiver)?;
    run.conclude()
}

/// A worker that waits in its thread for its start.
struct Ready {
    waker: Waker,
    start: Sender<u64>,
}

/// Starts the thread of a worker, which makes it: the worker's memory is then on the side of the CPU that uses it.
fn spawn(index: usize, common: Common, tables: Tables) -> Receiver<Result<Ready, Stop>> {
    let (sender, made) = channel();
    std::thread::spawn(move || {
        let worker = match make(index, common, tables) {
            Ok(worker) => worker,
            Err(stop) => return drop(sender.send(Err(stop))),
        };
        let (start, started) = channel();
        let told = sender.send(Ok(Ready { waker: worker.system.waker(), start }));
        if let (Ok(()), Ok(origin_ns)) = (told, started.recv()) {
            worker.run(origin_ns);
        }
    });
    made
}

fn make(index: usize, common: Common, tables: Tables) -> Result<Worker<Poll>, Stop> {
    let cpus = &common.plan.cpus;
    if !cpus.is_empty() {
        pin(cpus[index % cpus.len()]).map_err(Stop::Host)?;
    }
    // Other threads wake it, so its waker is in their file table too.
    let poll = Poll::new()?;
    // Alone at its table, a thread need not count who uses a file at each call.
    let taken = take_own_table();
    if tables == Tables::Own {
        taken.map_err(Stop::Host)?;
    }
    Ok(Worker::new(index, common, poll)?)
}

fn without_report() -> Stop {
    Stop::Io(io::Error::other("a worker ended without its report: this is a bug"))
}

impl Run {
    /// Passes the gate before connecting: at once, or together with other processes. Workers that
    /// are stopped before they begin leave the record of a run without activity.
    fn pass_first_gate(&mut self) -> io::Result<u64> {
        let mut origin_ns = clock::now_ns();
        if let Some(seconds) = self.plan.gate_s {
            self.emit.gate(Gate::Connect)?;
            match gate::wait(Gate::Connect, seconds) {
                Some(t_ns) => {
                    clock::sleep_until(t_ns, || leash::outcome().is_none());
                    // A process that is a little late still ticks together with the others;
                    // `entered_ns` records how late.
                    let now = clock::now_ns();
                    origin_ns = if now - t_ns.min(now) < LATE_NS { t_ns.min(now) } else { now };
                }
                None => self.control.stop(),
            }
        }
        self.emit.begin(origin_ns)?;
        if !self.plan.connection_per_request() || self.plan.slices.is_some() {
            self.emit.phase(Phase::Connect, origin_ns, clock::now_ns())?;
        }
        Ok(origin_ns)
    }

    fn gather(&mut self, receiver: &Receiver<(usize, Report)>) -> Result<(), Stop> {
        while self.finals.iter().any(Option::is_none) {
            let (index, report) = receiver.recv().map_err(|_| without_report())?;
            match report {
                Report::Settled { open } => self.settled(open)?,
                Report::Counted { phase, t_ns } => self.counted(index, phase, t_ns),
                Report::Tick(tick) => {
                    self.ticks.add(index, tick);
                    self.write_complete_ticks()?;
                }
                Report::Deferred(ticks) => {
                    for tick in ticks {
                        self.ticks.add(index, tick);
                        self.write_complete_ticks()?;
                    }
                }
                Report::Finished(last) => {
                    self.ticks.ended(index, &last);
                    self.finals[index] = Some(*last);
                    self.write_complete_ticks()?;
                }
                Report::HostCannot(what) => return Err(Stop::Host(what)),
            }
        }
        Ok(())
    }

    /// When all connections are established the first phase begins: at once, or together with other processes.
    fn settled(&mut self, open: u64) -> io::Result<()> {
        self.settled += 1;
        self.open += open;
        if self.settled < self.plan.threads {
            return Ok(());
        }
        if self.open == 0 && self.plan.stages.is_none() && !self.plan.connection_per_request() {
            // There is no connection to load, and waiting would not change that.
            self.control.stop();
            self.wakers.iter().for_each(Waker::wake);
            return Ok(());
        }
        let Some(seconds) = self.plan.gate_s else {
            begin(&self.plan, &self.control, &self.wakers, 0);
            return Ok(());
        };
        self.emit.gate(Gate::Begin)?;
        // Meanwhile the connections are kept and the workers' reports written: another process is waiting.
        let (plan, control, wakers) = (self.plan.clone(), self.control.clone(), self.wakers.clone());
        std::thread::spawn(move || {
            if let Some(t_ns) = gate::wait(Gate::Begin, seconds) {
                begin(&plan, &control, &wakers, t_ns);
            }
        });
        Ok(())
    }

    /// A phase that ends by count ends for all workers when the last of them has done its part.
    fn counted(&mut self, index: usize, phase: Phase, t_ns: u64) {
        self.counted[index] = Some(t_ns);
        let Some(last) = self.counted.iter().copied().collect::<Option<Vec<u64>>>() else { return };
        self.counted.fill(None);
        if phase == Phase::Warmup {
            measure_from(&self.plan, &self.control, clock::now_ns() + AHEAD_NS);
        } else {
            // The time has passed; no tick may precede it unless it was already written.
            let t_ns = last.into_iter().max().unwrap_or(t_ns).max(self.emit.last_ns);
            self.ticks.expect(t_ns);
            self.control.begin_at(Phase::Drain, t_ns);
        }
        self.wakers.iter().for_each(Waker::wake);
    }

    fn write_complete_ticks(&mut self) -> Result<(), Stop> {
        while let Some((phase, mut tick)) = self.ticks.next() {
            let counters = self.emit.tick(phase, &mut tick)?;
            if let Some(next) = tick.begins {
                self.emit.phase(next, tick.t_ns, tick.taken_ns)?;
            }
            let line = format!(
                "{:6.1} s  {:8}  {} open, {} answered, {} failed",
                self.emit.seconds(tick.t_ns),
                phase.name(),
                counters.open,
                counters.answered,
                counters.failed
            );
            console::tell(&line);
            self.ticks.give_back(tick.set);
        }
        Ok(())
    }

    fn conclude(mut self) -> Result<(), Stop> {
        let finals: Vec<Final> = self.finals.into_iter().flatten().collect();
        let outcome = match leash::outcome() {
            Some(outcome) => outcome,
            None if finals.iter().all(|end| end.counters.established == 0) => "no_connection",
            None if finals.iter().any(|end| end.lost) => "connections_lost",
            None => "completed",
        };
        match self.plan.shard.0 == push::TRIGGERING {
            true => self.emit.broadcasts(&self.board, &finals)?,
            false => self.emit.copies(&self.board, &finals)?,
        }
        self.emit.end(&self.plan, outcome, &finals)?;
        console::tell(outcome);
        Ok(())
    }
}

/// The first phase begins at `t_ns`, or as soon as all workers can see it.
fn begin(plan: &Plan, control: &Control, wakers: &[Waker], t_ns: u64) {
    begin_from(plan, control, t_ns.max(clock::now_ns() + AHEAD_NS));
    wakers.iter().for_each(Waker::wake);
}

/// Sets every time that depends on nothing else, from the first phase on.
pub fn begin_from(plan: &Plan, control: &Control, start: u64) {
    match plan.warmup {
        None => measure_from(plan, control, start),
        Some(until) => {
            if let Until::Seconds(seconds) = until {
                measure_from(plan, control, start + (seconds * 1e9) as u64);
            }
            control.begin_at(Phase::Warmup, start);
        }
    }
}

pub fn measure_from(plan: &Plan, control: &Control, t_ns: u64) {
    if let Until::Seconds(seconds) = plan.measure {
        control.begin_at(Phase::Drain, t_ns + (seconds * 1e9) as u64);
    }
    control.begin_at(Phase::Measure, t_ns);
}

fn pin(cpu: usize) -> Result<(), String> {
    // SAFETY: an all-zero set is valid; the plan was checked to name a CPU that exists.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    let error = io::Error::last_os_error();
    if result == 0 { Ok(()) } else { Err(format!("`cpus` names {cpu}, which this process may not use: {error}")) }
}

/// Whether the workers' sockets may be in one file table, or each worker's must be in its own. The file limit holds for each
/// table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    Any,
    Own,
}

/// Raises the file limit as far as possible. Tells which tables suffice, or reports that even workers with their own lack files.
fn file_tables(plan: &Plan) -> Result<Tables, Stop> {
    let connections = plan.own_connections();
    let largest = (0..plan.threads).map(|worker| plan.share(plan.connections as u64, worker)).max().unwrap_or(0);
    let besides = 32 + 4 * plan.threads as u64;
    // SAFETY: a valid rlimit to read into and to set from.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        limit.rlim_max
    };
    if connections as u64 + besides <= limit {
        return Ok(Tables::Any);
    }
    if largest + besides <= limit {
        return Ok(Tables::Own);
    }
    Err(Stop::Host(format!(
        "{connections} connections need {} files, but this process may open {limit} for each worker: raise the hard limit (ulimit -Hn), give more threads, or use several shards",
        connections as u64 + besides
    )))
}

/// Gives the calling thread a file table of its own, with all files that are open. Needs no privilege. Where a sandbox forbids
/// `unshare`, `close_range` (Linux 5.9) does the same.
fn take_own_table() -> Result<(), String> {
    const CLOSE_RANGE_UNSHARE: libc::c_long = 2;
    let none = libc::c_uint::MAX as libc::c_long;
    // SAFETY: neither call closes a file; no file has the last number.
    let taken = unsafe {
        libc::unshare(libc::CLONE_FILES) == 0
            || libc::syscall(libc::SYS_close_range, none, none, CLOSE_RANGE_UNSHARE) == 0
    };
    let error = io::Error::last_os_error();
    if taken {
        Ok(())
    } else {
        Err(format!("a worker may have no file table of its own here ({error}): use several shards"))
    }
}
