//! Protocol control blocks (`netinet/in_pcb.c`): one list, searched from its head, and the block
//! that was found last.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::{SO_REUSEADDR, SS_PRIV, Socket};

/// The first of the ports that are given out (`IPPORT_RESERVED`): below it a socket needs
/// privilege.
pub const IPPORT_RESERVED: u16 = 1024;
/// The last of the ports that are given out (`IPPORT_USERRESERVED`).
pub const IPPORT_USERRESERVED: u16 = 5000;

/// A search also finds blocks that leave addresses open.
pub const INPLOOKUP_WILDCARD: u8 = 1;

/// An end: host and port; unspecified and 0 where it is open.
pub type PcbEnd = (Ipv4Addr, u16);

const OPEN: PcbEnd = (Ipv4Addr::UNSPECIFIED, 0);

/// A block (`struct inpcb`).
pub struct Inpcb {
    laddr: Cell<Ipv4Addr>,
    lport: Cell<u16>,
    faddr: Cell<Ipv4Addr>,
    fport: Cell<u16>,
    /// The socket.
    pub inp_socket: Rc<Socket>,
}

impl Inpcb {
    /// The local end.
    pub fn local(&self) -> PcbEnd {
        (self.laddr.get(), self.lport.get())
    }

    /// The peer's end.
    pub fn foreign(&self) -> PcbEnd {
        (self.faddr.get(), self.fport.get())
    }

    /// Whether it has a peer.
    pub fn is_connected(&self) -> bool {
        !self.faddr.get().is_unspecified()
    }

    /// Number of addresses that the block leaves open and a packet between these ends bears; none
    /// if the packet is not for it.
    fn wildcards(&self, (faddr, fport): PcbEnd, (laddr, lport): PcbEnd) -> Option<u8> {
        if self.lport.get() != lport {
            return None;
        }
        let compare = |own: Ipv4Addr, other: Ipv4Addr, port_differs: bool| match (
            own.is_unspecified(),
            other.is_unspecified(),
        ) {
            (true, true) => Some(0),
            (true, false) | (false, true) => Some(1),
            (false, false) if own == other && !port_differs => Some(0),
            (false, false) => None,
        };
        let local = compare(self.laddr.get(), laddr, false)?;
        let foreign = compare(self.faddr.get(), faddr, self.fport.get() != fport)?;
        Some(local + foreign)
    }
}

/// The blocks of a protocol (`struct inpcb` as the list's head).
#[derive(Default)]
pub struct Inpcbs {
    list: RefCell<Vec<Rc<Inpcb>>>,
    last: RefCell<Option<Rc<Inpcb>>>,
    /// The port given out last.
    port: Cell<u16>,
    /// Number of searches spared, and of blocks that the others have looked at.
    hits: Cell<u64>,
    looked_at: Cell<u64>,
}

