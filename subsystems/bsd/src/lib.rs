//! The 4.3BSD network subsystem as a framework for protocols: mbufs, protocol switch, interfaces,
//! sockets.
#![no_std]
