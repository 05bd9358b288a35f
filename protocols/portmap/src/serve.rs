//! The server: what each procedure does (RFC 1833, sections 2.2 and 3.2).

use crate::protocol::Shared;
use crate::stats::Asked;
use crate::table::{Mapped, Owner};
use crate::universal::{NETIDS, Netid, Universal};
use crate::wire::{
    Binding, CallArguments, CallResult, Entry, Mapping, NetBuf, RemoteCallResult, VERSION_PMAP,
    VERSION_RPCB4, procedure,
};
use crate::{NOT_FROM_HERE, SILENT};
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::object::Refused;
use xk_core::{HostAddr, Kernel, Message, ProtocolRef, Reason, SessionRef};
use xk_kit::control::{IsLocalHost, MyHost, PeerHost, PeerPort};
use xk_kit::net::stream::CarriesRecords;
use xk_kit::passthrough::EpochOffset;
use xk_kit::rpc::call::{BAD_ARGUMENTS, Caller, MyProcedure, NO_PROCEDURE, SYSTEM_ERROR};
use xk_kit::rpc::onc::{AUTH_SHORT, AUTH_SYS, MyProgram, ProcedureName};
use xk_xdr::{List, Xdr};

/// Room in front of a reply for the headers of all layers.
pub(crate) const HEADROOM: usize = 128;

/// Ports below this one are for whom the system trusts.
const RESERVED: u16 = 1024;

/// Why a request has no reply of its own.
pub(crate) type Refusal = &'static Reason;

/// One request: where it came from, and what it is about.
pub(crate) struct Request<'a> {
    pub(crate) cx: &'a Kernel,
    pub(crate) session: &'a SessionRef,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) netid: Netid,
    caller: Owner,
}

/// The transport that a session of ONC RPC stands on.
pub(crate) fn netid_of(cx: &Kernel, session: &SessionRef) -> Netid {
    let netid = match session.ask(cx, CarriesRecords) {
        Some(_) => Netid::Tcp,
        None => Netid::Udp,
    };
    netid.over(here(cx, session))
}

/// Our host as the peer of this session has addressed it.
pub(crate) fn here(cx: &Kernel, session: &SessionRef) -> HostAddr {
    session.ask(cx, MyHost::default()).unwrap_or_default().host
}

impl Shared {
    /// Executes a request and gives the reply.
    pub(crate) fn serve(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        session: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let asked =
            (session.ask(cx, MyProgram::default()), session.ask(cx, MyProcedure::default()));
        let (Some(program), Some(named)) = asked else {
            return Err(this.refuse(message, &NO_PROCEDURE));
        };
        let request = Request {
            cx,
            session,
            version: program.version,
            procedure: named.number,
            netid: netid_of(cx, session),
            caller: owner(&message),
        };
        self.stats.request(request.version, request.procedure);
        let result = self.execute(&request, &message);
        result.map_err(|reason| this.refuse(message, reason))
    }

    fn execute(&self, request: &Request<'_>, message: &Message) -> Result<Message, Refusal> {
        let version = request.version;
        match request.procedure {
            procedure::NULL => request.reply(&()),
            procedure::SET => request.reply(&self.set(request, message)?),
            procedure::UNSET => request.reply(&self.unset(request, message)?),
            procedure::GET if version == VERSION_PMAP => {
                request.reply(&self.get_port(request, arguments(message)?))
            }
            procedure::GET => request.reply(&self.get_address(request, arguments(message)?, false)),
            procedure::DUMP if version == VERSION_PMAP => request.reply(&self.dump_ports()),
            procedure::DUMP => request.reply(&self.dump()),
            procedure::CALLIT => self.call(request, message).map_err(|_| &SILENT),
            _ if version == VERSION_PMAP => Err(&NO_PROCEDURE),
            procedure::GETTIME => request.reply(&seconds(request.cx)),
            procedure::UADDR2TADDR => request.reply(&to_transport(arguments(message)?)),
            procedure::TADDR2UADDR => request.reply(&to_universal(&arguments(message)?)),
            _ if version != VERSION_RPCB4 => Err(&NO_PROCEDURE),
            procedure::GETVERSADDR => {
                request.reply(&self.get_address(request, arguments(message)?, true))
            }
            procedure::INDIRECT => self.call(request, message),
            procedure::GETADDRLIST => {
                request.reply(&self.get_addresses(request, &arguments(message)?))
            }
            procedure::GETSTAT => request.reply(&self.stats.all()),
            _ => Err(&NO_PROCEDURE),
        }
    }

