//! The laws that every protocol keeps, as tests: one suite for all of them.
//!
//! A protocol's own test names itself by a [`Fixture`], and [`all`] puts it between a [`Bottom`]
//! that captures and injects and a [`Top`] that records, twice, so that two instances talk to each
//! other. Every law is a function of its own and can be run alone.
//!
//! | law | function |
//! | --- | --- |
//! | sessions are opened, counted, closed, opened again | [`sessions::opens_and_closes`] |
//! | one conversation, one session; another upper gets none of it | [`sessions::is_found_again`] |
//! | several peers are taken whole or refused | [`peers::takes_all_or_none`] |
//! | an enable makes a session at the first message | [`sessions::enables`] |
//! | a refusal comes back, and leaves nothing | [`sessions::refuses`] |
//! | one that comes late is as one that comes at once | [`sessions::refuses_late`] |
//! | a session ends with what it stands on, or goes on over another | [`sessions::ends_with_its_lower`] |
//! | the receiver and the protocol whose number selects are two identities | [`sessions::lets_a_layer_between`] |
//! | no type number, no session | [`sessions::wants_a_type_number`] |
//! | nothing is left after `stop` | [`sessions::stops`] |
//! | octets go in as they come out, in their own buffers | [`messages::carries`] |
//! | the largest message that a refusal tells of is taken | [`messages::tells_what_it_takes`] |
//! | a push that finds no buffer is counted | [`messages::counts_what_finds_no_buffer`] |
//! | a header may lie in several slices | [`messages::takes_slices`] |
//! | a kept copy is never altered | [`messages::leaves_copies_alone`] |
//! | no allocation per message | [`messages::allocates_nothing`] |
//! | no damage panics or disappears | [`hostile::survives_damage`] |
//! | strangers do not make it grow | [`hostile::survives_a_flood`] |
//! | what strangers began holds nothing below | [`hostile::pins_nothing`] |
//! | what is held leaves room for strangers | [`hostile::has_room_beside_what_is_held`] |
//! | a session tells where its first message came from | [`hostile::tells_its_source`] |
//! | what a session says of its headers is what it does | [`headers::are_as_told`] |
//! | questions are answered as listed, others forwarded | [`control::answers`] |
//! | a question from below goes up once, and ends if it comes back | [`control::goes_up_once`] |
//! | a question that is lost founds nothing | [`lost::founds_nothing`] |
//! | what is for many is not for one | [`hosts::tells_one_from_many`] |
//! | while layers below block, several opens make one session | [`blocking::opens_once`] |
//! | so do several first messages | [`blocking::makes_one_session`] |
//! | of several enables as many succeed as in turn | [`blocking::enables_once`] |
//! | copies and damaged frames at one time harm nothing | [`blocking::bears_copies`] |
//! | messages keep their order | [`blocking::keeps_order`] |
//! | a protocol is told of a session before any message of it | [`blocking::tells_of_sessions_first`] |
//! | all is accounted for and given back | [`blocking::gives_back`] |
//! | calls are for the rpc realm alone | [`rpc::takes_no_calls`] |
//!
//! Wires, which stand on nothing, have laws of their own: [`mod@wire`]. So have protocols of the
//! rpc realm: [`mod@calls`].
//!
//! # Example
//! ```ignore
//! #[global_allocator]
//! static COUNTED: xk_testkit::conformance::CountingAllocator = CountingAllocator;
//!
//! struct Null;
//! impl Fixture for Null {
//!     fn entry(&self) -> &'static Entry { &xk_null::ENTRY }
//!     fn lower(&self, _: Side) -> Lower { Lower::link(1500) }
//!     fn number(&self) -> Option<u32> { Some(7) }
//! }
//!
//! #[test]
//! fn keeps_the_laws() {
//!     println!("{}", conformance::all(&Null));
//! }
//! ```

mod allocator_unsafe;
pub mod blocking;
pub mod bursts;
pub mod calls;
pub mod control;
mod crossing;
mod cut;
pub mod headers;
pub mod hostile;
pub mod hosts;
pub mod lost;
pub mod messages;
pub mod openings;
pub mod peers;
pub mod rpc;
pub mod sessions;
pub mod through;
pub mod wire;
mod world;

