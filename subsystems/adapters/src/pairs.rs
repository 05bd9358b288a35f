//! # Synopsis
//! `UPPER-on-LOWER` — joins a protocol of one framework with one of another below it: `bsd-on-xk`,
//! `bsd-on-streams`, `streams-on-xk`, `streams-on-bsd`, `xk-on-bsd`, `xk-on-streams`. The check
//! inserts it.
//!
//! # Participants
//! The addresses of the protocol below, in the form of each framework: participants in the x-kernel
//! (`socket4@node18@net10` on `ddp` and `atp`, `port7@10.0.0.2` on `udp` and `tcp`, `10.0.0.2` on
//! `ip`), socket addresses in BSD (`sockaddr_at`, `sockaddr_in`), and the same octets in the
//! address fields of TPI.
//!
//! # Behaviour
//! **Edges.** On `xk` one protocol whose addresses are those of `ddp`, `atp`, `udp`, `tcp` or `ip`,
//! or another that takes the same hosts or ports, such as `vip`; or a wire. On `bsd` and `streams`
//! one line of that subsystem: `ddp`, `atp`, `udp` or `ip`; below `xk`, and below STREAMS on BSD,
//! also `ether`.
//!
//! An adapter has two halves: the protocol above stands on the upper one, and the lower one stands
//! on the protocol below.
//!
//! **Above, the x-kernel.** `open` makes a session, `open_enable` records an offer; an arrival
//! finds the session by the local port and the peer's address, or makes one for the offer. An open
//! without a local port gets one that no other session or offer has. On `ip` a session has one
//! local host, which is also the source of answers to packets that were sent to many. On `udp` a
//! session opened without a peer receives everything for its port; an attribute of each message has
//! its destination or source, as in the x-kernel's `udp`. On `atp` `call` makes a request with the
//! options of a transaction: those in the attribute `transaction` of the request, or else the
//! settings of that ATP. A reply is found by the number that goes with it. An arriving request is
//! executed by an event of the kernel, on a shepherd, so that it may wait. At most 64 wait for
//! execution, and more are dropped as `queue full`. The protocol below is told of a request that is
//! dropped or refused, and offers it again when it comes again. A call ends when the protocol below
//! reports its end, or half a second for each try after that report was due.
//!
//! **Above, BSD.** The adapter is the lower neighbour in the protocol switch: `pr_output` sends,
//! and arrivals go up by `pr_input` with their addresses, at splnet, marked M_BCAST if they were
//! sent to many. On a wire of the x-kernel the wire's frames are those of the interface above.
//! Below the line `sockets` it has an entry of the protocol switch for programs instead (`xk help
//! bsd/sockets`). On `tcp` `PRU_CONNECT` opens a session and `PRU_LISTEN` offers the port; the
//! adapter pushes only as much as the session has room for, and `PRU_RCVD` reports consumed octets.
//! A peer may send up to 64 KiB before it learns of a smaller buffer.
//!
//! **Above, STREAMS.** The adapter is a driver to which the line above is linked (`I_PLINK`), and a
//! provider of datagrams: T_UNITDATA_REQ sends, arrivals become T_UNITDATA_IND. On a stream that is
//! bound to all addresses the options have our own address. The adapter checks the queue ahead; if
//! that is full, an arrival is dropped as `queue full`. On a wire it is the driver of a device,
//! whose frames are M_DATA; on `ether` a stream is bound to the number of the line above, and by
//! T_OPTMGMT_REQ with an address of a link to eight more. On `tcp` it is a provider of connections
//! with orderly release (`xk help streams/tli`): T_CONN_REQ opens a session, and T_BIND_REQ with a
//! number of indications offers the port. T_DATA_REQ pushes as much as the session has room for,
//! and the rest waits in the write queue. Arrivals go up as far as the queue ahead has room, and
//! count as consumed only then. T_ORDREL_REQ ends the stream, T_DISCON_REQ resets it. A connection
//! exists below before T_CONN_IND, so T_CONN_RES confirms nothing to the peer.
//!
//! **Below, the x-kernel.** A message goes by the session for its two addresses, which is opened if
//! there is none. Up to 256 sessions stay open for what is sent from one address; then the one used
//! longest ago is closed. Waits, such as address resolution, happen outside BSD (`spl0`), and the
//! scheduler of STREAMS goes on without them. The protocol above is offered to all peers; where a
//! protocol takes no offer for all of its ports, such as `ddp`, it gets one for each of the 254. On
//! `atp` a request is a call, made by an event of the kernel, at most 64 at a time; its reply, or
//! the report that there was none, comes back with the options of a transaction. A call from below
//! goes up as a request and waits for the answer, at most eight minutes and at most 64 at a time.
//!
//! **Below, BSD.** The adapter has an entry in the protocol switch above the line below. Where
//! ports distinguish sessions, each port is a socket instead, shared by what has that port. On
//! `udp` it may send broadcasts, and datagrams of any length up to `sb_max` of the subsystem; on
//! `atp` the options of a transaction lie in an mbuf of control information. On `ether` it receives
//! frames with the numbers of the protocols above, for this station and for all groups; a number
//! that a protocol of BSD uses is refused.
//!
//! **Below, STREAMS.** The adapter is a transport user, in place of the stream's head. On `ddp`,
//! `ip` and `ether` one stream is bound to all addresses under the type number of the protocol
//! above, and the options have our own address; on `udp` and `atp` each port has a stream. If the
//! queue ahead is full, a message waits in the adapter's own queue, whose service procedure sends
//! it when there is room. If 65536 octets are waiting, it is refused: the queue is full, in BSD
//! ENOBUFS.
//!
//! **Octets.** Messages of the x-kernel go to the others without a copy: each slice becomes an mbuf
//! or a block that refers to it. To the x-kernel clusters and octets that it has lent are not
//! copied; small mbufs and blocks lent by a third subsystem are, because its messages lie in its
//! pool. Between BSD and STREAMS nothing is copied: small mbufs become blocks whose storage they
//! stay (`esballoc`), and other blocks mbufs whose storage they stay (`m_ext` with a free
//! function). A partial checksum is completed, and a run of segments cut.
//!
//! **Refusals.** A datagram that the protocol above does not want goes back, by `pr_unreach` of
//! BSD, by M_CTL with T_UDERROR_IND in front from STREAMS, and refused in the x-kernel; on `ip` of
//! the x-kernel or of BSD its sender is told. Other drops are counted where they happen, and the
//! layer below is not told of them. A push, `pr_output` or T_UNITDATA_REQ says what the framework
//! below says at once: STREAMS says only that it took the message, and queues of BSD drop later.
//! Later errors come by the means of control, if they name what is above; on `udp` of BSD there are
//! none, because BSD reports them only to connected sockets.
//!
//! **Not passed on.** Attributes of a message and priority bands do not pass, and only `tcp` and
//! STREAMS below have flow control. The protocol below chooses IP's options and the time to live.
//! `pr_ctloutput` of a protocol below cannot be called.
//!
//! **Control.** The largest message is asked by `max-packet` and `opt-packet` in the x-kernel, by
//! the ioctl SIOCGIFMTU in BSD and by T_INFO_REQ in STREAMS; our own address by `my-host` and
//! `my-port`, by SIOCGIFSRCADDR, and by T_ADDR_REQ; each is answered by the means of the framework
//! below. `network-error`, `pr_ctlinput` and T_UDERROR_IND become one another: in the x-kernel at
//! the sessions with that peer, where it is also the error of the next push; for transactions it
//! ends the call whose options it has. M_ERROR and M_HANGUP of a stream below end the sessions on
//! it.
//!
//! Below the x-kernel `peer-host`, `peer-port` and `describe` are answered from the addresses; on
//! `ip` `pseudo-header` and `specific-destination`, for checksums above; on `ether` `my-ether` and
//! `peer-ether`; `min-packet` is an Ethernet's there, and elsewhere 0. Below STREAMS options are
//! managed only on `ether` (otherwise TNOTSUPPORT). All forward what they do not answer.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim                              // bsd-on-xk
//!         ddp ether net="10-19" node=17
//!     }
//!     subsystem streams { aep ddp; }             // streams-on-bsd
//!     atp ddp                                    // xk-on-bsd
//! }
//! ```
//!
//! # Standard
//! None; B. Krupczak, M. Ammar and K. Calvert, Multi-Subsystem Protocol Architectures,
//! GIT-CC-95-08, 1995, section 6.

