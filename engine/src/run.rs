//! The phases of a trial: starts the workers, gives them their common instants, gathers their reports tick by tick, and
//! writes what they say. It touches no socket.

use crate::clock;
use crate::control::{Control, Final, Phase, Report, Tick};
use crate::emit::Emit;
use crate::leash;
use crate::plan::{Plan, Until};
use crate::poll::Waker;
use crate::worker::Worker;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The workers see the start instant before it comes.
const AHEAD_NS: u64 = 2_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Why a plan could not be carried out.
pub enum Stop {
    /// This host lacks something: the line says what to do.
    Host(String),
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
    wakers: Vec<Waker>,
    emit: Emit,
    origin_ns: u64,
    settled: usize,
    warmed_up: Vec<bool>,
    /// When the measured window begins, until that is written.
    measure_ns: Option<u64>,
    measuring: bool,
    /// Ticks by number that not every worker has reported yet.
    ticks: BTreeMap<u64, Vec<(usize, Tick)>>,
    /// A worker's last tick comes just before it finishes; all of them are written together.
    finals: Vec<Option<Final>>,
}

pub fn run(plan: Plan, folder: &Path, parent: u32) -> Result<(), Stop> {
    enough_files(&plan)?;
    let origin_ns = clock::now_ns();
    let plan = Arc::new(plan);
    let control = Arc::new(Control::default());
    let (sender, receiver) = channel();
    let workers = (0..plan.threads)
        .map(|index| Worker::new(index, plan.clone(), control.clone(), sender.clone(), origin_ns))
        .collect::<io::Result<Vec<_>>>()?;
    let wakers: Vec<Waker> = workers.iter().map(Worker::waker).collect();
    leash::watch(control.clone(), wakers.clone(), origin_ns + (plan.limits.deadline_s * 1e9) as u64, parent);
    let mut run = Run {
        emit: Emit::begin(folder, origin_ns)?,
        wakers,
        control,
        origin_ns,
        settled: 0,
        warmed_up: vec![false; plan.threads],
        measure_ns: None,
        measuring: false,
        ticks: BTreeMap::new(),
        finals: (0..plan.threads).map(|_| None).collect(),
        plan,
    };
    if !run.plan.connection_per_request() {
        run.emit.phase(Phase::Connect, clock::now_ns())?;
    }
    start(workers, &run.plan, sender);
    run.gather(&receiver)?;
    run.conclude()
}

fn start(workers: Vec<Worker>, plan: &Plan, sender: Sender<(usize, Report)>) {
    drop(sender);
    for (index, worker) in workers.into_iter().enumerate() {
        let cpu = (!plan.cpus.is_empty()).then(|| plan.cpus[index % plan.cpus.len()]);
        std::thread::spawn(move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            worker.run();
        });
    }
}

impl Run {
    fn gather(&mut self, receiver: &Receiver<(usize, Report)>) -> Result<(), Stop> {
        while self.finals.iter().any(Option::is_none) {
            let Ok((index, report)) = receiver.recv() else {
                return Err(Stop::Io(io::Error::other("a worker ended without its report: this is a bug")));
            };
            match report {
                Report::Settled => self.settled(index)?,
                Report::WarmedUp => self.warmed_up(index)?,
                Report::Tick(tick) => self.tick(index, tick)?,
                Report::Finished(last) => {
                    self.finals[index] = Some(*last);
                    self.write_complete_ticks()?;
                }
                Report::HostCannot(what) => return Err(Stop::Host(what)),
            }
        }
        Ok(())
    }

    fn settled(&mut self, _: usize) -> Result<(), Stop> {
        self.settled += 1;
        if self.settled < self.plan.threads {
            return Ok(());
        }
        let start = clock::now_ns() + AHEAD_NS;
        match self.plan.warmup {
            None => self.measure(start)?,
            Some(until) => {
                self.emit.phase(Phase::Warmup, start)?;
                if let Until::Seconds(seconds) = until {
                    self.measure(start + (seconds * 1e9) as u64)?;
                }
            }
        }
        self.control.start_at(start);
        self.wakers.iter().for_each(Waker::wake);
        Ok(())
    }

