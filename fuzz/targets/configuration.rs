//! Fuzzes [`ciao_scheduler_fuzz::configuration::configuration`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ciao_scheduler_fuzz::configuration::configuration(data));
