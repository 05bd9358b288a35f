//! Catalog entries: a protocol's description for composition, and its construction.
//!
//! The composer checks a graph against these entries before anything runs; then it calls
//! [`Entry::build`] for each node, bottom-up.

mod build;
mod catalog;
mod guarantees;
mod params;
mod settings;

pub use build::{Build, BuildError};
pub use catalog::{Catalog, CatalogError};
pub use guarantees::{Guarantees, Service};
pub use params::{
    BlockSpec, DURATION_MAX, ParamKind, ParamSpec, Params, Value, block, duration, flag, fraction,
    int, octets, optional, required, text, word,
};

pub use crate::control::{QuestionInfo, own_question, question};
use crate::numbers::{Number, Numbers};
use crate::object::ProtocolRef;
use crate::reason::Reason;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// Kind of operations by which a protocol is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Realm {
    /// Messages go by `push` and `demux`.
    Async,
    /// Requests go by `call` and `call_demux`.
    Rpc,
    /// Only questions, by `control`.
    Control,
    /// The lower end of a graph: a wire.
    Wire,
    /// The upper end of a graph: an application.
    Top,
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Realm::Async => "async",
            Realm::Rpc => "rpc",
            Realm::Control => "control",
            Realm::Wire => "wire",
            Realm::Top => "top",
        })
    }
}

/// Role of a layer in a graph, by which the check, the rehearsal and the simulator treat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The lower end of a graph: it stands on nothing, and may reach outside of the program.
    Wire,
    /// A layer that puts a header in front of each message.
    Header,
    /// A layer without a header, which chooses among the layers below. They know the protocol above
    /// it by that protocol's own numbers.
    Virtual,
    /// A layer that passes messages, calls, addresses and numbers as they are, and fits any edge
    /// above what it can stand on.
    Filter,
    /// Another protocol framework, whose protocols are written into its block.
    Framework,
    /// A layer that joins protocols of two subsystems, so that the edge is as one within a
    /// subsystem. The check puts it in; no graph file names it.
    Adapter,
    /// A layer of calls: it puts a header in front of requests and replies, and waits for replies.
    Calls,
    /// The upper end of a graph: an application.
    Top,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Wire => "a wire: the lower end of a graph",
            Shape::Header => "a layer with a header of its own",
            Shape::Virtual => "a virtual layer: without a header, it chooses among those below",
            Shape::Filter => "a filter: it fits any edge above what it stands on",
            Shape::Framework => "a subsystem: its protocols are written into its block",
            Shape::Adapter => "an adapter: the check puts it in where an edge joins two subsystems",
            Shape::Calls => "a layer of calls",
            Shape::Top => "an application: the upper end of a graph",
        })
    }
}

/// Form of a protocol's participants towards its neighbours: the topmost identifier, which the
/// upper supplies and the lower pops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// No identifier: what is sent goes to all at the other end (a wire, a
    /// point-to-point link).
    Link,
    /// A hardware address, `02:00:00:00:00:01`.
    Ether,
    /// A host, `10.0.0.2`.
    Host,
    /// A port on top of what the layer below needs, `port7@10.0.0.2`.
    Port,
    /// Another family, by name.
    Other(&'static str),
    /// The family of the layer below: a layer that passes participants through.
    Inherit,
    /// Whatever the layer below needs, taken from a parameter: an application.
    Any,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Link => "no addresses",
            Family::Ether => "hardware addresses",
            Family::Host => "hosts",
            Family::Port => "ports",
            Family::Other(name) => name,
            Family::Inherit => "the addresses of the layer below",
            Family::Any => "any addresses",
        })
    }
}

/// Requirements on the protocols below.
#[derive(Clone, Copy, Debug)]
pub struct Below {
    /// Least number of lower protocols.
    pub min: usize,
    /// Largest number of lower protocols.
    pub max: usize,
    /// Their realms: any of these.
    pub realms: &'static [Realm],
    /// The family of the participants it opens them with: any of these fits.
    pub families: &'static [Family],
    /// Guarantees that each lower must give.
    pub needs: Guarantees,
    /// Further guarantees that the lower in each place must give.
    pub each: &'static [Guarantees],
    /// A question that the lower in each place must answer itself; the last one is for those in
    /// all further places, too.
    pub asks: &'static [&'static str],
}