pub use allocator_unsafe::{CountingAllocator, allocations, counts_allocations, octets_live};
pub use world::{Node, World};

use crate::kernel::{Addressing, Family, Lower, Sent};
#[expect(unused_imports, reason = "the documentation names them")]
use crate::kernel::{Bottom, Top};
use core::fmt;
use core::time::Duration;
use xk_core::graph::{Params, Value};
use xk_core::{Answer, Entry, HostAddr, Kernel, Part, Participant, Participants, ProtocolRef};
use xk_kit::net::checksum::Checksum;

/// One of the two instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that opens.
    A,
    /// The one that receives.
    B,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// Host of the side, in a network of both.
    #[must_use]
    pub fn host(self, family: Family) -> HostAddr {
        family.host(1 + self as u32)
    }
}

/// The instance that receives messages from A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The protocol above B.
    Upper,
    /// B itself, which sends them back to the protocol above A, as an echo does.
    Itself,
}

/// A protocol under test, with facts that the suite cannot find out by itself.
pub trait Fixture {
    /// Catalog entry.
    fn entry(&self) -> &'static Entry;

    /// The layer below.
    fn lower(&self, side: Side) -> Lower;

    /// Port that the protocol above enables; `None` if it has no ports.
    fn port(&self, side: Side) -> Option<Part> {
        let _ = side;
        None
    }

    /// The participants with which the protocol above opens a session to the other side: by
    /// default the addresses that the layer below takes, with the ports.
    fn open(&self, side: Side) -> Participants {
        let other = side.other();
        match (self.lower(other).own(), self.port(side).zip(self.port(other))) {
            (None, None) => Participants::default(),
            (None, Some((own, port))) => Participants::pair(own, port),
            (Some(peer), None) => Participants::pair(Part::Any, peer),
            (Some(peer), Some((own, port))) => {
                Participants::pair(own, Participant::of(peer).with(port))
            }
        }
    }

    /// The participants with which the protocol above enables; `None` if it takes no enables.
    fn enable(&self, side: Side) -> Option<Participants> {
        Some(Participants::local(self.port(side).unwrap_or(Part::Any)))
    }

    /// Participants of an enable for one local host, broadcast or group; `None` if the protocol has
    /// no ports.
    fn enable_at(&self, side: Side, host: HostAddr) -> Option<Participants> {
        let local = Participant::of(Part::Host(host)).with(self.port(side)?);
        Some(Participants::local(local))
    }

    /// Whether it accepts messages to a broadcast or a group; a protocol of connections does not.
    fn takes_many(&self) -> bool {
        true
    }

    /// Type number by which it selects the protocol above; `None` if it selects otherwise, such as
    /// by ports.
    fn number(&self) -> Option<u32> {
        None
    }

