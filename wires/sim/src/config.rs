//! Properties of a link, and their form in a graph file.

use core::time::Duration;
use xk_core::Time;
use xk_core::graph::{
    BlockSpec, BuildError, Links, ParamKind, ParamSpec, Params, block, duration, flag, fraction,
    int, octets, optional, required, word,
};

/// Frames that wait at a port, unless the graph says otherwise.
pub const QUEUE_FRAMES_DEFAULT: usize = 100;

/// Kind of a link: how it joins its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LinkKind {
    /// One medium; everybody hears everything.
    Hub,
    /// A learning switch with a full-duplex line to every port.
    #[default]
    Switch,
    /// Two ports and a line each way.
    PointToPoint,
}

impl LinkKind {
    /// The words of a graph file.
    pub const WORDS: &'static [&'static str] = &["hub", "switch", "pointtopoint"];

    /// The kind that a graph file's word names.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "hub" => Some(Self::Hub),
            "switch" => Some(Self::Switch),
            "pointtopoint" => Some(Self::PointToPoint),
            _ => None,
        }
    }
}

/// A time during which two sets of hosts are separated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Start.
    pub from: Time,
    /// End.
    pub until: Time,
    /// Names of the hosts of one side.
    pub between: Vec<String>,
    /// Names of the hosts of the other side; empty for all the others.
    pub and: Vec<String>,
}

impl Partition {
    /// Side that a host is on: 1 or 2, or 0 for neither.
    pub(crate) fn side(&self, host: &str) -> u8 {
        if self.between.iter().any(|name| name == host) {
            1
        } else if self.and.is_empty() || self.and.iter().any(|name| name == host) {
            2
        } else {
            0
        }
    }
}

/// Properties of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Name of the link.
    pub name: String,
    /// Kind of the link.
    pub kind: LinkKind,
    /// Time between the last bit sent and the arrival.
    pub delay: Duration,
    /// The most that one delivery comes later at random.
    pub jitter: Duration,
    /// Bits per second; without it frames take no time to send.
    pub rate_bit_s: Option<u64>,
    /// The share of deliveries that are lost, 0 to 1.
    pub loss: f64,
    /// The share of deliveries that happen twice.
    pub duplicate: f64,
    /// The share of deliveries that come later by `reorder_delay`.
    pub reorder: f64,
    /// Delay of a reordered delivery.
    pub reorder_delay: Duration,
    /// The share of deliveries with one bit flipped.
    pub corrupt: f64,
    /// The largest payload of a frame, in octets; the frame has 14 more.
    pub mtu_octets: usize,
    /// Frames that wait at a port.
    pub queue_frames_max: usize,
    /// Stations that a switch remembers.
    pub addresses_max: usize,
    /// Time for which it remembers one that it does not hear.
    pub ageing: Duration,
    /// Whether a switch sends what is for a group to the ports alone that have members.
    pub snooping: bool,
    /// Partitions: the hosts that do not hear others, and their times.
    pub partitions: Vec<Partition>,
}

impl LinkConfig {
    /// A link as [`LINKS`] has it by default.
    pub fn new(name: impl Into<String>, kind: LinkKind) -> Self {
        Self {
            name: name.into(),
            kind,
            delay: Duration::from_micros(10),
            jitter: Duration::ZERO,
            rate_bit_s: None,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            corrupt: 0.0,
            mtu_octets: 1500,
            queue_frames_max: QUEUE_FRAMES_DEFAULT,
            addresses_max: 16_384,
            ageing: Duration::from_secs(300),
            snooping: false,
            partitions: Vec::new(),
        }
    }