impl Below {
    /// Guarantees that the lower protocol in this place must give.
    pub fn needs_at(&self, place: usize) -> Guarantees {
        let besides = self.each.get(place).copied().unwrap_or(Guarantees::NONE);
        self.needs.and(besides)
    }

    /// The question that the lower protocol in this place must answer itself.
    pub fn asks_at(&self, place: usize) -> Option<&'static str> {
        self.asks.get(place).or(self.asks.last()).copied()
    }
}

/// One protocol below, of which nothing is said yet.
const ONE: Below = Below {
    min: 1,
    max: 1,
    realms: &[],
    families: &[],
    needs: Guarantees::NONE,
    each: &[],
    asks: &[],
};

/// Rules for a layer's place in a graph, beyond shape, addresses, numbers and guarantees.
#[derive(Clone, Copy, Debug)]
pub struct StackingRules {
    /// Numbers that follow from others.
    pub derived: &'static [DerivedNumber],
    /// Parameters without which it cannot stand on some layers.
    pub needed: &'static [Needed],
    /// If its lowers must be in the order of the messages that they carry, the smallest first: the
    /// block that says by itself, for each in this order, what goes there.
    pub rising: Option<&'static str>,
    /// The parameter or block that gives it an address of its own: no other's on the same link.
    pub own_address: Option<&'static str>,
    /// Parameters that name what only one of its kind on a host can have: a device, a file.
    pub sole: &'static [&'static str],
    /// The parameter that names a socket at which it listens: one that has it is of real time, and
    /// the file goes when the host ends.
    pub listens_at: Option<&'static str>,
}

impl StackingRules {
    /// None of them, to add one or two to.
    pub const NONE: Self = Self {
        derived: &[],
        needed: &[],
        rising: None,
        own_address: None,
        sole: &[],
        listens_at: None,
    };

    /// Gives every kind that has a number to follow from by now, and none that follows, the latter,
    /// for programs that compose without a graph file. `base` is what is added. The check of a
    /// graph does the same for each node that stands on such a layer.
    pub fn derive(&self, numbers: &mut Numbers, base: u32) {
        for rule in self.derived {
            let follows = |n: &&Number| n.lower == rule.from && n.number < rule.below;
            let from: Vec<Number> = numbers.kinds().iter().filter(follows).copied().collect();
            for known in from {
                if numbers.find_kinds(known.upper, rule.on).is_none() {
                    // Nothing is there that it could contradict.
                    let _ = numbers.add(Number {
                        upper: known.upper,
                        lower: rule.on,
                        number: base.saturating_add(known.number),
                    });
                }
            }
        }
    }
}

/// An upper's number on one lower kind follows from its number on another, unless the table has
/// one.
#[derive(Clone, Copy, Debug)]
pub struct DerivedNumber {
    /// The lower kind whose number follows.
    pub on: &'static str,
    /// The lower kind whose number it follows from.
    pub from: &'static str,
    /// The parameter that says what is added.
    pub base: &'static str,
    /// The numbers from which one can follow are below this.
    pub below: u32,
}

/// A parameter that may be left out, but on some layers.
#[derive(Clone, Copy, Debug)]
pub struct Needed {
    /// The parameter.
    pub parameter: &'static str,
    /// The layers on which it must be given.
    pub on: NeededOn,
    /// Why, for the author of the graph.
    pub why: &'static str,
    /// The remedy: what to write.
    pub instead: &'static str,
}

/// Layers on which a parameter is needed.
#[derive(Clone, Copy, Debug)]
pub enum NeededOn {
    /// Layers that take these addresses from above.
    Family(Family),
    /// Layers of a kind, or layers without a header above one, on which no protocol of the kind
    /// `unless` stands.
    Kind {
        /// The kind below.
        kind: &'static str,
        /// A kind that says it.
        unless: &'static str,
    },
}

