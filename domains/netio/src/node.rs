//! # Synopsis
//! `netio WIRE door="SOCKET"` — the network I/O module: programs that are not trusted send and
//! receive frames on a wire, those that fit the headers that they were granted.
//!
//! # Participants
//! None, as those of the wire below.
//!
//! # Behaviour
//! The protocol above that makes frames, such as `eth`, sends what it likes, and gets what is for
//! no program. Beside it stand protocols of the control realm that grant channels: they put
//! `grant-channel`, `grant-right`, `revoke-right`, `revoke-channel` and `list-rights` to the module
//! itself. Everything else is forwarded to the wire, which may have a filter on it.
//!
//! A program has a *channel*: a rate, and rings in shared memory that it fetches at the socket
//! `door` by showing a ticket. To a channel belong *rights*, each a pair of templates of the
//! headers that frames bear. What the program sends is copied out of its reach and goes to the
//! wire if it fits a right of its channel. If not it is dropped as "not as granted", and after 100
//! such frames the channel is revoked ("channel revoked"); what would have fitted one of the last
//! 256 rights that have ended, since the program may not know yet, as "right has ended". What
//! arrives and fits a right goes to its program, or is dropped as "channel full"; all else goes up.
//! Open checksums and runs of segments cross the rings as they are if the program asks for it with
//! its ticket (an octet 1 behind it), and finished and cut otherwise. [The crate](crate) has more
//! of it.
//!
//! The session of the wire is the module's own: when what stands on the module ends, by `kill -9`
//! in another domain too, and is started again, channels and rights are as they were. What was
//! granted is bounded ([`crate::CHANNELS_MAX`], [`crate::RIGHTS_MAX`]), and told to the one
//! that comes back (`list-rights`). A channel ends with its program, by `kill -9` too, or by
//! `revoke-channel`. All end with the module: to those that watch it (`watch-module`) the next one
//! says that it is another (`module-is`).
//!
//! A [`Door`] is the socket where a program shows the ticket that it was given; [`connect`] gives
//! its end, for [`crate::channel`]. A stranger cannot have a channel without its ticket, which
//! is random, of 16 octets, and good once; nor keep others from theirs: of those that have come
//! and shown no ticket there are [`COMERS_MAX`], [`COMERS_OF_A_USER_MAX`] of one user, each for
//! [`TICKET_WITHIN`]. Of more, the one that came first is sent away. They are counted at the door,
//! an object of its own, as "prohibited".
//!
//! All users may use the socket: tickets say what they may have. It is made before the process
//! leaves its rights. A socket that a dead process left is taken over, under a lock on the file of
//! that name with `.lock` behind it; both files go when the host ends. A simulation has no doors:
//! there, and within the program that runs the graph, a channel is attached to the
//! [`crate::Module`] beside the kernel.
//!
//! How it is found out for which program an arrival is, `demux` says:
//!
//! - `map`: by its octets under the masks of the rights' templates, in the module.
//! - `index`: by a number in its link header that this module has chosen for the right (the
//!   paper's buffer queue index), and has told the module of the station at the other end, once the
//!   right is granted and from time to time if it is not used. The frame must still be one of the
//!   right. Frames to a station that has told none, and to several, are as without it; a peer
//!   without such a module is told some few times and needs to know nothing. Frames have type
//!   0x88b6 then, of which nothing above sees any, and are 4 octets longer, so that others are
//!   shorter: `max-packet` says so. For wires with frames of Ethernet: `sim`, `shm`, `host-eth`.
//! - `bpf`: by programs of the system.
//!
//! With `bpf` and `uplink`, the interface that the wire is on (`packet`, `xdp`), the system
//! itself checks what programs send and finds out for which program an arrival is (eBPF; module
//! `xdp` of `xk-netio` has a table of what differs): frames of channels do not go through this
//! process.
//! What the system leaves comes to the module as without it. It needs `CAP_NET_ADMIN`,
//! `CAP_NET_RAW`, `CAP_BPF`, and at the beginning `CAP_SYS_ADMIN`; a thread keeps the first three.
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