    /// A link as parameters checked against [`LINKS`] describe it.
    ///
    /// # Errors
    /// [`BuildError::Param`] if a value does not do: an unknown kind, a partition that ends before
    /// it begins.
    pub fn from_params(name: &str, params: &Params) -> Result<Self, BuildError> {
        let kind = params.text("kind").map_or(Some(LinkKind::default()), LinkKind::from_word);
        let kind = kind.ok_or_else(|| wrong("kind", 0, "hub, switch or pointtopoint"))?;
        let plain = Self::new(name, kind);
        let mut partitions = Vec::new();
        for (index, block) in params.blocks("partition").enumerate() {
            partitions.push(partition(index, block)?);
        }
        Ok(Self {
            delay: params.duration("delay", plain.delay),
            jitter: params.duration("jitter", plain.jitter),
            rate_bit_s: params.rate("rate"),
            loss: params.fraction("loss"),
            duplicate: params.fraction("duplicate"),
            reorder: params.fraction("reorder"),
            reorder_delay: params.duration("reorder_delay", plain.reorder_delay),
            corrupt: params.fraction("corrupt"),
            mtu_octets: params.octets("mtu", plain.mtu_octets),
            queue_frames_max: params.number("queue", plain.queue_frames_max),
            addresses_max: params.number("addresses", plain.addresses_max),
            ageing: params.duration("ageing", plain.ageing),
            snooping: params.flag("snooping"),
            partitions,
            ..plain
        })
    }
}

fn wrong(name: &'static str, index: usize, expected: &str) -> BuildError {
    BuildError::Param { name, index, expected: expected.into() }
}

fn partition(index: usize, block: &Params) -> Result<Partition, BuildError> {
    let names = |name| -> Vec<String> {
        let text = block.text(name).unwrap_or_default();
        text.split([' ', ',']).filter(|n| !n.is_empty()).map(String::from).collect()
    };
    let from = Time::ZERO + block.duration("from", Duration::ZERO);
    let until = Time::ZERO + block.duration("until", Duration::MAX);
    if until <= from {
        return Err(wrong("partition", index, "an end (`until`) after the beginning (`from`)"));
    }
    let between = names("between");
    if between.is_empty() {
        return Err(wrong("partition", index, "names of hosts in `between`"));
    }
    Ok(Partition { from, until, between, and: names("and") })
}

/// A link in a graph file.
pub const LINKS: Links = Links {
    parameters: PARAMETERS,
    blocks: BLOCKS,
    check: |name, params| LinkConfig::from_params(name, params).map(drop),
};

#[rustfmt::skip]
const PARAMETERS: &[ParamSpec] = &[
    word("kind", LinkKind::WORDS, "switch", "how it joins its ports"),
    duration("delay", Duration::from_micros(10),
        "from the last bit sent to the arrival; 0s: at once").or_zero(),
    duration("jitter", Duration::ZERO, "the most that one delivery comes later at random"),
    optional("rate", ParamKind::Rate, "bits per second; without it frames take no time to send"),
    fraction("loss", 0.0, "the share of deliveries that are lost"),
    fraction("duplicate", 0.0, "the share that happen twice"),
    fraction("reorder", 0.0, "the share that come later by `reorder_delay`"),
    duration("reorder_delay", Duration::from_millis(1), "how much later"),
    fraction("corrupt", 0.0, "the share with one bit flipped"),
    octets("mtu", 1500, "the largest payload of a frame, in octets"),
    int("queue", 1..=1_000_000, 100, "how many frames wait at a port"),
    int("addresses", 1..=1_000_000, 16_384, "how many stations a switch remembers"),
    duration("ageing", Duration::from_secs(300), "how long it remembers one that it does not hear"),
    flag("snooping", false, "whether a switch sends groups to ports with members alone"),
];

#[rustfmt::skip]
const BLOCKS: &[BlockSpec] = &[
    block("partition", 0..=1000,
        &[],
        &[
            duration("from", Duration::ZERO, "when it begins"),
            optional("until", ParamKind::Duration { min: Duration::from_nanos(1) },
                "when it is over; without it, never"),
            required("between", ParamKind::Text("names of hosts, such as \"a b\""),
                "the hosts of one side"),
            optional("and", ParamKind::Text("names of hosts, such as \"c d\""),
                "the hosts of the other side; without it, all others"),
        ],
        "a time during which two sets of hosts are separated"),
];
