//! Hands libFuzzer's inputs to the target that this binary is named after.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<xk_fuzz::Target> = LazyLock::new(|| {
    xk_fuzz::target(env!("CARGO_BIN_NAME")).expect("the binary is named after a target")
});

fuzz_target!(|data: &[u8]| {
    (TARGET.run)(&data[..data.len().min(xk_fuzz::INPUT_OCTETS_MAX)]);
});
