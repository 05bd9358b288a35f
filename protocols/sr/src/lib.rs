//! # Synopsis
//! `sr LOWER vm=1 coordinator="10.0.0.1"` — the run-time support of SR: operations on virtual
//! machines, invoked by call or send.
//!
//! # Participants
//! An operation, a virtual machine, and the host where that is, `procedure9@vm2@10.0.0.2`; without
//! the host, or with `*`, the coordinator is asked for it. The local participant of a caller may be
//! one of its machine's processes, `process7`, 0 to 255; without it the process is 0. A server
//! enables one operation, `procedure9`, or `*` for all that no other serves. Machines have the
//! numbers 0 to 253, and 0 is the coordinator. Operations of `vm254` do nothing; there are none of
//! `vm255`.
//!
//! Where the layer below has ports, as `reqrep` on `udp`, all machines have the port `at`.
//!
//! # Behaviour
//! **Call and send.** A call waits for the reply. A request with the attribute `invocation` of a
//! send returns empty as soon as the invocation is queued. Invocations of one process on one
//! machine are queued in the order in which they were made, also those made at one time: one that
//! arrives early waits for those before it, for `order_wait`. Each request to another machine
//! is a call of the layer below, whose reply says that it was queued; so it is executed at most
//! once if the layer below promises that. The result comes in a request of its own.
//!
//! **Proc and in.** The protocol above executes each invocation by `call_demux`, up to `upcalls` at
//! one time, each on a shepherd of its own, and may wait there and call others. If it answers the
//! question `guard`, an invocation is executed only once that permits it (SR's `st`); of those
//! permitted the one with the smallest rank (`by`), else the oldest. Guards are asked again
//! whenever an operation ends, and by `ask-guards`. So a protocol above is a rendezvous if it
//! answers, and creates a process for each invocation if it does not.
//!
//! **Reply and forward.** Each invocation comes with its number in the attribute `invocation`. A
//! server that pushes a message with that attribute to the invocation's session has replied; what
//! it does then is as after a send. A server that calls another operation with that attribute has
//! forwarded the invocation: the caller gets the result from there directly, by its token. An
//! invocation is forwarded 15 times at most.
//!
//! **Dead operations and machines.** A call of an operation that no protocol serves, or whose
//! protocol disables it while the call is queued, ends with `no such procedure`; a send is dropped.
//! A call whose machine does not answer ends with `machine dead`: each `probe`, a call that waits
//! asks the machine where its invocation is, and the machine to which it was forwarded. There is no
//! recovery.
//!
//! **End of the program.** With `machines`, on vm 0, a program ends when all of so many machines,
//! from vm 0 on, are idle and no message is under way. Each machine reports to vm 0, once idle,
//! what it has sent and received; a protocol above says by `process-runs` which of its processes
//! run. Processes that call without saying so count while they call, if no other process runs. Then
//! calls end with `program ended`, and `program-ended` says so.
//!
//! At most `queued_max` invocations are queued and `calls_max` calls wait; 512 that came early
//! wait for those before them, up to 256 numbers ahead for one process.
//!
//! # Security
//! No host proves what it says. A forged result ends a call only with the right token of 32 bits,
//! the first of which is random; a machine's number is that of the host that was first heard with
//! it; only the coordinator's host ends the program.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim      link=lan
//!     eth      sim
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     vip      arp ip
//!     fragment vip
//!     channel  fragment
//!     sr       channel vm=1 coordinator="10.0.0.9"
//!     caller   sr to="procedure9@vm2@*"
//! }
//! ```
//!
//! # Standard
//! None; the octets are ours. Andrews, Olsson and others, "An Overview of the SR Language and
//! Implementation", for what the language demands; the end of a program is found as its run-time
//! 2.3 does. There are no messages that create or destroy resources and machines, or that receive
//! from another machine's operation.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod calls;
pub mod held;
pub mod ledger;
pub mod orders;
mod protocol;
pub mod wire;

pub use protocol::{DEAD, ENDED, ENTRY, Settings, Sr};