    /// Type numbers of the protocol above a virtual protocol, on the kinds below.
    fn numbers_below(&self) -> &[(&'static str, u32)] {
        &[]
    }

    /// Parameters; missing ones get their defaults.
    fn params(&self, side: Side) -> Params {
        let _ = side;
        bounded(self.entry(), self.sessions_max())
    }

    /// Layers below: `bottom`, unless there are more.
    fn lowers(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> Vec<ProtocolRef> {
        let _ = (cx, side);
        vec![bottom.clone()]
    }

    /// The protocol object that protocols above use: the tested one, or its proxy above a cut.
    fn above(&self, cx: &Kernel, side: Side, tested: &ProtocolRef) -> ProtocolRef {
        let _ = (cx, side);
        tested.clone()
    }

    /// Whether an edge is cut, so that octets are copied there.
    fn is_cut(&self) -> bool {
        false
    }

    /// Longest time that a notice takes across cuts, there and back.
    fn lateness(&self) -> Duration {
        Duration::ZERO
    }

    /// Other objects of the side that may drop messages: proxies at cuts, and layers below.
    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        let _ = side;
        Vec::new()
    }

    /// Acts for the protocols above once both instances have started, such as claiming addresses.
    fn started(&self, world: &World<'_>) {
        let _ = world;
    }

    /// The instance that receives messages from A.
    fn receiver(&self) -> Receiver {
        Receiver::Upper
    }

    /// Length of the smallest message that arrives unchanged, in octets: more than 0 where a link
    /// pads.
    fn message_octets_min(&self) -> usize {
        0
    }

    /// Whether the protocol is a stream: pieces arrive cut differently than they were sent, and
    /// none is lost. Then octets are counted, and not messages.
    fn is_stream(&self) -> bool {
        false
    }

    /// Largest number of sessions of an instance: few, so that strangers reach the bound.
    fn sessions_max(&self) -> usize {
        256
    }

    /// Number of messages so far that it kept or answered itself: requests, or fragments.
    fn taken(&self, cx: &Kernel, node: &Node) -> u64 {
        let _ = (cx, node);
        0
    }

    /// Time within which a message that was lost is sent again, for a protocol that does so; then
    /// frames may come twice, and a message is kept until the other side has it.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Offset in its messages of an Internet checksum over the hosts of both ends (RFC 768; RFC
    /// 9293, section 3.1); `None` if there is none.
    fn checksum_at(&self) -> Option<usize> {
        None
    }

    /// Makes a frame like `sent` (captured below A, for B) from stranger number `n`, and returns
    /// the peer that it comes from. The frame is as valid as `sent`: B drops neither.
    ///
    /// # Errors
    /// Why there are no strangers.
    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let mut octets: Vec<u8> = sent.message.octets().collect();
        let peer = match self.lower(Side::A).addressing {
            Addressing::Link => return Err("a link has one other end"),
            Addressing::Ether(_) => {
                let [a, b, c, d] = n.to_be_bytes();
                Part::Ether([0x06, 0, a, b, c, d])
            }
            Addressing::Host(own) => {
                let host = match own.to_v4() {
                    Some(_) => HostAddr::from((0x0b00_0000 + n).to_be_bytes()),
                    None => HostAddr::v6((0x2001_0db8_000b << 80 | u128::from(n)).into(), 0),
                };
                if let Some(at) = self.checksum_at() {
                    readdress(&mut octets[at..at + 2], own, host);
                }
                Part::Host(host)
            }
        };
        Ok((Some(peer), octets))
    }

    /// The reason why a stranger's first message makes no session for the protocol above; `None` if
    /// it makes one.
    fn opens_nothing(&self) -> Option<&'static str> {
        None
    }

    /// True if it is at the bottom of the graph, and the system carries messages from one instance
    /// to the other. Then nothing can be captured or injected below it, and the laws that need that
    /// are skipped.
    fn is_anchor(&self) -> bool {
        false
    }

    /// Lets the system carry messages between the instances of an anchor; returns how many arrived.
    fn carry(&self, world: &World<'_>) -> usize {
        let _ = world;
        0
    }

    /// Asks one of the protocol's own questions, by name; `None` if there is none of this name.
    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        let _ = (world, name);
        None
    }
}

/// Counts the host `to` instead of `from` in an Internet checksum (RFC 1624, equation 3).
fn readdress(checksum: &mut [u8], from: HostAddr, to: HostAddr) {
    let mut sum = Checksum::new();
    checksum.iter_mut().for_each(|octet| *octet = !*octet);
    sum.add(checksum);
    from.octets().iter().for_each(|octet| sum.add(&[!octet]));
    sum.add(to.octets());
    // 0 is no checksum (RFC 768).
    let changed = match sum.finish() {
        0 => 0xffff,
        changed => changed,
    };
    checksum.copy_from_slice(&changed.to_be_bytes());
}

/// Parameters with this bound, where the entry has one on sessions.
#[must_use]
pub fn bounded(entry: &Entry, sessions_max: usize) -> Params {
    let mut params = Params::default();
    if entry.parameters.iter().any(|p| p.name == "sessions_max") {
        params.set("sessions_max", Value::Integer(sessions_max as i64));
    }
    params
}

