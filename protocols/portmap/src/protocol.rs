//! The protocol object: the server's requests, and the layer between programs and the table of
//! them.

use crate::client::Client;
use crate::everyone::Everyone;
use crate::registrar::Registrar;
use crate::session::{Key, Resolver};
use crate::stats::Stats;
use crate::table::{Mapped, Owner, Table};
use crate::universal::{Netid, Universal};
use crate::wire::{PORT, PROGRAM, VERSIONS, procedure};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Secret;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError, ParamKind, Params, optional, word};
use xk_core::object::{Enable, OpenError, Refused, SessionSlot, SessionTable};
use xk_core::participant::{PORT as PORT_LABEL, Wild};
use xk_core::question;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Upper,
};
use xk_kit::control::{IsGroup, MyHost};
use xk_kit::rpc::call::{PROGRAM as PROGRAM_LABEL, VERSION};
use xk_kit::rpc::onc::{Offered, ProcedureName};

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        serve: bool = flag(true, "whether it serves the program 100000"),
        indirect: bool = flag(false, "whether it calls procedures on behalf of others"),
        mappings_max: usize = int(8..=512, 256, "how many mappings there may be"),
        sessions_max: usize = int(1..=1_048_576, 1024,
            "how many sessions that find their port it holds; idle ones are evicted for new ones"),
        ..
        /// The transports that the layer below stands on.
        netids: Vec<Netid> = [Netid::Udp].into(),
        /// The version that others are asked in.
        version: u32 = crate::wire::VERSION_PMAP,
        /// The host whose port mapper is told what is served above, and its port if it is not
        /// the usual one.
        register: Option<Participant> = None,
        /// Mappings that are there from the beginning: program, version, transport, port.
        maps: Vec<(u32, u32, Netid, u16)> = Vec::new(),
    }
    [
        word("transports", &["udp", "tcp", "both"], "udp",
            "what the layer below stands on; others are asked for the first"),
        word("version", &["2", "3", "4"], "2", "the version that others are asked in"),
        optional("register", ParamKind::Text(crate::REGISTER_EXPECTED),
            "the host whose port mapper is told what is served above"),
    ]
}

impl Settings {
    fn with_texts(self, params: &Params) -> Result<Self, BuildError> {
        let netids = match params.text("transports") {
            Some("tcp") => [Netid::Tcp].into(),
            Some("both") => [Netid::Udp, Netid::Tcp].into(),
            _ => self.netids,
        };
        let version = params.text("version").and_then(|text| text.parse().ok());
        let map = |block: &Params| {
            let netid = block.text("transport").unwrap_or_default();
            (
                block.number("program", 0),
                block.number("version", 0),
                Netid::of_name(netid.as_bytes()).unwrap_or(Netid::Udp),
                block.number("port", 0),
            )
        };
        Ok(Self {
            netids,
            version: version.unwrap_or(self.version),
            register: params.parse("register", crate::REGISTER_EXPECTED)?,
            maps: params.blocks("map").map(map).collect(),
            ..self
        })
    }
}

/// Shared state of protocol and sessions.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) table: Table,
    pub(crate) stats: Stats,
    pub(crate) client: Client,
    pub(crate) sessions: SessionTable<Key>,
    served: RefCell<BTreeMap<u64, Served>>,
    this: RefCell<Option<ProtocolRef>>,
}

/// Something that is served above.
struct Served {
    upper: ProtocolRef,
    below: Enable,
    offered: Offered,
    mapped: Vec<Mapped>,
}

impl Shared {
    /// This protocol and the one above that serves a procedure: one that offers just this before
    /// one that offers all. Procedure 0 is there wherever the version is.
    pub(crate) fn server_of(&self, name: ProcedureName) -> Option<(ProtocolRef, ProtocolRef)> {
        let is_meant = |wild: Wild<u32>, number| wild.value().is_none_or(|is| is == number);
        let served = self.served.borrow();
        let all = served.values().filter(|Served { offered, .. }| {
            is_meant(offered.program, name.program)
                && is_meant(offered.version, name.version)
                && (name.procedure == procedure::NULL
                    || is_meant(offered.procedure, name.procedure))
        });
        let how_definite = |served: &&Served| {
            let offered = &served.offered;
            (offered.version != Wild::Any, offered.procedure != Wild::Any)
        };
        let found = all.max_by_key(how_definite)?;
        Some((self.this.borrow().clone()?, found.upper.clone()))
    }
}

