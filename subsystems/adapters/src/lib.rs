//! Adapters that join protocols of the x-kernel, BSD and STREAMS in one graph, without a change of
//! any.
#![no_std]
