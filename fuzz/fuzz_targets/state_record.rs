//! Bytes of the state topic ─▶ record. There is one way to write a record: what can be read is written as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pagesieve_fuzz::{memory, state::record};

fuzz_target!(|bytes: &[u8]| {
    let Ok((decoded, sketch)) = memory::within(4 * bytes.len(), || record::decode(bytes)) else { return };
    let mut written = Vec::new();
    record::encode(&decoded, sketch, &mut written);
    assert_eq!(written, bytes);
});
