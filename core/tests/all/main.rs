//! Tests of what the core offers, as others see it.

mod message;
