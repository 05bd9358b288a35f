//! # Synopsis
//! `udp IP` — UDP as a multiplexor of STREAMS.
//!
//! # Participants
//! `port7@10.0.0.2`. In STREAMS a `sockaddr_in` of sixteen octets, its family in host order.
//!
//! # Behaviour
//! Below stands a layer that carries packets between hosts under UDP's number, 17: the IP of
//! another subsystem, by an adapter.
//!
//! A stream is bound to a port: the one in the address, or a free one from 49152 on. A datagram
//! goes to the stream of its port. A datagram for a port without a stream is counted ("no port")
//! and given back to the line below, as M_CTL with T_UDERROR_IND in front, and IP tells its sender.
//! The line below is asked for this host's address (T_ADDR_REQ). Datagrams are sent with a checksum
//! if that is known; checksums that arrive are always verified, and 0 stands for none. If the user
//! leaves the local host open, a datagram goes from that address, the host's first.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     eth sim
//!     arp eth
//!     ip arp { address "10.0.0.1/24"; }
//!     subsystem streams {
//!         udp ip
//!     }
//! }
//! ```
//!
//! # Standard
//! RFC 768; RFC 1122, section 4.1. Errors of ICMP do not come this far.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, Service};
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Entry, Kernel, ProtocolRef};
use xk_kit::control::MaxPacket;
use xk_streams::tpi::{
    ADDRESS_OCTETS, Datagrams, Driver, Endpoint, Info, Multiplexor, Mux, Primitive, Refusal,
    SendError, TliError, inet, inet_parts, own_end, unitdata_ind,
};
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Opening, Priority, Q, Services};

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("udp", include_str!("udp.rs"), build)
    .subsystem("streams")
    .summary("UDP as a multiplexor of STREAMS")
    .above(Family::Port)
    .on(&[Realm::Async], &[Family::Host])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::EXACT.and(Guarantees::REPLY)))
    .header_octets(HEADER)
    .numbers(&[("ip", 17)]);

/// Octets of the header.
const HEADER: usize = 8;
/// Octets of data at most.
const DATA_MAX: usize = 65_507;
/// UDP's number in IP.
const NUMBER: u8 = 17;
/// Ports that are given to those that ask for none (RFC 6335, section 6).
const DYNAMIC: core::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Octets in front of a header for those below.
const HEADROOM: usize = 64;

struct User {
    port: Option<u16>,
}

struct Udp {
    mux: Mux<User>,
    me: Cell<[u8; 4]>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, new())
}

fn new() -> Rc<Driver<Udp>> {
    Driver::new(Udp { mux: Mux::default(), me: Cell::default() })
}

/// Adds one on what carries packets between hosts, for programs that compose without a graph file.
///
/// # Errors
/// [`BuildError`] in a kernel without the subsystem.
pub fn add(cx: &Kernel, name: &str, ip: ProtocolRef) -> Result<ProtocolRef, BuildError> {
    xk_streams::add_line(cx, ENTRY.kind, name, &[ip], new())
}

/// The sum of the pseudo header and these octets (RFC 768), not yet complemented.
fn sum(from: [u8; 4], to: [u8; 4], length: u16, header: &[u8], data: &Mblk) -> u16 {
    let mut total = 0_u32;
    let mut is_high = true;
    let mut add = |octets: &[u8]| {
        for octet in octets {
            total += u32::from(*octet) << if is_high { 8 } else { 0 };
            total = (total & 0xffff) + (total >> 16);
            is_high = !is_high;
        }
    };
    let [high, low] = length.to_be_bytes();
    add(&from);
    add(&to);
    add(&[0, NUMBER, high, low]);
    add(header);
    data.blocks().for_each(|block| add(block.octets()));
    total as u16
}

impl Udp {
    fn is_free(&self, port: u16) -> bool {
        !self.mux.users.any(|user| user.port == Some(port))
    }

