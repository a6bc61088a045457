#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wsbench_engine::cuts::sessions(bytes));
