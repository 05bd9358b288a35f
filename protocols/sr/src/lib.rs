//! # Synopsis
//! `sr LOWER vm=1 coordinator="10.0.0.1"` — the run-time support of SR: operations on virtual
//! machines, invoked by call or send.
//!
//! # Participants
//! An operation, a virtual machine, and the machine's host, `procedure9@vm2@10.0.0.2`. Without the
//! host, or with `*`, it is found in `hosts`, or else the coordinator is asked. The local
//! participant of a caller may be one of its machine's processes, `process7`, 0 to 255; the default
//! is process 0. A server enables one operation, `procedure9`, or `*` for all that no other
//! protocol serves. Machines are numbered from 0 to 253, and 0 is the coordinator. Operations of
//! `vm254` do nothing; `vm255` has none.
//!
//! If the layer below has ports, as `reqrep` on `udp`, all machines use the port `at`.
//!
//! # Behaviour
//! **Call and send.** A call waits for the reply. A request whose attribute `invocation` says send
//! returns an empty reply as soon as the invocation is queued. Invocations of one process on one
//! machine are queued in the order in which they were made, concurrent ones included: one that
//! arrives early waits for those before it, but not much longer than `order_wait`. An invocation
//! goes to another machine as a call of the layer below, whose reply confirms that it was queued;
//! so it is executed at most once if that layer guarantees it. The result comes in its own request.
//!
//! **Proc and in.** The protocol above executes each invocation by `call_demux`, up to `upcalls` at
//! a time, each on a shepherd of its own, and may wait there and call others. If the protocol
//! answers the question `guard`, an invocation is executed only once the answer permits it (SR's
//! `st`); of those permitted the one with the smallest rank (`by`) goes first, of equal ranks the
//! oldest. Guards are evaluated again whenever an operation ends, and on `ask-guards`. So a
//! protocol that answers is a rendezvous, and one that does not creates a process for each
//! invocation.
//!
//! **Reply and forward.** Each invocation comes up with its number in the attribute `invocation`. A
//! server replies by pushing a message with that attribute to the invocation's session; from then
//! on it runs as after a send. A server that calls another operation with that attribute forwards
//! the invocation: the caller gets the result directly from there, by its token. An invocation is
//! forwarded 15 times at most.
//!
//! **Dead operations and machines.** A call of an operation that no protocol serves, or whose
//! protocol disables it while the call is queued, ends with `no such procedure`; a send is dropped.
//! A call whose machine does not answer ends with `machine dead`: every `probe` a waiting call asks
//! the machine where its invocation is, and the machine to which it was forwarded. There is no
//! recovery.
//!
//! **End of the program.** With `machines` on vm 0, a program ends when that many machines,
//! numbered from 0, are all idle and no message is under way. Each idle machine reports to vm 0 the
//! numbers of messages sent and received; a protocol above declares by `process-runs` which of its
//! processes run. An undeclared process counts during its calls, if no other process runs. At the
//! end calls fail with `program ended`, and `program-ended` is true.
//!
//! The coordinator tells each machine of the end until that confirms it, 32 times in a quarter of
//! an hour.
//!
//! **Limits.** At most `queued_max` invocations are queued and `calls_max` calls wait. Of one other
//! machine at most `machine_queued_max` invocations are here at a time, the queued ones, those that
//! are executed, and those whose results it has not taken; of such results at most `upcalls` are on
//! the way, which delay no execution for others. At most 512 early invocations wait, of one machine
//! 128, each less than 256 numbers ahead of the next one of its process.
//!
//! # Security
//! A machine is known here once its host has said so and, unless the layer below has proved the
//! host's address (`channel` has), has returned a ticket that was sent to it. All other messages
//! are believed only if they come from the host of the machine that sends them. A host has one
//! number, and a number one host, as long as that host answers; so a stranger may be a machine that
//! has not begun yet, but not in the place of another. With `hosts`, which lists the hosts of all
//! machines from vm 0 on, a machine is at its host alone, and no other host is one. The
//! coordinator's number belongs to the host in the graph, which alone ends the program, and no host
//! has a machine's own number. A result ends a call only with the right token of 32 bits, which is
//! drawn for each call.
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
//! None; the packet format is xk's own. Andrews, Olsson and others, "An Overview of the SR Language
//! and Implementation", for what the language requires; the end of a program is detected as in its
//! run-time system 2.3. There are no messages that create or destroy resources and machines, or
//! that receive from an operation of another machine.
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
