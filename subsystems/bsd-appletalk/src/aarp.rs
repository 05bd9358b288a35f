//! AARP in the output of an Ethernet, as netatalk has it (`aarp.c`).

use crate::ddp::Ddp;
use crate::now;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::aarp::{
    self, ALL_NODES, Action, Config, Hw, PACKET_LEN, Packet, Resolution, Wish,
};
use xk_appletalk::addr::{NetRange, Node};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ether::{Arpcom, Encap, Resolve, Resolved};
use xk_bsd::ifnet::count;
use xk_bsd::{Bsd, Callout, CalloutId, HZ, Mbuf, Mt, Netisr, Sockaddr};
use xk_core::Kernel;

/// SNAP's number of DDP: Apple's.
pub(crate) const SNAP_DDP: Encap = Encap::Snap([8, 0, 7, 0x80, 0x9b]);
/// SNAP's number of AARP.
pub(crate) const SNAP_AARP: Encap = Encap::Snap([0, 0, 0, 0x80, 0xf3]);

/// AARP of one interface.
pub(crate) struct Aarp {
    bsd: Rc<Bsd>,
    ac: Rc<Arpcom>,
    ddp: Weak<Ddp>,
    /// None until the interface is up.
    machine: RefCell<Option<aarp::Aarp>>,
    /// The newest packet for each node that is asked for (`aat_hold`).
    hold: RefCell<BTreeMap<Node, Mbuf>>,
    timer: Cell<Option<CalloutId>>,
    myself: Weak<Aarp>,
    replaced: Cell<u64>,
    unresolved: Cell<u64>,
    bad: Cell<u64>,
}

impl Aarp {
    pub(crate) fn new(bsd: &Rc<Bsd>, ac: Rc<Arpcom>, ddp: Weak<Ddp>) -> Rc<Self> {
        Rc::new_cyclic(|myself| Self {
            bsd: Rc::clone(bsd),
            ac,
            ddp,
            machine: RefCell::default(),
            hold: RefCell::default(),
            timer: Cell::new(None),
            myself: myself.clone(),
            replaced: Cell::new(0),
            unresolved: Cell::new(0),
            bad: Cell::new(0),
        })
    }

    pub(crate) fn stats(&self) -> [(&'static str, u64); 3] {
        [
            ("held packets replaced", self.replaced.get()),
            ("held packets given up", self.unresolved.get()),
            ("bad aarp packets", self.bad.get()),
        ]
    }

    pub(crate) fn stop(&self) {
        drop((self.hold.take(), self.machine.take()));
    }

    /// Begins to be a node of these networks (`aarpprobe`): `first` if that is given, and no other.
    pub(crate) fn aarpprobe(&self, cx: &Kernel, range: NetRange, first: Option<Node>) {
        let mut machine = aarp::Aarp::new(self.ac.enaddr(), Config::default());
        let wish = Wish { range, first, only: first.is_some() };
        machine.wish(wish, now(cx), &mut || cx.random().next_u32());
        self.machine.replace(Some(machine));
        self.run(cx);
    }

    /// Does what is due, and sets the timer for what will be.
    fn run(&self, cx: &Kernel) {
        let actions = match &mut *self.machine.borrow_mut() {
            Some(machine) => machine.tick(now(cx), &mut || cx.random().next_u32()),
            None => Vec::new(),
        };
        self.act(cx, actions);
        let next = self.machine.borrow().as_ref().and_then(aarp::Aarp::next);
        if let Some(pending) = self.timer.take() {
            self.bsd.untimeout(cx, pending);
        }
        let (Some(next), Some(myself)) = (next, self.myself.upgrade()) else { return };
        // Rounded up: an early call would find nothing due.
        let tick = u128::from(1000 / HZ);
        let ticks = next.saturating_sub(now(cx)).as_nanos().div_ceil(tick * 1_000_000);
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).max(1);
        self.timer.set(self.bsd.timeout(cx, myself, 0, ticks).ok());
    }

    fn act(&self, cx: &Kernel, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, packet) => self.send(cx, to, &packet),
                Action::Claimed(node) => {
                    if let Some(ddp) = self.ddp.upgrade() {
                        ddp.claimed(cx, node);
                    }
                }
                Action::Conflict(_) => {
                    if let Some(ddp) = self.ddp.upgrade() {
                        ddp.conflict();
                    }
                }
                Action::Resolved(node, to) => {
                    let held = self.hold.borrow_mut().remove(&node);
                    if let Some(m) = held {
                        let _ = self.ac.send(cx, Resolved { m, to, encap: SNAP_DDP });
                    }
                }
                Action::Unresolved(node) => {
                    count(&self.unresolved);
                    let held = self.hold.borrow_mut().remove(&node);
                    drop(held);
                }
            }
        }
    }

    fn send(&self, cx: &Kernel, to: Hw, packet: &Packet) {
        let Ok(mut m) = self.bsd.mbufs().m_gethdr(Mt::Data) else { return };
        m.align(PACKET_LEN);
        if m.put(&packet.octets()) {
            m.make_packet(0);
            // One that cannot be sent is lost like one on the wire.
            let _ = self.ac.send(cx, Resolved { m, to, encap: SNAP_AARP });
        }
    }
}

impl Resolve for Aarp {
    /// `aarpresolve`.
    fn resolve(
        &self,
        cx: &Kernel,
        _: &Rc<Arpcom>,
        m: Mbuf,
        dst: &Sockaddr,
    ) -> Result<Option<Resolved>> {
        let node = Node::new(dst.net(), dst.node());
        if node.is_broadcast() {
            return Ok(Some(Resolved { m, to: ALL_NODES, encap: SNAP_DDP }));
        }
        let (resolution, action) = match &mut *self.machine.borrow_mut() {
            Some(machine) => machine.resolve(node, now(cx)),
            None => return Err(Errno::EADDRNOTAVAIL),
        };
        let resolved = match resolution {
            Resolution::Known(to) => Ok(Some(Resolved { m, to, encap: SNAP_DDP })),
            Resolution::Asked => {
                if self.hold.borrow_mut().insert(node, m).is_some() {
                    count(&self.replaced);
                }
                Ok(None)
            }
            Resolution::Full => Err(Errno::ENOBUFS),
            Resolution::NoAddress => Err(Errno::EADDRNOTAVAIL),
        };
        if let Some(action) = action {
            self.act(cx, [action].into());
            self.run(cx);
        }
        resolved
    }
}

impl Netisr for Aarp {
    /// `aarpintr`.
    fn intr(&self, cx: &Kernel, m: Mbuf) {
        let mut octets = [0; PACKET_LEN];
        let n = m.m_copydata(0, &mut octets);
        m.m_freem();
        let packet = Packet::parse(octets.get(..n).unwrap_or_default());
        let done = match (&mut *self.machine.borrow_mut(), packet) {
            (Some(machine), Ok(packet)) => {
                machine.input(&packet, now(cx), &mut || cx.random().next_u32()).ok()
            }
            (_, Err(_)) => {
                count(&self.bad);
                None
            }
            (None, _) => None,
        };
        if let Some(actions) = done {
            self.act(cx, actions);
            self.run(cx);
        }
    }
}

impl Callout for Aarp {
    fn expire(&self, cx: &Kernel, _: u64) {
        self.timer.set(None);
        self.run(cx);
    }
}
