//! Hands the compiler's version to the program, for the receipt.

use std::{env, process::Command};

fn main() {
    let rustc = env::var("RUSTC").expect("cargo sets RUSTC");
    let output = Command::new(rustc).arg("--version").output().expect("rustc runs");
    let line = String::from_utf8(output.stdout).expect("rustc prints UTF-8");
    let version: Vec<&str> = line.split_whitespace().take(2).collect();
    println!("cargo:rustc-env=RUSTC_VERSION={}", version.join(" "));
    println!("cargo:rerun-if-changed=build.rs");
}
