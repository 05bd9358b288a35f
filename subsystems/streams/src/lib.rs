//! System V STREAMS as a framework for protocols: message blocks, queues, modules, stream head,
//! TPI and TLI.
#![no_std]
