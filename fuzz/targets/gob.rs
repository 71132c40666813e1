//! Fuzzes [`ciao_scheduler_fuzz::frames::gob`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ciao_scheduler_fuzz::frames::gob(data));