impl Inpcbs {
    /// Returns how often the block found last was the right one, and how many blocks other searches
    /// looked at.
    pub fn figures(&self) -> (u64, u64) {
        (self.hits.get(), self.looked_at.get())
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.list.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// All of them, the newest first.
    pub fn all(&self) -> Vec<Rc<Inpcb>> {
        self.list.borrow().iter().rev().cloned().collect()
    }

    /// Releases all of them.
    pub fn clear(&self) {
        let (list, last) = (self.list.take(), self.last.take());
        for inp in &list {
            inp.inp_socket.set_pcb(None);
        }
        drop((list, last));
    }

    /// A block for a socket, at the head of the list: `in_pcballoc`.
    pub fn in_pcballoc(&self, so: &Rc<Socket>) -> Rc<Inpcb> {
        let inp = Rc::new(Inpcb {
            laddr: Cell::new(OPEN.0),
            lport: Cell::new(0),
            faddr: Cell::new(OPEN.0),
            fport: Cell::new(0),
            inp_socket: Rc::clone(so),
        });
        self.list.borrow_mut().push(Rc::clone(&inp));
        so.set_pcb(Some(Rc::clone(&inp) as Rc<dyn core::any::Any>));
        inp
    }

    /// Takes a block out: `in_pcbdetach`.
    pub fn in_pcbdetach(&self, inp: &Rc<Inpcb>) {
        inp.inp_socket.set_pcb(None);
        self.forget(inp);
        self.list.borrow_mut().retain(|kept| !Rc::ptr_eq(kept, inp));
    }

    fn forget(&self, inp: &Rc<Inpcb>) {
        let is_last = self.last.borrow().as_ref().is_some_and(|last| Rc::ptr_eq(last, inp));
        if is_last {
            drop(self.last.take());
        }
    }

    /// Binds a block: `in_pcbbind`. Without an end, to a port from 1024 to 5000 that is free.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it is bound, [`Errno::EADDRINUSE`], [`Errno::EACCES`],
    /// [`Errno::EADDRNOTAVAIL`] if no port is free.
    pub fn in_pcbbind(&self, inp: &Rc<Inpcb>, end: Option<PcbEnd>) -> Result {
        if inp.lport.get() != 0 || !inp.laddr.get().is_unspecified() {
            return Err(Errno::EINVAL);
        }
        let (laddr, lport) = end.unwrap_or(OPEN);
        if lport != 0 {
            if lport < IPPORT_RESERVED && !inp.inp_socket.is(SS_PRIV) {
                return Err(Errno::EACCES);
            }
            // With SO_REUSEADDR only the very same end is in the way.
            let reuses = inp.inp_socket.options() & SO_REUSEADDR != 0;
            let flags = if reuses { 0 } else { INPLOOKUP_WILDCARD };
            if self.search(OPEN, (laddr, lport), flags).is_some() {
                return Err(Errno::EADDRINUSE);
            }
            inp.laddr.set(laddr);
            inp.lport.set(lport);
            return Ok(());
        }
        for _ in IPPORT_RESERVED..=IPPORT_USERRESERVED {
            let next = self.port.get().wrapping_add(1);
            let is_given_out = (IPPORT_RESERVED..=IPPORT_USERRESERVED).contains(&next);
            self.port.set(if is_given_out { next } else { IPPORT_RESERVED });
            let free = self.search(OPEN, (laddr, self.port.get()), INPLOOKUP_WILDCARD).is_none();
            if free {
                inp.laddr.set(laddr);
                inp.lport.set(self.port.get());
                return Ok(());
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// Gives a block a peer: `in_pcbconnect`. `source` is the address that packets to it are sent
    /// from, for a block that leaves its own open.
    ///
    /// # Errors
    /// [`Errno::EADDRNOTAVAIL`] without a port, [`Errno::EADDRINUSE`] if there is such a pair.
    pub fn in_pcbconnect(&self, inp: &Rc<Inpcb>, peer: PcbEnd, source: Ipv4Addr) -> Result {
        if peer.1 == 0 {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let laddr = inp.laddr.get();
        let laddr = if laddr.is_unspecified() { source } else { laddr };
        if inp.lport.get() != 0 && self.search(peer, (laddr, inp.lport.get()), 0).is_some() {
            return Err(Errno::EADDRINUSE);
        }
        if inp.lport.get() == 0 {
            let kept = inp.laddr.replace(OPEN.0);
            let bound = self.in_pcbbind(inp, None);
            inp.laddr.set(kept);
            bound?;
        }
        self.forget_all();
        inp.laddr.set(laddr);
        inp.faddr.set(peer.0);
        inp.fport.set(peer.1);
        Ok(())
    }

    /// Takes the peer away: `in_pcbdisconnect`. UDP opens the local address as well.
    pub fn in_pcbdisconnect(&self, inp: &Rc<Inpcb>) {
        self.forget_all();
        inp.laddr.set(OPEN.0);
        inp.faddr.set(OPEN.0);
        inp.fport.set(0);
    }

    /// Forgets the block found last, which may not be the best any more.
    fn forget_all(&self) {
        drop(self.last.take());
    }

    fn search(&self, foreign: PcbEnd, local: PcbEnd, flags: u8) -> Option<Rc<Inpcb>> {
        let mut best: Option<(u8, &Rc<Inpcb>)> = None;
        let list = self.list.borrow();
        for inp in list.iter().rev() {
            self.looked_at.set(self.looked_at.get() + 1);
            let Some(wildcards) = inp.wildcards(foreign, local) else { continue };
            if wildcards > 0 && flags & INPLOOKUP_WILDCARD == 0 {
                continue;
            }
            if best.is_none_or(|(least, _)| wildcards < least) {
                best = Some((wildcards, inp));
            }
            if wildcards == 0 {
                break;
            }
        }
        best.map(|(_, inp)| Rc::clone(inp))
    }

    /// The block for a packet from `foreign` to `local`, with the fewest addresses left open:
    /// `in_pcblookup`. The block found last is tried first; it is taken only if it leaves nothing
    /// open, for else another could be better (4.3BSD-Reno keeps it in any case).
    pub fn in_pcblookup(&self, foreign: PcbEnd, local: PcbEnd, flags: u8) -> Option<Rc<Inpcb>> {
        let last = self.last.borrow().clone();
        if let Some(last) = last.filter(|last| last.wildcards(foreign, local) == Some(0)) {
            self.hits.set(self.hits.get() + 1);
            return Some(last);
        }
        let found = self.search(foreign, local, flags)?;
        self.last.replace(Some(Rc::clone(&found)));
        Some(found)
    }

    /// The blocks that an error about a packet to `foreign`, sent from this port, concerns:
    /// `in_pcbnotify`.
    pub fn in_pcbnotify(&self, foreign: PcbEnd, lport: u16) -> Vec<Rc<Inpcb>> {
        let list = self.list.borrow();
        let is_it = |inp: &&Rc<Inpcb>| inp.foreign() == foreign && inp.lport.get() == lport;
        list.iter().rev().filter(is_it).cloned().collect()
    }
}
