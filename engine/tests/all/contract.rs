//! protocol/README.md, sections 1 to 3, as far as tests can check: the example plans, plans that
//! must be refused, and the output of a whole run.

use crate::support::server::*;
use crate::support::{Run, doc, echo, engine, folder, run, start, start_as, with};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

fn examples() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/examples");
    let mut plans = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("protocol/examples is beside engine") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("plan-") && name.ends_with(".json") {
            plans.push((name, serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()));
        }
    }
    assert!(plans.len() >= 3, "the examples are there");
    plans
}

#[test]
fn the_example_run_is_what_the_engine_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/examples/run-echo");
    let run = Run::read(&folder);
    run.lawful();
    assert_eq!(run.phases(), ["connect", "warmup", "measure", "drain"]);
    assert_eq!(run.count("response"), run.measured("answered"), "an open loop knows when each message was due");
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("plan.json")).unwrap()).unwrap();
    let address = echo_server();
    let target = json!({"address": address.to_string(), "replicas": [], "host": address.to_string(), "path": "/echo"});
    let again = crate::support::run(&with(plan, json!({"target": target})));
    let shape = |run: &Run| -> Vec<(Value, Value)> {
        run.all("phase").iter().map(|event| (event["event"].clone(), event["phase"].clone())).collect()
    };
    assert_eq!(shape(&run), shape(&again));
    assert_eq!(run.histograms.keys().collect::<Vec<_>>(), again.histograms.keys().collect::<Vec<_>>());
    assert_eq!(run.measured("sent"), again.measured("sent"), "the schedule comes from the plan's seed alone");
}

/// Passes this text to the engine as its plan.
fn try_plan(text: &str) -> Output {
    let folder = folder();
    let path = folder.join("plan.json");
    std::fs::write(&path, text).unwrap();
    let output = engine().arg(&path).arg(folder.join("out")).output().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    output
}

#[track_caller]
fn one_line(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text:?}");
    assert!(text.starts_with("wsbench-engine: ") && !text.contains("panicked"), "{text}");
    text
}

#[test]
fn every_example_plan_is_understood() {
    for (name, plan) in examples() {
        // No server listens: a plan that is understood ends with `no_connection`.
        let short = json!({"connections": 2, "measure": {"messages": 4}, "cpus": [], "threads": 1});
        let mut plan = with(with(plan, short), json!({"warmup": null}));
        plan["target"]["address"] = json!(nobody().to_string());
        let run = start(&plan).finish();
        assert_eq!(run.end()["outcome"], "no_connection", "{name}");
    }
}

