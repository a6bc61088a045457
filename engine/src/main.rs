//! `wsbench-engine PLAN.json OUT_DIR`: all input is in the plan, all results are in the folder.
//! `wsbench-engine --version` prints the version. Exit 0: the plan was carried out, whatever the
//! server did; 2: the plan is invalid; 3: this host cannot carry it out.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use wsbench_engine::{console, gate, leash, plan, run};

fn main() -> ExitCode {
    let parent = std::os::unix::process::parent_id();
    leash::tie(gate::hear);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--version"] {
        let told = writeln!(std::io::stdout(), "wsbench-engine {}", env!("CARGO_PKG_VERSION"));
        return if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(3) };
    }
    let [plan, folder] = arguments.as_slice() else {
        return fail(2, "usage: wsbench-engine PLAN.json OUT_DIR");
    };
    let plan = match plan::Plan::read(Path::new(plan)) {
        Ok(plan) => plan,
        Err(line) => return fail(2, &line),
    };
    match run::run(plan, Path::new(folder), parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(run::Stop::Host(line)) => fail(3, &line),
        Err(run::Stop::Plan(line)) => fail(2, &line),
        Err(run::Stop::Io(error)) => fail(3, &error.to_string()),
    }
}

fn fail(code: u8, line: &str) -> ExitCode {
    console::complain(line);
    ExitCode::from(code)
}