use crate::above::bsd::BsdAbove;
use crate::above::streams::StreamsAbove;
use crate::above::xk::XkAbove;
use crate::below::bsd::OnBsd;
use crate::below::ether::OnEther;
use crate::below::streams::OnStreams;
use crate::below::xk::OnXk;
use crate::edge::{Above, Below, Edge};
use crate::form::{FRAMES, Form, KINDS, KINDS_AND_LINKS};
use crate::joint::Joint;
use alloc::rc::Rc;
use xk_core::control::{QuestionInfo, question};
use xk_core::graph::{Build, BuildError, ParamSpec, text};
use xk_core::{Entry, ProtocolRef, Reason};

/// Kind of the protocol below, which the check fills in: that protocol may lie in another domain.
static BELOW: [ParamSpec; 1] = [text(
    "below",
    "kind",
    "",
    "the kind of what is below, less layers that pass numbers on; empty for a wire (the check says it)",
)];

const REPORT: QuestionInfo = question("report", "messages lent and copied, each way");
static ABOVE_XK: [QuestionInfo; 5] = [
    question("max-packet", "the largest message: what the protocol below says"),
    question("opt-packet", "the largest message: what the protocol below says"),
    question("list-sessions", "the sessions of the protocol above"),
    question("list-maps", "the table of sessions"),
    REPORT,
];

