//! The procedure that every service has.

use super::laws::right;
use super::{CallFixture, CallWorld};
use crate::conformance::{Side, Verdict};

/// The null procedure takes nothing and replies nothing, also where a layer below answers it itself
/// (RFC 5531, section 8.1).
///
/// # Panics
/// If the law is broken.
pub fn answers_the_null_procedure(fixture: &dyn CallFixture) -> Verdict {
    let world = CallWorld::new(fixture);
    world.serve(Side::B);
    let session = world.open(Side::A, 0);
    for _ in 0..2 {
        right(world.call(&session, b""), b"");
    }
    world.finish();
    Verdict::Holds
}