impl Shared {
    /// Whether the graph has this mapping for a protocol that serves, or by a block of its own.
    fn is_mapped(&self, mapped: &Mapped) -> bool {
        let mut blocks = self.settings.maps.iter();
        let served = self.served.borrow();
        blocks.any(|block| own(*block) == *mapped)
            || served.values().any(|other| other.mapped.contains(mapped))
    }
}

/// Asked of the protocol: its mappings, and how registering elsewhere went.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    /// All of them.
    pub mappings: Vec<Mapped>,
    /// Times that another port mapper accepted a mapping.
    pub accepted: u64,
    /// Times that it refused one.
    pub refused: u64,
}

question!(Mappings { mappings, accepted, refused }, "mappings", Ask);

/// One instance.
pub struct Portmap {
    shared: Rc<Shared>,
    /// Two hashes of a session's ends are its key.
    ends: [Secret; 2],
    registrar: Option<Registrar>,
    enables_made: Cell<u64>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or a host to register with that is
/// none.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?.with_texts(build.params)?;
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let client = Client {
        lower,
        version: settings.version,
        netid: settings.netids.first().copied().unwrap_or(Netid::Udp),
    };
    let registrar = settings.register.clone().map(Registrar::new);
    let shared = Rc::new(Shared {
        table: Table::new(settings.mappings_max),
        stats: Stats::default(),
        client,
        sessions: SessionTable::new(cx.secret(), settings.sessions_max),
        served: RefCell::default(),
        this: RefCell::default(),
        settings,
    });
    let body =
        Portmap { shared, ends: [cx.secret(), cx.secret()], registrar, enables_made: Cell::new(0) };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

impl Shared {
    /// The transports of the settings over the family of our hosts.
    fn netids(&self, cx: &Kernel) -> impl Iterator<Item = Netid> {
        let here = self.client.lower.ask(cx, MyHost::default()).unwrap_or_default().host;
        self.settings.netids.iter().map(move |netid| netid.over(here))
    }
}

/// A mapping of the graph's own.
fn own((program, version, netid, port): (u32, u32, Netid, u16)) -> Mapped {
    let host = HostAddr::UNSPECIFIED;
    Mapped { program, version, netid, at: Universal { host, port }, owner: Owner::Graph }
}

/// Whether the port in this participant, what lies below the program, is yet to be found: 0, or
/// any.
fn pop_unknown_port(rest: &mut Participant) -> bool {
    match rest.top() {
        Some(Part::Number(label, 0)) if *label == PORT_LABEL => rest.pop().is_some(),
        // A wildcard with something below it stands for the port.
        Some(Part::Any) if rest.len() > 1 => rest.pop().is_some(),
        _ => false,
    }
}

/// The port that a protocol serves at.
fn port_of(mut rest: Participant) -> Option<u16> {
    rest.pop_port().ok()?.value().filter(|port| *port != 0)
}

impl Portmap {
    /// The key of a session: the protocol above, and a hash of both ends.
    fn key(&self, upper: &ProtocolRef, participants: &Participants) -> Key {
        let text: Vec<u64> = participants.to_string().bytes().map(u64::from).collect();
        let [first, second] = self.ends.each_ref().map(|secret| secret.hash(&text));
        (upper.id().0, first, second)
    }

