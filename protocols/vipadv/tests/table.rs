//! Any sequence of what hosts say keeps the table's bounds.

use proptest::prelude::*;

proptest! {
    #[test]
    fn any_sequence_keeps_the_bounds(octets in prop::collection::vec(any::<u8>(), 0..600)) {
        xk_vipadv::fuzz::fuzz_stack(&octets);
    }
}
