//! The fuzz target, run on random octets: every push sees to it that it holds, a fuzzer sees to more of them.

use proptest::prelude::*;

proptest! {
    #[test]
    fn whatever_arrives_is_read_or_refused(data in prop::collection::vec(any::<u8>(), 0..64)) {
        xk_guide::fuzz::fuzz_wire(&data);
    }
}
