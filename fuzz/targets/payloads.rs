//! Fuzzes [`ciao_scheduler_fuzz::payloads::payloads`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ciao_scheduler_fuzz::payloads::payloads(data));