    fn warmed_up(&mut self, index: usize) -> Result<(), Stop> {
        let already = std::mem::replace(&mut self.warmed_up[index], true);
        if already || self.warmed_up.contains(&false) {
            return Ok(());
        }
        let begin = clock::now_ns() + AHEAD_NS;
        self.measure(begin)?;
        self.control.measure_at(begin);
        self.wakers.iter().for_each(Waker::wake);
        Ok(())
    }

    fn measure(&mut self, t_ns: u64) -> io::Result<()> {
        self.measure_ns = Some(t_ns);
        Ok(())
    }

    /// Written when a worker has been seen in it: a run that is stopped earlier has measured nothing.
    fn measure_began(&mut self) -> io::Result<()> {
        match self.measure_ns.take() {
            Some(t_ns) => {
                self.measuring = true;
                self.emit.phase(Phase::Measure, t_ns)
            }
            None => Ok(()),
        }
    }

    fn tick(&mut self, index: usize, tick: Tick) -> Result<(), Stop> {
        self.ticks.entry(tick.number).or_default().push((index, tick));
        self.write_complete_ticks()
    }

    /// A tick is complete when every worker that has not finished has reported it.
    fn write_complete_ticks(&mut self) -> Result<(), Stop> {
        while let Some(entry) = self.ticks.first_entry() {
            let complete = (0..self.plan.threads)
                .all(|index| self.finals[index].is_some() || entry.get().iter().any(|(from, _)| *from == index));
            if !complete {
                return Ok(());
            }
            let number = *entry.key();
            let here = entry.remove();
            let absent = |index: &usize| !here.iter().any(|(from, _)| from == index);
            let ended: Vec<_> = (0..self.plan.threads)
                .filter(absent)
                .filter_map(|index| self.finals[index].as_ref())
                .map(|end| (end.counters, end.usage))
                .collect();
            let ticks: Vec<Tick> = here.into_iter().map(|(_, tick)| tick).collect();
            let t_ns = (self.origin_ns + number * SECOND_NS).min(clock::now_ns());
            let phase = ticks[0].phase;
            if ticks.iter().any(|tick| matches!(tick.phase, Phase::Measure | Phase::Drain)) {
                self.measure_began()?;
            }
            let counters = self.emit.tick(ticks, &ended, t_ns)?;
            println!(
                "{number:4} s  {:8}  {} open, {} answered, {} failed",
                phase.name(),
                counters.open,
                counters.answered,
                counters.failed
            );
        }
        Ok(())
    }

    fn conclude(mut self) -> Result<(), Stop> {
        let finals: Vec<Final> = self.finals.into_iter().flatten().collect();
        let ended = finals.iter().filter_map(|end| end.window).map(|window| window.end_ns).max();
        if let Some(end_ns) = ended {
            if !self.measuring
                && let Some(t_ns) = self.measure_ns
            {
                self.emit.phase(Phase::Measure, t_ns)?;
            }
            self.emit.phase(Phase::Drain, end_ns)?;
        }
        let nobody = finals.iter().all(|end| end.counters.established == 0);
        let outcome = match leash::outcome() {
            Some(outcome) => outcome,
            None if nobody || finals.iter().any(|end| end.gave_up) => "no_connection",
            None => "completed",
        };
        self.emit.end(&self.plan, outcome, &finals)?;
        println!("{outcome}");
        Ok(())
    }
}

fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid; the plan was checked to name a CPU that exists. If the kernel refuses (a cpuset),
    // the worker runs unpinned, which its run-queue wait then shows.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Raises the file limit as far as it goes, and says if that is not far enough.
fn enough_files(plan: &Plan) -> Result<(), Stop> {
    let needed = plan.connections as u64 + 32 + 4 * plan.threads as u64;
    // SAFETY: a valid rlimit to read into and to set from.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        limit.rlim_max
    };
    if needed <= limit {
        return Ok(());
    }
    Err(Stop::Host(format!(
        "{} connections need {needed} files, but this process may open {limit}: raise the hard limit (ulimit -Hn), or use several shards",
        plan.connections
    )))
}
