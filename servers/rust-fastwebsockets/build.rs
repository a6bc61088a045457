//! Hands versions to the program, for the receipt: the libraries' from Cargo.lock, to which `--locked` holds the build, and the compiler's.

use std::{env, fs, process::Command};

const LIBRARIES: [&str; 3] = ["fastwebsockets", "hyper", "tokio"];

fn main() {
    let lock = fs::read_to_string("Cargo.lock").expect("Cargo.lock is here");
    let version = |library: &str| {
        let package = format!("name = \"{library}\"\nversion = \"");
        let (_, rest) = lock.split_once(&package).expect("the library is locked");
        let (version, _) = rest.split_once('"').expect("the version ends");
        assert!(!rest.contains(&package), "{library} is there in two versions");
        format!("{library} {version}")
    };
    let rustc =
        Command::new(env::var("RUSTC").expect("cargo sets RUSTC")).arg("--version").output().expect("rustc runs");
    let line = String::from_utf8(rustc.stdout).expect("rustc prints UTF-8");
    let compiler: Vec<&str> = line.split_whitespace().take(2).collect();
    println!("cargo:rustc-env=RECEIPT={}, {}", LIBRARIES.map(version).join(", "), compiler.join(" "));
    println!("cargo:rerun-if-changed=Cargo.lock");
}