/// The links of a graph file, on which instances of one kind of wire hang: each names one by its
/// parameter `link`.
#[derive(Clone, Copy)]
pub struct Links {
    /// The parameters of a link; `mtu` is the largest payload of a frame, in octets.
    pub parameters: &'static [ParamSpec],
    /// Structured parameters of a link.
    pub blocks: &'static [BlockSpec],
    /// Whether the parameters of the link of this name will do.
    pub check: fn(&str, &Params) -> Result<(), BuildError>,
}

/// Depth of a look before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Looks at the parameters alone, whatever the machine: nothing outside is touched.
    Parameters,
    /// Looks at the machine as well.
    Machine,
}

/// Says whether there is such a type number, and in words which there are.
pub type TakesNumbers = (fn(u32) -> bool, &'static str);

/// Looks whether the parameters of what touches the outside will do, and whether this machine has
/// what it needs.
pub type Probe = fn(&Params, Look) -> Result<(), BuildError>;

/// A protocol's description. A constructor chooses its role in a graph; methods named like the
/// fields say the rest:
///
/// ```
/// # use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, flag, int, question};
/// use xk_core::Entry;
/// # use xk_core::ProtocolRef;
/// # fn build(_: &mut Build<'_>) -> Result<ProtocolRef, BuildError> { unimplemented!() }
///
/// pub static ENTRY: Entry = Entry::layer("ports", "//! ...", build)
///     .summary("datagrams between ports")
///     .above(Family::Port)
///     .on(&[Realm::Async, Realm::Wire], &[Family::Host, Family::Link])
///     .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
///     .header_octets(8)
///     .numbers(&[("ip", 17)])
///     .parameters(&[
///         int("sessions_max", 1..=1_048_576, 1024, "how many sessions it holds"),
///         flag("checksum", true, "whether messages are sent with a checksum"),
///     ])
///     .questions(&[question("my-port", "the local port of a session")]);
/// assert_eq!(ENTRY.parameters[1].default.unwrap().to_string(), "#true");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Entry {
    /// The name under which graphs use it.
    pub kind: &'static str,
    /// The framework that it is written for, `bsd` or `streams`; none for a protocol of the
    /// x-kernel's.
    pub subsystem: Option<&'static str>,
    /// Kinds of protocols whose addresses an adapter translates, besides wires, which have none;
    /// empty for all kinds.
    pub joins: &'static [&'static str],
    /// One line about it.
    pub summary: &'static str,
    /// The source of its `lib.rs`, whose crate documentation is the manual.
    pub manual: &'static str,
    /// Role in a graph.
    pub shape: Shape,
    /// Kind of operations by which it is used.
    pub realm: Realm,
    /// The family of participants that it takes from above.
    pub above: Family,
    /// Requirements on the protocols below.
    pub below: Below,
    /// Guarantees to the protocols above.
    pub service: Service,
    /// Octets that it puts in front of each message, at least.
    pub header_octets: usize,
    /// Type numbers of its standards: the lower kind, and the number in that one's header for this
    /// protocol.
    pub numbers: &'static [(&'static str, u32)],
    /// Numbers in its own header for protocols that do not list it: each upper kind, and the
    /// number.
    pub numbers_above: &'static [(&'static str, u32)],
    /// The lower kind whose header is its own: a number there is one here.
    pub numbers_as: Option<&'static str>,
    /// Type numbers that its own header has room for; `None` for all.
    pub takes_numbers: Option<TakesNumbers>,
    /// Whether one session of it may have several peers.
    pub takes_peers: bool,
    /// Further rules for its place in a graph.
    pub stacking_rules: Option<&'static StackingRules>,
    /// Scalar parameters.
    pub parameters: &'static [ParamSpec],
    /// List-valued and structured parameters.
    pub blocks: &'static [BlockSpec],
    /// The questions that it answers itself, beside those of its shape
    /// ([`Entry::all_questions`]).
    pub questions: &'static [QuestionInfo],
    /// Why it drops or refuses messages, besides the reasons that all layers share.
    pub reasons: &'static [&'static Reason],
    /// Looks at its parameters, and whether this machine has what it needs: devices, privileges.
    /// Says what is missing and what to do.
    pub probe: Option<Probe>,
    /// The links that it hangs on, declared by the graph.
    pub links: Option<&'static Links>,
    /// Another object of its kind, in another process, can go on in its place: see
    /// [`Entry::replaceable`].
    pub is_replaceable: bool,
    /// Makes it.
    pub build: Builder,
}