    fn set(&self, request: &Request<'_>, message: &Message) -> Result<bool, Refusal> {
        let mapped = if request.version == VERSION_PMAP {
            let wanted: Mapping = arguments(message)?;
            let port = u16::try_from(wanted.port).ok();
            Netid::of_protocol(wanted.protocol).zip(port).map(|(netid, port)| Mapped {
                program: wanted.program,
                version: wanted.version,
                netid,
                at: Universal { host: HostAddr::UNSPECIFIED, port },
                owner: request.caller,
            })
        } else {
            let wanted: Binding = arguments(message)?;
            let at = Universal::parse(&wanted.address);
            Netid::of_name(&wanted.netid).zip(at).map(|(netid, at)| Mapped {
                program: wanted.program,
                version: wanted.version,
                netid,
                at,
                owner: request.caller,
            })
        };
        self.require_local(request)?;
        let is_set = mapped.is_some_and(|m| m.at.port != 0 && self.table.set(m));
        if is_set {
            self.stats.set(request.version, true);
        }
        Ok(is_set)
    }

    fn unset(&self, request: &Request<'_>, message: &Message) -> Result<bool, Refusal> {
        let (program, version, netid) = if request.version == VERSION_PMAP {
            // Protocol and port are ignored (section 3.2).
            let wanted: Mapping = arguments(message)?;
            (wanted.program, wanted.version, Some(None))
        } else {
            let wanted: Binding = arguments(message)?;
            let netid = if wanted.netid.is_empty() {
                Some(None)
            } else {
                Netid::of_name(&wanted.netid).map(Some)
            };
            (wanted.program, wanted.version, netid)
        };
        self.require_local(request)?;
        let caller = request.caller;
        let is_gone = netid.is_some_and(|netid| self.table.unset(program, version, netid, caller));
        if is_gone {
            self.stats.set(request.version, false);
        }
        Ok(is_gone)
    }

    /// Only this host establishes and deletes mappings (section 2.2.2), and of its users only those
    /// whom the system lets have a reserved port: whom a credential names, anyone can say. A layer
    /// without ports has no users.
    fn require_local(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let port = request.session.ask(request.cx, PeerPort::default());
        if port.is_some_and(|peer| peer.port >= RESERVED) {
            return Err(&NOT_FROM_HERE);
        }
        let peer = request.session.ask(request.cx, PeerHost::default());
        let is_local = peer.is_some_and(|peer| {
            let host = peer.host;
            let local = false;
            let asked = request.session.ask(request.cx, IsLocalHost { host, local });
            host.is_loopback() || asked.is_some_and(|q| q.local)
        });
        if is_local { Ok(()) } else { Err(&NOT_FROM_HERE) }
    }

    fn get_port(&self, request: &Request<'_>, wanted: Mapping) -> u32 {
        let Some(netid) = Netid::of_protocol(wanted.protocol) else {
            return 0;
        };
        let found = self.table.find(wanted.program, wanted.version, netid);
        self.asked(request, (wanted.program, wanted.version, netid), found);
        found.map_or(0, |m| u32::from(m.at.port))
    }

    fn get_address(&self, request: &Request<'_>, wanted: Binding, is_exact: bool) -> Text {
        // The transport is the one that the request came by, whatever it says (section 2.2.1).
        let (program, version, netid) = (wanted.program, wanted.version, request.netid);
        let found = if is_exact {
            self.table.exact(program, version, netid)
        } else {
            self.table.find(program, version, netid)
        };
        self.asked(request, (program, version, netid), found);
        found.map_or_else(Text::default, |m| request.address(&m))
    }

