//! A host in several domains: what the plan knows of each.

use std::ops::RangeInclusive;
use std::str::FromStr;
use xk_core::graph::{self, BlockSpec, ParamKind, ParamSpec, Params};
use xk_lang::{Diagnostics, DomainKind, HostInstance, Span};

use crate::params::Parametrized;
use crate::plan::{CheckedGraph, HostPlan};

/// Requests on their way up into a domain at one time, unless its line says otherwise.
const UPCALLS_MAX: i64 = 64;

const CORE: ParamSpec = graph::optional(
    "core",
    ParamKind::integer(0..=1023),
    "the processor that it runs on; any, if none is said",
);
const UPCALLS: ParamSpec = graph::int(
    "upcalls",
    1..=256,
    UPCALLS_MAX,
    "how many calls and questions from below may be on their way into it at one time",
);
const CROSSING: ParamSpec = graph::word(
    "crossing",
    &["memory", "messages", "mapped"],
    "memory",
    "what crosses to the domains that it stands on: rings in shared memory, messages of a Unix socket, or such \
     messages with their data in memory mapped for each",
);
const USER: ParamSpec = graph::optional(
    "user",
    ParamKind::Text("a user's name or number"),
    "the user that it becomes once its devices are open",
);
const PATH: ParamSpec = graph::required(
    "path",
    ParamKind::Text("the path of a socket, such as /run/user/1000/lab.sock"),
    "the path of the socket where programs attach, at most 107 octets, in a folder that exists",
);
const GRANT: BlockSpec = graph::block(
    "grant",
    1..=256,
    &[graph::required("node", ParamKind::Text("a node's name"), "what is granted")],
    &[
        graph::optional(
            "port",
            ParamKind::Text("a port or a range of them, such as 5000..5999"),
            "the ports that may be had on it; all, if none is said",
        ),
        graph::optional(
            "number",
            ParamKind::Text("a number or a range of them, such as 253..254"),
            "the type numbers that protocols of a program may have on it; none, if none is said",
        ),
        graph::optional("uid", ParamKind::integer(0..=u32::MAX as i64), "the user that has it"),
        graph::optional("gid", ParamKind::integer(0..=u32::MAX as i64), "the group that has it"),
    ],
    "a node that programs may attach to: those of one user or group, or all of them",
);

/// Parameters of a domain of this kind.
fn parametrized(kind: DomainKind, span: Span) -> Parametrized<'static> {
    let (what, scalars, blocks): (_, &'static [ParamSpec], &'static [BlockSpec]) = match kind {
        DomainKind::Thread => ("a domain `thread`", &[CORE, UPCALLS], &[]),
        DomainKind::Process => ("a domain `process`", &[USER, CORE, UPCALLS, CROSSING], &[]),
        DomainKind::Open => ("a domain `open`", &[PATH, UPCALLS], &[GRANT]),
    };
    Parametrized { what, span, scalars, blocks }
}

/// Reads the parameters of a domain.
pub(crate) fn params_of(diagnostics: &mut Diagnostics, domain: &xk_lang::Domain) -> Params {
    parametrized(domain.kind, domain.name.span).take(diagnostics, &domain.params, &domain.grants)
}

/// Carrier of frames from a domain to those that it stands on, if they are other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// Rings in shared memory.
    #[default]
    Memory,
    /// Messages of a Unix socket.
    Messages,
    /// Such messages, the data of each in memory that is mapped for it.
    Mapped,
}

/// A part of a host that runs apart from the others, in a kernel of its own.
pub struct DomainPlan {
    /// Domains that have the lowers of its nodes.
    pub(crate) lowers: Vec<usize>,
    /// Domains that have the uppers of its nodes.
    pub(crate) uppers: Vec<usize>,
}

impl DomainPlan {
    /// The domains that have what its nodes stand on.
    pub fn lowers(&self) -> &[usize] {
        &self.lowers
    }

    /// The domains that have what stands on its nodes.
    pub fn uppers(&self) -> &[usize] {
        &self.uppers
    }

    /// All domains that it shares a port with.
    pub fn neighbours(&self) -> impl Iterator<Item = usize> + '_ {
        self.lowers.iter().chain(&self.uppers).copied()
    }
}