/// Questions that every layer with a header and every layer of calls answers.
const OF_LAYERS: &[QuestionInfo] = &[
    question(
        "max-packet",
        "the largest message from above: that of the layer below less the header",
    ),
    question("opt-packet", "the largest that goes whole: that of the layer below less the header"),
    question("list-sessions", "its sessions"),
    question("list-maps", "its tables, and how they are used"),
    question("describe", "the ends of a session, and how it stands"),
];

/// Makes a protocol from what the graph says of it.
pub type Builder = fn(&mut Build<'_>) -> Result<ProtocolRef, BuildError>;

impl Entry {
    const fn new(
        (kind, manual): (&'static str, &'static str),
        (shape, realm, above): (Shape, Realm, Family),
        below: Below,
        service: Service,
        build: Builder,
    ) -> Self {
        Self {
            kind,
            subsystem: None,
            joins: &[],
            summary: "",
            manual,
            shape,
            realm,
            above,
            below,
            service,
            header_octets: 0,
            numbers: &[],
            numbers_above: &[],
            numbers_as: None,
            takes_numbers: None,
            takes_peers: false,
            stacking_rules: None,
            parameters: &[],
            blocks: &[],
            questions: &[],
            reasons: &[],
            probe: None,
            links: None,
            is_replaceable: false,
            build,
        }
    }

    /// The lower end of a graph: it stands on nothing, takes no addresses, and may lose messages.
    pub const fn wire(kind: &'static str, manual: &'static str, build: Builder) -> Self {
        let place = (Shape::Wire, Realm::Wire, Family::Link);
        let below = Below { min: 0, max: 0, ..ONE };
        Self::new((kind, manual), place, below, Service::WIRE, build)
    }

    /// A layer that fits any edge of a graph and changes neither addresses nor guarantees.
    pub const fn filter(kind: &'static str, manual: &'static str, build: Builder) -> Self {
        Self::layer(kind, manual, build)
            .on(&[Realm::Async, Realm::Rpc, Realm::Wire], &[Family::Inherit])
            .needs(Guarantees::OPEN)
            .service(Service::SAME)
            .shape(Shape::Filter)
    }

    /// A layer that joins protocols of two subsystems, and changes neither addresses nor
    /// guarantees. The kind is `UPPER-on-LOWER`, each a subsystem's name or `xk`.
    pub const fn adapter(kind: &'static str, manual: &'static str, build: Builder) -> Self {
        Self::layer(kind, manual, build)
            .on(&[Realm::Async, Realm::Rpc, Realm::Wire], &[Family::Inherit])
            .service(Service::SAME)
            .shape(Shape::Adapter)
    }

    /// Another protocol framework in a kernel. Graphs write it as `subsystem KIND`, and its
    /// parameters behind that. It carries nothing by itself.
    pub const fn framework(kind: &'static str, manual: &'static str, build: Builder) -> Self {
        Self::layer(kind, manual, build)
            .realm(Realm::Control)
            .lowers(0..=0)
            .service(Service::TOP)
            .shape(Shape::Framework)
    }

    /// A layer of messages with a header, which takes the addresses of the layer below unless it
    /// says otherwise.
    pub const fn layer(kind: &'static str, manual: &'static str, build: Builder) -> Self {
        let place = (Shape::Header, Realm::Async, Family::Inherit);
        Self::new((kind, manual), place, ONE, Service::LAYER, build)
    }

    /// A layer of calls, which takes the addresses of the layer below unless it says otherwise.
    pub const fn calls(kind: &'static str, manual: &'static str, build: Builder) -> Self {
        let place = (Shape::Calls, Realm::Rpc, Family::Inherit);
        Self::new((kind, manual), place, ONE, Service::LAYER, build)
    }

    /// The upper end of a graph: an application, which takes its addresses from a parameter.
    pub const fn top(kind: &'static str, manual: &'static str, build: Builder) -> Self {
        let place = (Shape::Top, Realm::Top, Family::Any);
        Self::new((kind, manual), place, ONE, Service::TOP, build)
    }

    /// Sets the role in a graph, if the constructor does not.
    #[must_use]
    pub const fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// The framework that it is written for, if that is not the x-kernel: graphs name it within
    /// `subsystem NAME`.
    #[must_use]
    pub const fn subsystem(mut self, name: &'static str) -> Self {
        self.subsystem = Some(name);
        self
    }

    /// The kinds that an adapter can stand on, besides wires.
    #[must_use]
    pub const fn joins(mut self, kinds: &'static [&'static str]) -> Self {
        self.joins = kinds;
        self
    }

    /// Sets the realm, if the constructor does not.
    #[must_use]
    pub const fn realm(mut self, realm: Realm) -> Self {
        self.realm = realm;
        self
    }

    /// One line about it.
    #[must_use]
    pub const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// The family of participants that it takes from above.
    #[must_use]
    pub const fn above(mut self, family: Family) -> Self {
        self.above = family;
        self
    }

    /// The realms of what it stands on, and the families of the participants that it opens that
    /// with: any of these.
    #[must_use]
    pub const fn on(mut self, realms: &'static [Realm], families: &'static [Family]) -> Self {
        self.below.realms = realms;
        self.below.families = families;
        self
    }

    /// Sets the number of lower protocols, if that is not one.
    #[must_use]
    pub const fn lowers(mut self, count: RangeInclusive<usize>) -> Self {
        self.below.min = *count.start();
        self.below.max = *count.end();
        self
    }

    /// Sets the guarantees that each lower protocol must give.
    #[must_use]
    pub const fn needs(mut self, guarantees: Guarantees) -> Self {
        self.below.needs = guarantees;
        self
    }

    /// Sets further guarantees that the lower in each place must give.
    #[must_use]
    pub const fn needs_each(mut self, guarantees: &'static [Guarantees]) -> Self {
        self.below.each = guarantees;
        self
    }

    /// A question that the lower in each place must answer itself; the last one is for those in
    /// all further places, too.
    #[must_use]
    pub const fn asks(mut self, questions: &'static [&'static str]) -> Self {
        self.below.asks = questions;
        self
    }

    /// Sets the guarantees to the protocols above.
    #[must_use]
    pub const fn service(mut self, service: Service) -> Self {
        self.service = service;
        self
    }

    /// Octets that it puts in front of each message, at least.
    #[must_use]
    pub const fn header_octets(mut self, octets: usize) -> Self {
        self.header_octets = octets;
        self
    }

    /// Sets the type numbers of its standards, each with the lower kind.
    #[must_use]
    pub const fn numbers(mut self, numbers: &'static [(&'static str, u32)]) -> Self {
        self.numbers = numbers;
        self
    }

    /// Sets the numbers in its own header of protocols that stand on it, each with the upper kind:
    /// so a new lower layer carries protocols that were written before it. A number that such a
    /// protocol lists itself must be the same.
    #[must_use]
    pub const fn numbers_above(mut self, numbers: &'static [(&'static str, u32)]) -> Self {
        self.numbers_above = numbers;
        self
    }

    /// Gives it the header of the kind `lower`: a protocol with a number there has the same number
    /// here.
    #[must_use]
    pub const fn numbers_as(mut self, lower: &'static str) -> Self {
        self.numbers_as = Some(lower);
        self
    }

    /// Sets the type numbers of protocols above that its header has room for, and their description
    /// in words.
    #[must_use]
    pub const fn takes_numbers(mut self, takes: fn(u32) -> bool, which: &'static str) -> Self {
        self.takes_numbers = Some((takes, which));
        self
    }

    /// One session of it may have several peers: what is pushed goes to each, and what any of them
    /// sends comes up. A filter passes several on without saying so.
    #[must_use]
    pub const fn takes_peers(mut self) -> Self {
        self.takes_peers = true;
        self
    }

    /// Sets which protocols cannot stand on it, and further needs below.
    #[must_use]
    pub const fn stacking_rules(mut self, rules: &'static StackingRules) -> Self {
        self.stacking_rules = Some(rules);
        self
    }

    /// Sets the scalar parameters.
    #[must_use]
    pub const fn parameters(mut self, parameters: &'static [ParamSpec]) -> Self {
        self.parameters = parameters;
        self
    }

    /// Sets the structured parameters.
    #[must_use]
    pub const fn blocks(mut self, blocks: &'static [BlockSpec]) -> Self {
        self.blocks = blocks;
        self
    }

    /// All questions that it answers: those of its shape, which the skeletons of layers answer, and
    /// its own.
    pub fn all_questions(&self) -> impl Iterator<Item = &'static QuestionInfo> + Clone {
        let of_shape = match self.shape {
            Shape::Header | Shape::Calls => OF_LAYERS,
            Shape::Virtual | Shape::Wire | Shape::Filter => &[],
            Shape::Framework | Shape::Adapter | Shape::Top => &[],
        };
        let own = self.questions;
        let is_own = move |name: &str| own.iter().any(|question| question.name == name);
        of_shape.iter().filter(move |question| !is_own(question.name)).chain(own)
    }

    /// The questions that it answers itself, beside those of its shape, or of these the ones whose
    /// answer means something else here.
    #[must_use]
    pub const fn questions(mut self, questions: &'static [QuestionInfo]) -> Self {
        self.questions = questions;
        self
    }

    /// Sets its own reasons for dropping or refusing messages, which another address space looks up
    /// here.
    #[must_use]
    pub const fn reasons(mut self, reasons: &'static [&'static Reason]) -> Self {
        self.reasons = reasons;
        self
    }

    /// Sets the function that checks the parameters, and whether this machine has what they need.
    #[must_use]
    pub const fn probe(mut self, probe: Probe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// The links that it hangs on, declared by the graph.
    #[must_use]
    pub const fn links(mut self, links: &'static Links) -> Self {
        self.links = Some(links);
        self
    }

    /// While it runs another object of its kind, in another process, can go on in its place and
    /// its peers see a pause at most: of its sessions it keeps nothing that it does not learn
    /// again by itself, or that they do not hand over (`give-state`); a device it takes from
    /// there.
    #[must_use]
    pub const fn replaceable(mut self) -> Self {
        self.is_replaceable = true;
        self
    }

    /// Whether what stands on it is known below by its own numbers. Of the layers of calls these
    /// are the ones that have neither addresses nor a number themselves.
    pub fn passes_numbers(&self) -> bool {
        match self.shape {
            Shape::Virtual | Shape::Filter | Shape::Adapter => true,
            Shape::Calls => self.above == Family::Inherit && self.numbers.is_empty(),
            Shape::Wire | Shape::Header | Shape::Framework | Shape::Top => false,
        }
    }

    /// Whether it is known by a number of its own on layers that tell their uppers apart.
    pub fn has_number(&self) -> bool {
        !self.passes_numbers() || !self.numbers.is_empty()
    }

    /// Whether an operation of it may wait, so that its host needs stacks for shepherds.
    pub fn may_wait(&self) -> bool {
        let is_prompt = self.service.over(Guarantees::ALL).has(Guarantees::INSTANT);
        let calls = matches!(self.shape, Shape::Calls | Shape::Adapter);
        calls || !matches!(self.shape, Shape::Top | Shape::Framework) && !is_prompt
    }

    /// Default values of all parameters that have one.
    pub fn defaults(&self) -> Params {
        let mut params = Params::default();
        for (spec, value) in self.parameters.iter().filter_map(|spec| Some((spec, spec.default?))) {
            params.set(spec.name, value.into());
        }
        params
    }

    /// Type numbers as entries of the table: its own on layers below it, and those of protocols
    /// above it.
    pub fn type_numbers(&self) -> impl Iterator<Item = Number> {
        let own = self.kind;
        let below = |&(lower, number)| Number { upper: own, lower, number };
        let above = |&(upper, number)| Number { upper, lower: own, number };
        self.numbers.iter().map(below).chain(self.numbers_above.iter().map(above))
    }

    /// The manual as text: the crate documentation without its comment marks.
    pub fn manual_text(&self) -> String {
        let mut text = String::new();
        for line in self.manual.lines() {
            let Some(line) = line.strip_prefix("//!") else {
                if text.is_empty() {
                    continue;
                }
                break;
            };
            text.push_str(line.strip_prefix(' ').unwrap_or(line));
            text.push('\n');
        }
        text
    }
}
