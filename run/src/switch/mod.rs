//! Stacks for shepherds, and the switch between them.
//!
//! | switch | a shepherd is | use |
//! | --- | --- | --- |
//! | [`CoroutineSwitch`] | a stackful coroutine with a guarded stack | everywhere |
//! | [`ThreadSwitch`] | a parked thread, one running at a time | Miri and sanitizers, which cannot follow a coroutine |
//!
//! One suite of tests, `tests/shepherds.rs`, holds for both.

mod coroutine_unsafe;
mod overflow_unsafe;
mod thread_unsafe;

pub use coroutine_unsafe::CoroutineSwitch;
pub use thread_unsafe::ThreadSwitch;
