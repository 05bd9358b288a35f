//! # Synopsis
//! `netio WIRE door="SOCKET"` — the network I/O module: untrusted programs send and receive those
//! frames on a wire that fit the headers granted to them.
//!
//! # Participants
//! None, as for the wire below.
//!
//! # Behaviour
//! The protocol above that makes frames, such as `eth`, may send any frame, and receives the frames
//! that are for no program. Beside it stand protocols of the control realm that grant channels:
//! they put `grant-channel`, `grant-right`, `revoke-right`, `revoke-channel` and `list-rights` to
//! the module itself. Everything else is forwarded to the wire, which may have a filter on it.
//!
//! A program has a *channel*: a rate, and rings in shared memory, which it fetches at the socket
//! `door` by a ticket. A channel has *rights*, each a pair of templates of headers. A frame from
//! the program is copied out of its reach, and goes to the wire if it fits a right of the channel.
//! Otherwise it is dropped as "not as granted"; after 100 such frames the channel is revoked
//! ("channel revoked"). A frame that fits one of the last 256 ended rights is dropped as "right has
//! ended" and does not count, because the program may not know of the end yet. An arriving frame
//! that fits a right goes to its program, or is dropped as "channel full"; all others go up.
//! Partial checksums and runs of segments cross the rings unchanged if the program asks for it with
//! its ticket (an octet 1 after it); otherwise they are completed and cut. [The crate](crate)
//! describes more.
//!
//! The session of the wire belongs to the module: if the protocol above ends, even by `kill -9` of
//! another domain, and is started again, channels and rights are unchanged. Their numbers are
//! bounded ([`crate::CHANNELS_MAX`], [`crate::RIGHTS_MAX`]), and the restarted protocol can list
//! them (`list-rights`). A channel ends with its program, even by `kill -9`, or by
//! `revoke-channel`. All channels end with the module; a new module announces itself to protocols
//! that watch it (`watch-module`) by `module-is`.
//!
//! A [`Door`] is the socket where a program shows its ticket; [`connect`] returns the program's
//! end, for [`crate::channel`]. A ticket is 16 random octets and valid once, so a stranger cannot
//! get a channel without it. A stranger cannot block other programs either: there are at most
//! [`COMERS_MAX`] connections without a ticket, [`COMERS_OF_A_USER_MAX`] of one user, each for
//! [`TICKET_WITHIN`]; one more replaces the oldest. Those are counted as "prohibited" at the door,
//! which is an object of its own.
//!
//! All users may connect to the socket: the ticket determines their rights. The socket is made
//! before the process gives up its privileges. A socket that a dead process left is taken over,
//! under a lock on the file of that name with the ending `.lock`; both files are removed when the
//! host ends. A simulation has no doors: there, and within the program that runs the graph, a
//! channel is attached to the [`crate::Module`] beside the kernel.
//!
//! The parameter `demux` selects how the module finds the program of an arriving frame:
//!
//! - `map`: the module compares its octets, under masks, with the templates of the rights.
//! - `index`: by a number in the link header that this module has chosen for the right (the paper's
//!   buffer queue index). It offers the number to the peer's module when the right is granted, and
//!   again from time to time if frames come without it. The frame must still fit the right. Frames
//!   to a station that has offered no number, and to groups, have none; a peer without such a
//!   module gets a few offers and can ignore them. Frames with a number have type 0x88b6, which the
//!   protocols above do not see, and are 4 octets longer, so `max-packet` is 4 octets less. It
//!   works on wires with Ethernet frames: `sim`, `shm`, `host-eth`.
//! - `bpf`: by eBPF programs in Linux.
//!
//! With `bpf` and `uplink`, the interface of the wire (`packet`, `xdp`), Linux itself checks sent
//! frames and finds the programs of arriving ones by eBPF, so frames of channels do not go through
//! this process. (The module `xdp` of `xk-netio` has a table of the differences.) Frames that eBPF
//! leaves come to the module as usual. This needs `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF`, and at
//! the start `CAP_SYS_ADMIN`; a thread keeps the first three.
//!
//! # Example
//! ```kdl
//! host machine {
//!     tap   device=xk0 host_address="10.9.0.1/24"
//!     netio tap door="/run/xk-netio.sock" rate="1Gbit"
//!     eth   netio
//!     arp   eth
//!     ip    arp { address "10.9.0.2/24" }
//!     icmp  ip
//! }
//! ```
//!
//! # Standard
//! "Implementing Network Protocols at User Level" (Thekkath, Nguyen, Moy and Lazowska 1993),
//! section 3.2. Templates are compared, not interpreted; one channel has many rights, where the
//! paper has one for each connection.

mod door;
mod protocol;

pub use door::{COMERS_MAX, COMERS_OF_A_USER_MAX, Door, Hand, TICKET_WITHIN, connect};

use crate::{
    GrantChannel, GrantRight, ListRights, ModuleIs, REASONS, RevokeChannel, RevokeRight,
    WatchModule,
};
use xk_core::Entry;
use xk_core::control::{own_question, question};
use xk_core::graph::{Family, ParamKind, Realm, StackingRules, octets, optional, word};

/// The entry in the catalog.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::filter("netio", include_str!("node.rs"), protocol::build)
    .summary("the network I/O module: programs send and receive frames that fit what they were granted")
    .on(&[Realm::Wire], &[Family::Inherit])
    .stacking_rules(&StackingRules {
        sole: &["door"],
        listens_at: Some("door"),
        ..StackingRules::NONE
    })
    .parameters(&[
        optional("door", ParamKind::Text("the path of a socket, such as /run/xk/netio"),
            "the path of the socket where programs show their tickets, at most 107 octets, in a \
             folder that exists; without it there is none"),
        word("demux", &["map", "bpf", "index"], "map",
            "how arrivals for programs are found: by a map of their headers, by programs of the \
             system (eBPF) past this process, or by an index in the link header"),
        optional("uplink", ParamKind::Text("the name of a network interface, such as eth0"),
            "with `demux=bpf` the interface below the wire, at which programs of the system check \
             and demultiplex the frames of channels"),
        optional("rate", ParamKind::Rate,
            "bits of frames that a channel may send in each second, whatever it was granted"),
        octets("burst", 256 << 10,
            "octets of frames that a channel may send at once after a pause, if there is a `rate`"),
    ])
    .questions(&[
        own_question::<GrantChannel>("a channel for a program, by a ticket"),
        own_question::<GrantRight>("a right of a channel: the headers of a session"),
        own_question::<RevokeRight>("the end of a right"),
        own_question::<RevokeChannel>("the end of a channel, and of its rights"),
        own_question::<ListRights>("all rights, for one that was started again"),
        own_question::<WatchModule>("which module it is, and the next one in its place"),
        own_question::<ModuleIs>("told upwards: which module it is"),
        question("describe", "how many channels and rights there are"),
        question("list-sessions", "its session"),
    ])
    .probe(protocol::probe)
    .reasons(REASONS);