/// Builds the fixture's protocol above `bottom` as its entry says.
fn build(fixture: &dyn Fixture, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> ProtocolRef {
    let entry = fixture.entry();
    entry
        .add(
            cx,
            &format!("{}-{side:?}", entry.kind),
            &fixture.lowers(cx, side, bottom),
            &fixture.params(side),
        )
        .expect("the fixture's parameters build the protocol")
}

/// A law: its name, and the function that checks it.
type Law = (&'static str, fn(&dyn Fixture) -> Verdict);

/// Result of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The law holds.
    Holds,
    /// The law does not apply to this protocol or cannot be checked here, for this reason.
    Skipped(&'static str),
}

/// Result of [`all`].
#[derive(Debug, Default)]
pub struct Findings {
    /// The laws that hold.
    pub held: Vec<&'static str>,
    /// The laws that were not checked, with the reasons.
    pub skipped: Vec<(&'static str, &'static str)>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for law in &self.held {
            writeln!(f, "holds    {law}")?;
        }
        for (law, why) in &self.skipped {
            writeln!(f, "skipped  {law}: {why}")?;
        }
        Ok(())
    }
}

/// The laws, in the order in which [`all`] checks them.
pub const LAWS: &[Law] = &[
    ("sessions open, count and close", sessions::opens_and_closes),
    ("one conversation, one session", sessions::is_found_again),
    ("several peers are taken whole or refused", peers::takes_all_or_none),
    ("an enable makes sessions", sessions::enables),
    ("a refusal comes back", sessions::refuses),
    ("one that comes late is as one at once", sessions::refuses_late),
    ("a layer may slip between", sessions::lets_a_layer_between),
    ("no type number, no session", sessions::wants_a_type_number),
    ("octets arrive as they were sent", messages::carries),
    ("what is too big is told what is not", messages::tells_what_it_takes),
    ("what finds no buffer is counted", messages::counts_what_finds_no_buffer),
    ("headers may lie in slices", messages::takes_slices),
    ("kept copies are left alone", messages::leaves_copies_alone),
    ("no allocation per message", messages::allocates_nothing),
    ("damage is counted", hostile::survives_damage),
    ("strangers pin nothing below", hostile::pins_nothing),
    ("strangers do not make it grow", hostile::survives_a_flood),
    ("what is held leaves room for strangers", hostile::has_room_beside_what_is_held),
    ("a session tells its source", hostile::tells_its_source),
    ("a burst is its messages one by one", bursts::are_messages),
    ("a burst does not wait for one", bursts::pass_who_waits),
    ("questions are answered as listed", control::answers),
    ("a question from below goes up once", control::goes_up_once),
    ("a lost question founds nothing", lost::founds_nothing),
    (headers::NAME, headers::are_as_told),
    ("what is for many is not for one", hosts::tells_one_from_many),
    ("calls are for the rpc realm", rpc::takes_no_calls),
    ("opened several times at once it is one session", blocking::opens_once),
    ("of enables at one time as many succeed as in turn", blocking::enables_once),
    ("first messages at one time make one session", blocking::makes_one_session),
    ("copies and damage at one time harm nothing", blocking::bears_copies),
    ("messages keep their order while layers block", blocking::keeps_order),
    ("what comes while a session is told of waits", blocking::tells_of_sessions_first),
    ("what comes and goes at once is given back", blocking::gives_back),
    ("a session ends with its lower one", sessions::ends_with_its_lower),
    ("nothing is left after stop", sessions::stops),
];

/// Checks every law.
///
/// # Panics
/// If one is broken; the text names it.
pub fn all(fixture: &dyn Fixture) -> Findings {
    let mut findings = Findings::default();
    for (name, law) in LAWS {
        match law(fixture) {
            Verdict::Holds => findings.held.push(name),
            Verdict::Skipped(why) => findings.skipped.push((name, why)),
        }
    }
    cut::check(fixture, |_| true);
    findings
}

/// Checks every law except those with these names, which do not apply.
///
/// # Panics
/// If one is broken or says nothing of the fixture; the text names it. If a name is no law's.
pub fn keeps_all_but(fixture: &dyn Fixture, left_out: &[&str]) {
    let known = LAWS.iter().filter(|(name, _)| left_out.contains(name)).count();
    assert_eq!(known, left_out.len(), "the laws that do not apply are laws: {left_out:?}");
    for (name, law) in LAWS.iter().filter(|(name, _)| !left_out.contains(name)) {
        let verdict = law(fixture);
        println!("{name}: {verdict:?}");
        assert_eq!(verdict, Verdict::Holds, "{name}");
    }
    cut::check(fixture, |name| !left_out.contains(&name));
}

#[cfg(test)]
mod tests;