    fn output(
        &self,
        cx: &Kernel,
        (port, to): (u16, ([u8; 4], u16)),
        own: Option<[u8; 4]>,
        mut data: Mblk,
    ) -> Result<(), &'static Reason> {
        let q = self.mux.below.q().ok_or(&reason::CLOSED)?;
        let length = u16::try_from(HEADER + data.size()).map_err(|_| &reason::TOO_BIG)?;
        let ([a, b], [c, d], [e, f]) =
            (port.to_be_bytes(), to.1.to_be_bytes(), length.to_be_bytes());
        let mut header = [a, b, c, d, e, f, 0, 0];
        let from = own.unwrap_or(self.me.get());
        if from != [0; 4] {
            let checksum = match !sum(from, to.0, length, &header, &data) {
                0 => 0xffff,
                checksum => checksum,
            };
            header[6..].copy_from_slice(&checksum.to_be_bytes());
        }
        if !data.put_front(&header) {
            let front = q.blocks().allocb(HEADROOM + HEADER, Priority::Low);
            let mut front = front.ok_or(&reason::NO_BUFFERS)?;
            front.reset(HEADROOM);
            if !front.put(&header) {
                return Err(&reason::NO_BUFFERS);
            }
            data = front.linked(data);
        }
        // It goes from the host that the checksum says.
        let own = inet(from, 0);
        let opt = if from == [0; 4] { &[][..] } else { &own[..] };
        self.mux.below.send(cx, (&inet(to.0, 0), opt), data)
    }

    fn take(
        &self,
        cx: &Kernel,
        (from, to): ([u8; 4], Option<[u8; 4]>),
        mut data: Mblk,
    ) -> Result<(), &'static Reason> {
        if !data.pullupmsg(Some(HEADER)) {
            return Err(&reason::TRUNCATED);
        }
        let header: [u8; HEADER] = *data.octets().first_chunk().ok_or(&reason::TRUNCATED)?;
        let [a, b, c, d, e, f, g, h] = header;
        let length = u16::from_be_bytes([e, f]);
        let arrived = data.size();
        if usize::from(length) < HEADER || usize::from(length) > arrived {
            return Err(&reason::BAD_LENGTH);
        }
        let padding = arrived - usize::from(length);
        if !data.adjmsg(-(padding as isize)) {
            return Err(&reason::BAD_LENGTH);
        }
        let own = to.unwrap_or(self.me.get());
        let has_sum = [g, h] != [0, 0] && own != [0; 4];
        if has_sum && sum(from, own, length, &[], &data) != 0xffff {
            return Err(&reason::BAD_CHECKSUM);
        }
        let port = u16::from_be_bytes([c, d]);
        let Some(q) = self.mux.users.find(|user| user.port == Some(port)) else {
            self.mux.below.give_back(cx, &inet(from, 0), data);
            return Err(&reason::NO_PORT);
        };
        if !data.skip(HEADER) {
            return Err(&reason::BAD_LENGTH);
        }
        if !q.canputnext() {
            return Err(&reason::QUEUE_FULL);
        }
        let src = inet(from, u16::from_be_bytes([a, b]));
        let up = unitdata_ind(q.blocks(), &src, &[], data);
        q.putnext(cx, up.ok_or(&reason::NO_BUFFERS)?);
        Ok(())
    }
}

impl Multiplexor for Udp {
    type User = User;

    const INFO: ModuleInfo = ModuleInfo::new(0x5544, "udp");

    fn mux(&self) -> &Mux<User> {
        &self.mux
    }

    fn opened(this: &Rc<Self>, _: &Kernel, q: &Q, _: Opening) -> Rc<dyn Module> {
        this.mux.users.open(q, User { port: None });
        Endpoint::new(Rc::clone(this))
    }

    fn lower(this: &Rc<Self>) -> Rc<dyn Module> {
        Rc::new(Hosts(Rc::clone(this)))
    }

    fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let below = self.mux.below.node(cx)?.ask(cx, MaxPacket::default())?;
        let octets = below.octets.saturating_sub(HEADER as u32).min(DATA_MAX as u32);
        let answer = ask.answer::<MaxPacket>(|max| max.octets = octets);
        answer.is_answered().then_some(answer)
    }
}

