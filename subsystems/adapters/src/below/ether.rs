//! The lower half on an Ethernet interface of BSD: each door takes the frames of one number, with
//! their stations.

use super::bsd::DOORS_MAX;
use crate::edge::{Below, Door, Edge, Ends, Fault, Sink, Unwanted, remove};
use crate::form::{Addr, Form};
use crate::parcel::Parcel;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_bsd::ether::{Arpcom, Encap, EtherInput, Resolved};
use xk_bsd::ifnet::{IFF_ALLMULTI, IFF_RUNNING, IFF_UP};
use xk_bsd::{Bsd, Mbuf};
use xk_core::Kernel;
use xk_core::object::ProtocolId;

/// Organisations of SNAP by their place in numbers, as in `eth`.
const ORGANISATIONS: [[u8; 3]; 4] = [[0, 0, 0], [0x08, 0, 0x07], [0, 0x80, 0xc2], [0, 0, 0x0c]];

/// Encapsulation of the protocol with this number in a frame.
fn encap_of(number: u32) -> Option<Encap> {
    let [_, place, high, low] = number.to_be_bytes();
    match place {
        0 => Some(Encap::Type(u16::from_be_bytes([high, low]))),
        place => {
            let [a, b, c] = *ORGANISATIONS.get(usize::from(place) - 1)?;
            Some(Encap::Snap([a, b, c, high, low]))
        }
    }
}

/// The half.
pub(crate) struct OnEther(Rc<Half>);

struct Half {
    bsd: Rc<Bsd>,
    ac: Rc<Arpcom>,
    edge: Rc<Edge>,
    doors: RefCell<Vec<Rc<EtherDoor>>>,
}

impl OnEther {
    /// On the line below. None if that is no Ethernet interface.
    pub(crate) fn new(bsd: &Rc<Bsd>, edge: &Rc<Edge>) -> Option<Self> {
        let ac = bsd.arpcom(&*bsd.interface(edge.lower.id())?)?;
        Some(Self(Rc::new(Half {
            bsd: Rc::clone(bsd),
            ac,
            edge: Rc::clone(edge),
            doors: RefCell::default(),
        })))
    }
}

impl Below for OnEther {
    fn open(
        &self,
        cx: &Kernel,
        selector: ProtocolId,
        local: Addr,
        sink: Rc<dyn Sink>,
    ) -> Result<Rc<dyn Door>, Fault> {
        let half = &self.0;
        if half.doors.borrow().len() >= DOORS_MAX {
            return Err(Fault::NoBuffers);
        }
        let number = match Form::link_parts(&local) {
            (_, 0) => cx.type_number(selector, half.edge.lower.id()).ok_or(Fault::NotSupported)?,
            (_, number) => number,
        };
        let encap = encap_of(number).ok_or(Fault::NotSupported)?;
        let door = Rc::new(EtherDoor { half: Rc::clone(half), number, encap, sink });
        let input: Weak<dyn EtherInput> = Rc::<EtherDoor>::downgrade(&door);
        half.ac.add_input(encap, input)?;
        // Which groups it wants the protocol above says to the wire, and looks at itself.
        half.ac.ac_if.set_flags(IFF_ALLMULTI, 0);
        half.doors.borrow_mut().push(Rc::clone(&door));
        Ok(door)
    }

    fn max_packet(&self, _: &Kernel) -> Option<u32> {
        let doors = self.0.doors.borrow();
        let taken = doors.iter().map(|door| Form::link_octets(door.number)).max().unwrap_or(0);
        u32::try_from(self.0.ac.ac_if.if_mtu.get().saturating_sub(taken)).ok()
    }

    fn local_to(&self, _: &Kernel, _: &Addr) -> Option<Addr> {
        Some(Form::link(self.0.ac.enaddr(), 0))
    }

    fn stop(&self, _: &Kernel) {
        let doors = self.0.doors.take();
        drop(doors);
    }
}

struct EtherDoor {
    half: Rc<Half>,
    number: u32,
    encap: Encap,
    sink: Rc<dyn Sink>,
}

impl EtherInput for EtherDoor {
    fn ether_packet(&self, cx: &Kernel, m: Mbuf, to: [u8; 6], from: [u8; 6]) {
        let number = self.number;
        let ends = Ends::new(Form::link(from, number), Form::link(to, number));
        let ends = Ends { is_for_many: to[0] & 1 != 0, ..ends };
        // The other subsystem may wait.
        let arrived = self.half.bsd.spl0(cx, || self.sink.arrive(cx, &ends, Parcel::Mbufs(m)));
        // What comes back was counted above.
        if let Err(Unwanted { why, parcel: None }) = arrived {
            self.half.edge.count(why);
        }
    }
}

impl Door for EtherDoor {
    fn send(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Fault> {
        let (bsd, ac) = (&self.half.bsd, &self.half.ac);
        if !ac.ac_if.is(IFF_UP | IFF_RUNNING) {
            return Err(Fault::NoRoute);
        }
        let (to, number) = Form::link_parts(&ends.to);
        let encap = match number {
            0 => self.encap,
            number => encap_of(number).ok_or(Fault::Address)?,
        };
        let m = parcel.into_mbufs(bsd.mbufs(), &self.half.edge.down)?;
        bsd.splnet(cx, || ac.send(cx, Resolved { m, to, encap })).map_err(Fault::from)
    }

    fn local(&self, _: &Kernel) -> Addr {
        Form::link(self.half.ac.enaddr(), self.number)
    }

    fn close(&self, _: &Kernel) {
        remove(&self.half.doors, self);
    }
}