/// A right to attach: to a node, within these ports, of this user and group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The node's place in its host.
    pub place: usize,
    /// The ports that may be had on it; `None` for all.
    pub ports: Option<RangeInclusive<u16>>,
    /// The type numbers that a program's protocols may have on it; `None` for none.
    pub numbers: Option<RangeInclusive<u32>>,
    /// The user; `None` for all.
    pub uid: Option<u32>,
    /// The group; `None` for all.
    pub gid: Option<u32>,
}

/// One domain of a host in the file, with placeholders filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSetup {
    /// Name; that of the host's first is empty.
    pub name: String,
    /// Kind; `None` for the host's first.
    pub kind: Option<DomainKind>,
    /// The user that it becomes, by name or number.
    pub user: Option<String>,
    /// The processor that it runs on.
    pub core: Option<usize>,
    /// Requests on their way into it from below at one time.
    pub upcalls_max: usize,
    /// Carrier of frames to the domains that it stands on.
    pub crossing: Crossing,
    /// Path at which programs attach, if the domain is open.
    pub path: Option<String>,
    /// Nodes to which programs may attach, if it is open.
    pub grants: Vec<Grant>,
}

impl CheckedGraph {
    /// The domains of a host, the first of which has the nodes that the file puts into none.
    pub fn domains(&self, host: &HostInstance<'_>) -> Vec<DomainSetup> {
        let mut none = self.diagnostics();
        let first = DomainSetup {
            name: String::new(),
            kind: None,
            user: None,
            core: None,
            upcalls_max: UPCALLS_MAX as usize,
            crossing: Crossing::default(),
            path: None,
            grants: Vec::new(),
        };
        let nodes = host.nodes();
        let rest = host.domains();
        let rest = rest.iter().map(|domain| {
            let params = params_of(&mut none, domain);
            let grant = |grant: &Params| {
                let name = grant.text("node")?;
                let number = |name| u32::try_from(grant.integer(name, -1)).ok();
                Some(Grant {
                    place: nodes.iter().position(|node| *node.name == *name)?,
                    ports: grant.text("port").and_then(range),
                    numbers: grant.text("number").and_then(range),
                    uid: number("uid"),
                    gid: number("gid"),
                })
            };
            DomainSetup {
                name: domain.name.to_string(),
                kind: Some(domain.kind),
                user: params.text("user").map(str::to_owned),
                core: usize::try_from(params.integer("core", -1)).ok(),
                upcalls_max: params.number("upcalls", UPCALLS_MAX as usize),
                crossing: match params.text("crossing") {
                    Some("messages") => Crossing::Messages,
                    Some("mapped") => Crossing::Mapped,
                    _ => Crossing::Memory,
                },
                path: params.text("path").map(str::to_owned),
                grants: params.blocks("grant").filter_map(grant).collect(),
            }
        });
        std::iter::once(first.clone()).chain(rest).collect()
    }

    /// Whether a process with a domain may read the messages of a neighbouring one, `from`, in its
    /// pool: it gets all that there is anyway. So it is for the only domain below, and for the only
    /// one above unless programs have messages there, too.
    pub fn lends(&self, host: &HostInstance<'_>, from: usize, to: usize) -> bool {
        let Some((plan, domain)) =
            self.plan_of(host).and_then(|plan| Some((plan, plan.domains.get(from)?)))
        else {
            return false;
        };
        let grants = || self.domains(host).into_iter().flat_map(|domain| domain.grants);
        let is_here = |grant: Grant| plan.places.get(grant.place).is_some_and(|p| p.domain == from);
        let nodes = host.nodes();
        let mut places = plan.places.iter().zip(nodes.iter());
        let mut listens =
            || places.any(|(p, node)| p.domain == from && p.listens_at(node).is_some());
        domain.lowers == [to] || domain.uppers == [to] && !listens() && !grants().any(is_here)
    }
}

/// A number, or a range `FIRST..LAST` of them, both included.
pub(crate) fn range<T: FromStr + PartialOrd>(text: &str) -> Option<RangeInclusive<T>> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(first..=last)
}

impl HostPlan {
    /// The domains of the host.
    pub fn domains(&self) -> &[DomainPlan] {
        &self.domains
    }

    /// The order in which domains start: each after all that it stands on.
    pub fn domain_order(&self) -> &[usize] {
        &self.domain_order
    }
}