impl Datagrams for Udp {
    fn module(&self) -> ModuleInfo {
        Udp::INFO
    }

    fn info(&self) -> Info {
        Info::datagrams(DATA_MAX as u32, ADDRESS_OCTETS as u32, ADDRESS_OCTETS as u32)
    }

    fn bind(&self, _: &Kernel, q: &Q, addr: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        let (host, port) = match addr.iter().all(|octet| *octet == 0) {
            true => ([0; 4], 0),
            false => inet_parts(addr).ok_or(TliError::TBADADDR)?,
        };
        let port = match port {
            0 => DYNAMIC.into_iter().find(|port| self.is_free(*port)).ok_or(TliError::TNOADDR)?,
            port if !self.is_free(port) => return Err(Errno::EADDRINUSE.into()),
            port => port,
        };
        self.mux.users.with(q, |user| user.port = Some(port));
        Ok(inet(host, port).into())
    }

    fn unbind(&self, _: &Kernel, q: &Q) {
        self.mux.users.with(q, |user| user.port = None);
    }

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (to, opt): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        let bad = SendError::Told(Errno::EINVAL);
        let to = inet_parts(to).filter(|(_, port)| *port != 0).ok_or(bad)?;
        let port = self.mux.users.with(q, |user| user.port).flatten().ok_or(bad)?;
        let own = own_end(opt).0.and_then(|own| inet_parts(own)).map(|(host, _)| host);
        let empty = || q.blocks().copy(Kind::Data, 0, &[]);
        let data = data.or_else(empty).ok_or(SendError::Told(Errno::ENOSR))?;
        if data.size() > DATA_MAX {
            return Err(SendError::Told(Errno::EMSGSIZE));
        }
        self.output(cx, (port, to), own, data).map_err(|reason| {
            self.count(reason);
            SendError::Dropped
        })
    }

    fn told(&self, reason: &'static Reason) {
        self.count(reason);
    }

    fn has_room(&self, _: &Kernel) -> bool {
        self.mux.below.has_room()
    }

    fn local(&self, q: &Q) -> Vec<u8> {
        let port = self.mux.users.with(q, |user| user.port).flatten();
        inet(self.me.get(), port.unwrap_or(0)).into()
    }

    fn ioctl(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        if self.mux.below.ioctl(cx, q, mp) {
            let bind = self.mux.below.request(cx, Primitive::BindReq { addr: &[], conind: 0 });
            let asked = bind.and_then(|()| self.mux.below.request(cx, Primitive::AddrReq));
            if let Err(reason) = asked {
                self.count(reason);
            }
        }
    }

    fn close(&self, _: &Kernel, q: &Q) {
        self.mux.users.close(q);
    }
}

/// The pair that the stream below has for a head.
struct Hosts(Rc<Udp>);

impl Module for Hosts {
    fn info(&self) -> ModuleInfo {
        Udp::INFO
    }

    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn rput(&self, cx: &Kernel, _: &Q, mut mp: Mblk) {
        match mp.kind() {
            Kind::Proto => {
                let ends = match Primitive::of(&mp) {
                    Ok(Primitive::UnitdataInd { src, opt }) => inet_parts(src).map(|(from, _)| {
                        (from, own_end(opt).0.and_then(|own| inet_parts(own)).map(|own| own.0))
                    }),
                    _ => None,
                };
                if let (Some(ends), Some(data)) = (ends, mp.unlinkb())
                    && let Err(reason) = self.0.take(cx, ends, data)
                {
                    self.0.count(reason);
                }
            }
            Kind::PcProto => {
                let me = match Primitive::of(&mp) {
                    Ok(Primitive::AddrAck { local, .. }) => inet_parts(local),
                    _ => None,
                };
                if let Some((me, _)) = me {
                    self.0.me.set(me);
                }
            }
            Kind::Hangup | Kind::Error => self.0.mux.below.gone(),
            _ => {}
        }
    }

    /// There is room below again.
    fn wsrv(&self, cx: &Kernel, _: &Q) {
        self.0.mux.users.enable(cx);
    }
}
