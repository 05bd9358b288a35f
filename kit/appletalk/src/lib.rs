//! AppleTalk phase 2 without a framework: its octets, and its state machines, which know no clock
//! and no I/O.
#![no_std]
