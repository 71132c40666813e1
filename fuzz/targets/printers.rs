//! Fuzzes [`ciao_scheduler_fuzz::printers::printers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ciao_scheduler_fuzz::printers::printers(data));
