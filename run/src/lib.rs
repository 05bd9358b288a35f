//! What runs a graph of protocols on this machine: the memory that messages lie in, executors and clocks.

pub mod memfd_unsafe;