    /// Establishes the mappings of something served above, and notes them for the registrar.
    fn map(&self, cx: &Kernel, this: &ProtocolRef, what: (u32, u32, u16)) -> Vec<Mapped> {
        let (program, version, port) = what;
        let mut made = Vec::new();
        for netid in self.shared.netids(cx) {
            let mapped = own((program, version, netid, port));
            if self.shared.table.set(mapped) {
                made.push(mapped);
            }
        }
        if let Some(registrar) = &self.registrar {
            registrar.note(cx, this, what, true);
        }
        made
    }
}

impl Protocol for Portmap {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let shared = &self.shared;
        *shared.this.borrow_mut() = Some(this.clone());
        for map in &shared.settings.maps {
            if !shared.table.set(own(*map)) {
                return Err(OpenError::Full);
            }
        }
        if !shared.settings.serve {
            return Ok(());
        }
        for version in VERSIONS {
            let local = Participant::of(Part::Any)
                .with(Part::port(PORT))
                .with(Part::Number(PROGRAM_LABEL, PROGRAM.into()))
                .with(Part::Number(VERSION, version.into()));
            let local = Participants::local(local);
            // Stands as long as this does.
            let _for_good = shared.client.lower.open_enable(cx, Upper::new(this), local)?;
            for netid in shared.netids(cx) {
                if !shared.table.set(own((PROGRAM, version, netid, PORT))) {
                    return Err(OpenError::Full);
                }
            }
        }
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let mut rest = participants.clone();
        let name = ProcedureName::pop(&mut rest)?;
        let mut host = rest.peer_mut()?.clone();
        if !pop_unknown_port(&mut host) {
            // Nothing to do here, then or later: the session is the lower one's own.
            return self.shared.client.lower.open(cx, upper, participants);
        }
        let (upper, sessions) = (upper.receiver, &self.shared.sessions);
        let key = self.key(upper, &participants);
        if let Some(session) = sessions.found(&key, upper)? {
            return Ok(session);
        }
        let local = rest.local_mut()?.clone();
        let lower = &self.shared.client.lower;
        let shared = Rc::clone(&self.shared);
        let many = host.clone().pop_host().ok().and_then(Wild::value);
        if IsGroup::ask(cx, lower, many) {
            let client = &self.shared.client;
            let lower = client.open(cx, this, (local, &host), procedure::CALLIT)?;
            let body = Everyone { shared, key, name, lower };
            return sessions.open(cx, this, upper, key, body);
        }
        let body = Resolver {
            shared,
            this: this.clone(),
            key,
            name,
            local,
            host,
            lower: SessionSlot::default(),
            asking: RefCell::default(),
        };
        sessions.open(cx, this, upper, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let lower = &self.shared.client.lower;
        let below = lower.open_enable(cx, upper, participants.clone())?;
        let local = participants.local_mut()?;
        let offered = Offered::pop(local)?;
        let mapped = match (offered.program, offered.version, port_of(local.clone())) {
            (Wild::Is(program), Wild::Is(version), Some(port)) => {
                self.map(cx, this, (program, version, port))
            }
            _ => Vec::new(),
        };
        let served = Served { upper: upper.receiver.clone(), below, offered, mapped };
        let number = self.enables_made.get();
        self.enables_made.set(number + 1);
        self.shared.served.borrow_mut().insert(number, served);
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, this: &ProtocolRef, enable: Enable) {
        let gone = self.shared.served.borrow_mut().remove(&enable.0);
        let Some(gone) = gone else {
            return;
        };
        self.shared.client.lower.open_disable(cx, gone.below);
        let Some(mapped) = gone.mapped.first() else {
            return;
        };
        // Others may serve further procedures of the same version at the same port.
        if self.shared.is_mapped(mapped) {
            return;
        }
        for mapped in &gone.mapped {
            self.shared.table.withdraw(mapped);
        }
        if let Some(registrar) = &self.registrar {
            let what = (mapped.program, mapped.version, mapped.at.port);
            registrar.note(cx, this, what, false);
        }
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        self.shared.serve(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<Mappings>() {
            question.mappings = shared.table.all();
            if let Some(registrar) = &self.registrar {
                question.accepted = registrar.accepted.get();
                question.refused = registrar.refused.get();
            }
            return Answer::Answered;
        }
        shared.client.lower.control(cx, ask)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("resolvers", &self.shared.sessions);
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.client.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        if let Some(registrar) = &self.registrar {
            registrar.work(cx, this, &self.shared.client);
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let shared = &self.shared;
        if let Some(registrar) = &self.registrar {
            registrar.clear();
        }
        shared.sessions.clear();
        shared.table.clear();
        let served = shared.served.take();
        let this = shared.this.take();
        drop((served, this));
    }
}