const NO_WAY: &[&Reason] = &[&crate::NO_WAY];
const ON_XK: &[&Reason] = &[&crate::NO_WAY, &crate::NO_ANSWER];

/// The entry of a pair.
const fn entry(kind: &'static str, summary: &'static str) -> Entry {
    let entry = Entry::adapter(kind, include_str!("pairs.rs"), build).summary(summary);
    entry.questions(&[REPORT]).parameters(&BELOW).joins(&KINDS).reasons(NO_WAY)
}

/// Protocols of BSD's on those of STREAMS.
pub static BSD_ON_STREAMS: Entry =
    entry("bsd-on-streams", "joins a protocol of BSD's with one of STREAMS below it");

/// Protocols of BSD's on those of the x-kernel.
pub static BSD_ON_XK: Entry =
    entry("bsd-on-xk", "joins a protocol of BSD's with what is the x-kernel's below it")
        .reasons(ON_XK);

/// Lines of STREAMS on protocols of BSD's.
pub static STREAMS_ON_BSD: Entry =
    entry("streams-on-bsd", "joins a line of STREAMS with a protocol of BSD's below it")
        .joins(&KINDS_AND_LINKS);

/// Lines of STREAMS on protocols of the x-kernel.
pub static STREAMS_ON_XK: Entry =
    entry("streams-on-xk", "joins a line of STREAMS with what is the x-kernel's below it")
        .reasons(ON_XK);

/// Protocols of the x-kernel on those of BSD.
pub static XK_ON_BSD: Entry =
    entry("xk-on-bsd", "joins a protocol of the x-kernel with one of BSD's below it")
        .questions(&ABOVE_XK)
        .joins(&KINDS_AND_LINKS);

/// Protocols of the x-kernel on those of STREAMS.
pub static XK_ON_STREAMS: Entry =
    entry("xk-on-streams", "joins a protocol of the x-kernel with one of STREAMS below it")
        .questions(&ABOVE_XK)
        .joins(&KINDS_AND_LINKS);

/// STREAMS in the kernel that is built.
fn streams_of(build: &Build<'_>) -> Result<Rc<xk_streams::Streams>, BuildError> {
    xk_streams::Streams::of(build.cx).ok_or_else(|| BuildError::Environment {
        param: None,
        what: "the host has no STREAMS".into(),
        help: "write a line within `subsystem streams { ... }`".into(),
    })
}

/// Builds an adapter from its two halves, which the kind names.
fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (upper, on) = build.entry.kind.split_once("-on-").unwrap_or_default();
    let lower = build.lower(0)?;
    let form = build.params.text("below").and_then(Form::of).unwrap_or(&FRAMES);
    let edge = Edge::new(form, lower);
    let foreign = || BuildError::Lower { at: 0 };
    let mut on_xk = None;
    let below: Rc<dyn Below> = match on {
        "bsd" if form.is_link() => {
            Rc::new(OnEther::new(&xk_bsd::of(build.cx)?, &edge).ok_or_else(foreign)?)
        }
        "bsd" => Rc::new(OnBsd::new(&xk_bsd::of(build.cx)?, &edge).ok_or_else(foreign)?),
        "streams" => Rc::new(OnStreams::new(&streams_of(build)?, &edge).ok_or_else(foreign)?),
        _ => Rc::new(on_xk.insert(OnXk::new(&edge)).clone()),
    };
    let above: Rc<dyn Above> = match upper {
        "bsd" => Rc::new(BsdAbove::new(&xk_bsd::of(build.cx)?, &edge, &below)),
        "streams" => Rc::new(StreamsAbove::new(&streams_of(build)?, &edge, &below)),
        _ => Rc::new(XkAbove::new(build.cx, &edge, &below)),
    };
    let (over, under) = (Rc::clone(&above), Rc::clone(&below));
    // The x-kernel's half is the node.
    let node = match (above.node(), on_xk) {
        (Some(half), _) => build.add(half)?,
        (None, Some(half)) => build.add(half.under(over))?,
        (None, None) => build.add(Joint { edge: Rc::clone(&edge), above: over, below: under })?,
    };
    edge.placed(&node);
    above.placed(build.cx, &node).map_err(xk_bsd::environment)?;
    below.placed(build.cx, &node).map_err(xk_bsd::environment)?;
    Ok(node)
}