#[test]
fn a_broken_plan_is_refused_in_one_line_that_names_the_key() {
    let (_, good) = examples().into_iter().find(|(name, _)| name == "plan-echo.json").unwrap();
    let broken: [(&str, &str, Value); 38] = [
        ("/format", "format", json!(2)),
        ("/connections", "connections", json!(0)),
        ("/connections", "connections", json!("50")),
        ("/connections", "connections", json!(-1)),
        ("/connections", "connections", json!(1.5)),
        ("/threads", "threads", json!(0)),
        ("/transport", "transport", json!("http")),
        ("/transport", "transport", json!("tcp")),
        ("/transport", "transport", json!("carrier pigeon")),
        ("/scenario", "transport", json!({"kind": "doc", "persistent": true, "bytes": 1})),
        ("/scenario", "scenario", json!({"kind": "dance"})),
        ("/scenario", "scenario", json!({"kind": "ping", "bytes": 4})),
        ("/scenario", "scenario", json!({"kind": "echo", "opcode": "text"})),
        ("/scenario", "scenario", json!({"kind": "echo", "opcode": "text", "bytes": 17_000_000})),
        ("/scenario", "scenario", json!({"kind": "echo", "opcode": "ping", "bytes": 1})),
        ("/loop", "loop", json!({"kind": "open"})),
        ("/loop", "loop", json!({"kind": "closed", "depth": 2})),
        ("/mask", "mask", json!("none")),
        ("/target/address", "address", json!("localhost")),
        ("/target/path", "path", json!("/a\r\nX: y")),
        ("/target/path", "path", json!("echo")),
        ("/target/path", "path", json!("/with space")),
        ("/measure", "measure", json!({"seconds": 0.0})),
        ("/measure", "measure", json!({"seconds": -1.0})),
        ("/measure", "measure", json!({"messages": 0})),
        ("/measure", "measure", json!({"seconds": 1.0, "messages": 1})),
        ("/measure", "measure", json!(null)),
        ("/warmup", "warmup", json!({"minutes": 1})),
        ("/drain_s", "drain_s", json!(-0.5)),
        ("/tick_s", "tick_s", json!(0.01)),
        ("/limits/reply_s", "reply_s", json!(0)),
        ("/limits/connect_s", "connect_s", json!(null)),
        ("/cpus", "cpus", json!([100_000])),
        ("/source_addresses", "source_addresses", json!([])),
        ("/source_addresses", "source_addresses", json!(["::1"])),
        ("/headers", "headers", json!([["Two words", "x"]])),
        ("/headers", "headers", json!([["X", "a\r\nY: b"]])),
        ("/shard", "shard", json!([1, 1])),
    ];
    let mut wrong = Vec::new();
    for (pointer, key, value) in broken {
        let mut plan = good.clone();
        *plan.pointer_mut(pointer).unwrap() = value.clone();
        // A plan that is accepted must not delay the test.
        plan["target"]["address"] =
            if pointer == "/target/address" { value.clone() } else { json!(nobody().to_string()) };
        if pointer != "/warmup" {
            plan["warmup"] = Value::Null;
        }
        plan["limits"]["deadline_s"] = json!(0.5);
        let output = try_plan(&plan.to_string());
        let text = String::from_utf8_lossy(&output.stderr).trim_end().to_string();
        let fine = output.status.code() == Some(2)
            && text.lines().count() == 1
            && text.contains("plan.json")
            && text.contains(key);
        if !fine {
            wrong.push(format!("{key} = {value}: exit {:?}: {text:?}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{} plans:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_key_is_needed_and_no_other_is_allowed() {
    let (_, good) = examples().into_iter().find(|(name, _)| name == "plan-echo.json").unwrap();
    for key in good.as_object().unwrap().keys() {
        let mut plan = good.clone();
        plan.as_object_mut().unwrap().remove(key);
        let line = one_line(&try_plan(&plan.to_string()), 2);
        assert!(line.contains(key.as_str()), "{key}: {line}");
    }
    for pointer in ["", "/target", "/limits"] {
        let mut plan = good.clone();
        plan.pointer_mut(pointer).unwrap().as_object_mut().unwrap().insert("colour".into(), json!("red"));
        assert!(one_line(&try_plan(&plan.to_string()), 2).contains("colour"));
    }
}

#[test]
fn what_is_no_plan_at_all_is_refused_in_one_line() {
    for text in ["", "{", "[]", "not json", "{\"format\": 1}\n{\"format\": 1}", "\u{feff}{}"] {
        one_line(&try_plan(text), 2);
    }
    let missing = engine().args(["/nonexistent/plan.json", "/nonexistent/out"]).output().unwrap();
    assert!(one_line(&missing, 2).contains("/nonexistent/plan.json"));
    for arguments in [&[][..], &["one"], &["one", "two", "three"]] {
        let output = engine().args(arguments).output().unwrap();
        assert!(one_line(&output, 2).contains("usage: wsbench-engine PLAN.json OUT_DIR"));
    }
}

#[test]
fn too_few_files_are_this_hosts_fault() {
    let folder = folder();
    let path = folder.join("plan.json");
    let plan = with(echo(nobody(), "text", 32), json!({"connections": 500}));
    std::fs::write(&path, plan.to_string()).unwrap();
    let script = "ulimit -n 200; exec \"$0\" \"$1\" \"$2\"";
    let binary = env!("CARGO_BIN_EXE_wsbench-engine");
    let output = std::process::Command::new("sh")
        .args(["-c", script, binary, path.to_str().unwrap(), folder.join("out").to_str().unwrap()])
        .output()
        .unwrap();
    let line = one_line(&output, 3);
    assert!(line.contains("500") && line.contains("200") && line.contains("ulimit"), "{line}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn workers_with_their_own_file_tables_hold_more_than_the_limit_of_one() {
    let address = echo_server();
    let plan =
        with(echo(address, "text", 32), json!({"connections": 400, "threads": 4, "measure": {"messages": 4000}}));
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_wsbench-engine")]);
    limited.stdin(std::process::Stdio::null()); // a pipe that is closed would end it: `make --jobs` gives tests one
    let run = start_as(limited, &plan).finish();
    run.errors_are(json!({}));
    assert_eq!(run.end()["connections"], json!({"asked": 400, "established": 400, "open": 400}));
    assert_eq!(run.measured("answered"), 4000);
}

#[test]
fn a_run_by_time_obeys_the_contract() {
    let address = websocket(|peer, _, opcode, payload| {
        std::thread::sleep(std::time::Duration::from_micros(500));
        peer.send(opcode, &payload)
    });
    let plan = with(
        echo(address, "text", 128),
        json!({"connections": 5, "threads": 2, "warmup": {"seconds": 0.4}, "measure": {"seconds": 1.4}}),
    );
    let run = run(&plan);
    run.errors_are(json!({}));
    assert_eq!(run.phases(), ["connect", "warmup", "measure", "drain"]);
    assert_eq!(run.end()["outcome"], "completed");
    assert_eq!(run.end()["connections"], json!({"asked": 5, "established": 5, "open": 5}));
    let window = run.measured("window_ns");
    assert!((1_399_000_000..1_402_000_000).contains(&window), "{window}");
    let phase =
        |name: &str| run.all("phase").iter().find(|phase| phase["phase"] == name).unwrap()["t_ns"].as_u64().unwrap();
    assert_eq!(phase("drain") - phase("measure"), window, "the window is between its two phases");
    assert_eq!(run.measured("answered"), run.measured("sent"));
    for thread in run.end()["threads"].as_array().unwrap() {
        assert!(thread["cpu_ns"].as_u64().unwrap() > 0 && thread["voluntary_switches"].as_u64().unwrap() > 0);
    }
    let anchor = run.all("anchor")[0];
    assert_eq!(anchor["engine"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn events_are_written_in_the_order_of_their_time() {
    let address = echo_server();
    let run = run(&with(echo(address, "text", 16), json!({"warmup": {"seconds": 1.3}, "measure": {"seconds": 0.3}})));
    let times: Vec<u64> = run.events.iter().map(|event| event["t_ns"].as_u64().unwrap()).collect();
    assert!(
        times.is_sorted(),
        "{:?}",
        run.events.iter().map(|e| (&e["event"], &e["phase"], &e["t_ns"])).collect::<Vec<_>>()
    );
}

#[test]
fn every_phase_ends_with_a_tick() {
    let address = echo_server();
    let run = run(&with(echo(address, "text", 16), json!({"warmup": {"seconds": 0.3}, "measure": {"seconds": 0.3}})));
    let ticks: Vec<(&Value, &Value)> = run.all("tick").iter().map(|tick| (&tick["phase"], &tick["t_ns"])).collect();
    let phases = run.all("phase");
    for (ended, next) in phases.iter().zip(&phases[1..]) {
        let expected = (&ended["phase"], &next["t_ns"]);
        assert!(ticks.contains(&expected), "no tick {expected:?} among {ticks:?}");
    }
}

#[test]
fn a_histogram_interval_belongs_to_one_phase() {
    let address = echo_server();
    let running =
        start(&with(echo(address, "text", 16), json!({"warmup": {"seconds": 0.4}, "measure": {"seconds": 0.4}})));
    let folder = running.folder.join("out");
    let mut running = running;
    assert_eq!(running.status().code(), Some(0));
    let log = std::fs::read_to_string(folder.join("latency.hlog")).unwrap();
    assert!(log.contains("#[Histogram log format version 1.3]"));
    let interval = |tag: &str| -> (f64, f64) {
        let line = log.lines().find(|line| line.starts_with(&format!("Tag={tag},"))).unwrap();
        let fields: Vec<&str> = line.split(',').collect();
        (fields[1].parse().unwrap(), fields[2].parse().unwrap())
    };
    let ((warmup, warmup_length), (measure, measure_length)) = (interval("warmup-service"), interval("service"));
    assert!((warmup_length - 0.4).abs() < 0.02, "{warmup_length}");
    assert!((measure_length - 0.4).abs() < 0.02, "{measure_length}");
    assert!((warmup + warmup_length - measure).abs() < 0.02);
}

#[test]
fn one_seed_gives_the_same_bytes_and_another_gives_others() {
    let messages = |seed: u64| {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let keep = seen.clone();
        let address = websocket(move |peer, _, opcode, payload| {
            keep.lock().unwrap().push(payload.clone());
            peer.send(opcode, &payload)
        });
        run(&with(echo(address, "text", 64), json!({"seed": seed})));
        let seen = seen.lock().unwrap().clone();
        assert!(seen.iter().all(|message| message.is_ascii() && message.len() == 64));
        seen
    };
    let first = messages(1);
    assert_eq!(first, messages(1));
    assert_ne!(first, messages(2));
    let distinct: std::collections::BTreeSet<&Vec<u8>> = first.iter().collect();
    assert_eq!(distinct.len(), first.len(), "no message is sent twice");
}

#[test]
fn headers_host_and_path_are_the_plans() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = seen.clone();
    let address = http(move |peer, _, head| {
        keep.lock().unwrap().push(head.to_string());
        peer.raw(&ok(10, ""))
    });
    let mut plan = with(doc(address, true, 10), json!({"headers": [["Accept", "text/html"], ["X-Two", "b"]]}));
    plan["target"]["path"] = json!("/doc?size=10");
    plan["target"]["host"] = json!("example.test");
    run(&plan);
    let seen = seen.lock().unwrap();
    assert!(seen[0].starts_with("GET /doc?size=10 HTTP/1.1\r\n"), "{}", seen[0]);
    for line in ["Host: example.test", "Accept: text/html", "X-Two: b"] {
        assert!(seen[0].contains(&format!("\r\n{line}\r\n")), "{line}");
    }
}
