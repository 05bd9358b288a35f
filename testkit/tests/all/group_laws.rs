//! The laws that every protocol keeps, checked for `psync` and for the layers that stand on its
//! conversations. Those of the layers above are sent in packets of `psync`.

use core::cell::RefCell;
use core::time::Duration;
use xk_core::control::ListSessions;
use xk_core::graph::{Params, Value};
use xk_core::{Entry, HostAddr, Kernel, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_kit::group::{Outstanding, PROCESS};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::PROCEDURE;
use xk_psync::wire::{self, Address, Header, LISTED, Opening};
use xk_testkit::conformance::calls::{self, CallFixture};
use xk_testkit::conformance::{Fixture, Node, Side, bounded, keeps_all_but};
use xk_testkit::kernel::{Family, Lower, Sent};

/// Window for all that a law sends in a row.
const WINDOW: u16 = 256;

/// Laws that `psync` skips, and with it those above.
const SKIPPED: &[&str] = &[
    // It tells protocols above apart by processes.
    "no type number, no session",
    // Its headers differ from message to message.
    "headers are as they are told",
    // What was refused before is sent again.
    "an enable makes sessions",
    // A refusal ends here: the others have the message.
    "a refusal comes back",
    // A frame that comes again is a duplicate, however it lies in its buffers; the laws of calls
    // have them in slices.
    "headers may lie in slices",
    // So many as this law sends in a row no window lets through.
    "no allocation per message",
    // A message waits for those before it of its sender.
    "a burst does not wait for one",
];

/// Layers of a conversation, the lowest first.
struct Stack {
    kinds: &'static [&'static str],
    /// All but the last, of each side: they drop messages, too.
    below: RefCell<[Vec<ProtocolRef>; 2]>,
}

impl Stack {
    fn of(kinds: &'static [&'static str]) -> Self {
        Self { kinds, below: RefCell::default() }
    }

    fn tested(&self) -> &'static Entry {
        entry(self.kinds[self.kinds.len() - 1])
    }

    /// Stands all but the last on `bottom`.
    fn stand(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> ProtocolRef {
        let mut all = Vec::new();
        let mut lower = bottom.clone();
        for kind in &self.kinds[..self.kinds.len() - 1] {
            let entry = entry(kind);
            let name = format!("{kind}-{side:?}");
            lower = entry.add(cx, &name, &[lower], &params(entry)).expect("it is built");
            let numbers = entry.type_numbers();
            numbers.for_each(|number| cx.numbers_mut().add(number).expect("one number"));
            all.push(lower.clone());
        }
        self.below.borrow_mut()[side as usize] = all;
        lower
    }

    fn below(&self, side: Side) -> Vec<ProtocolRef> {
        self.below.borrow()[side as usize].clone()
    }
}

fn entry(kind: &str) -> &'static Entry {
    xk_catalog::find(kind).expect("a protocol of the catalog")
}

fn params(entry: &Entry) -> Params {
    let mut params = bounded(entry, 256);
    match entry.kind {
        "psync" => params.set("window", Value::Integer(WINDOW.into())),
        // Time passes here while no frame is carried.
        "membership" => params.set("suspect", Value::Duration(Duration::from_secs(600))),
        _ => {}
    }
    params
}

fn process(side: Side) -> u32 {
    1 + side as u32
}

fn part(side: Side) -> Part {
    Part::Number(PROCESS, process(side).into())
}

fn peer(side: Side) -> Participant {
    Participant::of(Part::Host(side.host(Family::V4))).with(part(side))
}

impl Fixture for Stack {
    fn entry(&self) -> &'static Entry {
        self.tested()
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 253)
    }

    fn lowers(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> Vec<ProtocolRef> {
        vec![self.stand(cx, side, bottom)]
    }

    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        self.below(side)
    }

    fn params(&self, _: Side) -> Params {
        params(self.tested())
    }

    /// Messages that wait for others.
    fn taken(&self, cx: &Kernel, node: &Node) -> u64 {
        let Some(listed) = node.tested.ask(cx, ListSessions::first(9)) else { return 0 };
        let waiting = |session: &SessionRef| {
            let asked = session.ask(cx, Outstanding::default()).unwrap_or_default();
            u64::from(asked.ready + asked.waiting)
        };
        listed.here().map(waiting).sum()
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(part(side), peer(side.other()))
    }

    fn enable(&self, side: Side) -> Option<Participants> {
        Some(Participants::local(part(side)))
    }

    /// Each stranger has a conversation of its own, whose first message lists the members.
    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let octets: Vec<u8> = sent.message.octets().collect();
        let mut header = Header::parse(octets.first_chunk().ok_or("a header is there")?);
        let body = &octets[octets.len() - header.length as usize..];
        header.conversation = 0x1000_0000 + n;
        // The second message of ours is the first of a stranger.
        header.seq -= 1;
        let before = wire::Entry { sender: 0, incarnation: 1, seq: header.seq - 1 };
        let before: &[u8] = if header.seq > 1 { &before.emit() } else { &[] };
        (header.flags, header.entries) = (LISTED, (before.len() / wire::Entry::OCTETS) as u8);
        let host = HostAddr::from((0x0b00_0000 + n).to_be_bytes());
        let members = [(Side::A, host), (Side::B, Side::B.host(Family::V4))];
        let address =
            |(side, host)| Address { process: process(side), peer: Peer { host, port: 0 } };
        let opening = Opening { window: WINDOW, members: members.map(address).to_vec() };
        Ok((Some(Part::Host(host)), [&header.emit()[..], before, &opening.emit(), body].concat()))
    }
}

#[test]
fn psync_keeps_the_laws() {
    keeps_all_but(&Stack::of(&["psync"]), SKIPPED);
}

#[test]
fn membership_keeps_the_laws() {
    keeps_all_but(&Stack::of(&["psync", "membership"]), SKIPPED);
}

#[test]
fn order_keeps_the_laws() {
    keeps_all_but(&Stack::of(&["psync", "order"]), SKIPPED);
}

/// Calls to the members of a conversation.
struct Calls(Stack);

impl CallFixture for Calls {
    fn entry(&self) -> &'static Entry {
        self.0.tested()
    }

    fn lower(&self, side: Side) -> Lower {
        self.0.lower(side)
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        let procedure = Part::Number(PROCEDURE, procedure.into());
        Participants::pair(part(side), peer(side.other()).with(procedure))
    }

    fn enable(&self, side: Side) -> Participants {
        Participants::local(Participant::of(part(side)).with(Part::Any))
    }

    fn params(&self, _: Side) -> Params {
        params(self.entry())
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef, params: &Params) -> ProtocolRef {
        let (entry, lower) = (self.entry(), self.0.stand(cx, side, bottom));
        let name = format!("{}-{side:?}", entry.kind);
        entry.add(cx, &name, &[lower], params).expect("it is built")
    }

    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        self.0.below(side)
    }
}

/// Laws that `groupcall` skips.
const CALLS_SKIPPED: &[&str] = &[
    // It calls several.
    "several peers are refused",
    // Those of one conversation are executed one after the other.
    "calls at one time do not meet",
    // Each is a message of the conversation, which is kept until all have it.
    "no allocation per call",
];

#[test]
fn groupcall_keeps_the_laws() {
    for kinds in [&["psync", "groupcall"][..], &["psync", "order", "groupcall"]] {
        calls::keeps_all_but(&Calls(Stack::of(kinds)), CALLS_SKIPPED);
    }
}
