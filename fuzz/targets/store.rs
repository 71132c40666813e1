//! Fuzzes [`ciao_scheduler_fuzz::store::store`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ciao_scheduler_fuzz::store::store(data));