    fn asked(&self, request: &Request<'_>, asked: Asked, found: Option<Mapped>) {
        self.stats.address(request.version, asked, found.is_some());
    }

    fn get_addresses(&self, request: &Request<'_>, wanted: &Binding) -> List<Entry> {
        let on = |netid| self.table.exact(wanted.program, wanted.version, netid);
        let found = NETIDS.into_iter().filter_map(on);
        found
            .map(|m| Entry {
                address: request.address(&m),
                netid: m.netid.name().into(),
                semantics: if m.netid.is_stream() { 3 } else { 1 },
                family: if m.netid.is_v6() { "inet6" } else { "inet" }.into(),
                protocol: if m.netid.is_stream() { "tcp" } else { "udp" }.into(),
            })
            .collect()
    }

    fn dump_ports(&self) -> List<Mapping> {
        let all = self.table.all().into_iter();
        all.map(|m| Mapping {
            program: m.program,
            version: m.version,
            protocol: m.netid.protocol(),
            port: m.at.port.into(),
        })
        .collect()
    }

    fn dump(&self) -> List<Binding> {
        let all = self.table.all().into_iter();
        all.map(|m| Binding {
            program: m.program,
            version: m.version,
            netid: m.netid.name().into(),
            address: m.text().into(),
            owner: m.owner.name().into(),
        })
        .collect()
    }

    /// Calls a procedure that is served above this very layer.
    fn call(&self, request: &Request<'_>, message: &Message) -> Result<Message, Refusal> {
        let wanted: CallArguments = arguments(message)?;
        let CallArguments { program, version, procedure, .. } = wanted;
        let call = ProcedureName { program, version, procedure };
        let result = self.call_above(request, call, &wanted.arguments);
        let tells = request.procedure == crate::wire::procedure::INDIRECT;
        let counted = (call, tells, request.netid);
        self.stats.call(request.version, counted, result.is_ok());
        let (mapped, results) = result?;
        let mut octets = alloc::vec![0; results.len()];
        results.copy_to(0, &mut octets);
        if request.version == VERSION_PMAP {
            return request
                .reply(&CallResult { port: mapped.at.port.into(), results: octets.into() });
        }
        request
            .reply(&RemoteCallResult { address: request.address(&mapped), results: octets.into() })
    }
}

/// A universal address, or none.
type Text = crate::wire::Name;

impl Request<'_> {
    /// The reply with this result.
    fn reply<T: Xdr>(&self, value: &T) -> Result<Message, Refusal> {
        xk_xdr::to_message(value, self.cx.pool(), HEADROOM).map_err(|_| &SYSTEM_ERROR)
    }

    /// The address of a mapping as it is from where the request came.
    fn address(&self, mapped: &Mapped) -> Text {
        let here = here(self.cx, self.session);
        mapped.seen_from(here).emit().into()
    }
}

/// The arguments at the front of a request; what follows them is not looked at.
fn arguments<T: Xdr>(message: &Message) -> Result<T, Refusal> {
    xk_xdr::from_message(message).map_err(|_| &BAD_ARGUMENTS)
}

/// The caller, as far as the credential names it.
fn owner(message: &Message) -> Owner {
    let caller: Option<Caller> = message.attribute();
    let known = caller.filter(|c| matches!(c.flavor, AUTH_SYS | AUTH_SHORT));
    known.map_or(Owner::Anybody, |c| Owner::User(c.user))
}

/// Seconds since 1970; since the boot, where the time of day is not known.
fn seconds(cx: &Kernel) -> u32 {
    let epoch = cx.surroundings::<EpochOffset>();
    let before = epoch.map_or(Duration::ZERO, |epoch| epoch.0);
    (before + Duration::from_nanos(cx.now().as_ns())).as_secs() as u32
}

fn to_transport(text: Text) -> NetBuf {
    let octets = Universal::parse(&text).map_or_else(Vec::new, Universal::to_socket);
    NetBuf { octets_max: octets.len() as u32, octets: octets.into() }
}

fn to_universal(address: &NetBuf) -> Text {
    let at = Universal::of_socket(&address.octets);
    at.map_or_else(Text::default, |at| at.emit().into())
}
