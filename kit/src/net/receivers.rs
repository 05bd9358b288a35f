//! Shared parts of layers without a header that receive from several lower protocols for several
//! uppers: an object that receives for each upper, and questions from below that go up to it.

use crate::control::{
    HostConflict, IsOutstanding, NetworkError, PeerEther, PseudoHeader, Resolve, SendError,
    SpecificDestination,
};
use crate::net::stream::{StreamNotice, StreamSettled};
use crate::rpc::call::{LargestPush, NeedsPseudoHeader};
use crate::wire::offload::Offloads;
use alloc::format;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::graph::{DerivedNumber, Guarantees, StackingRules};
use xk_core::object::{Enable, OpenError, ProtocolId};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};

/// Largest number of pairs of receiver and selector on one layer.
pub const UPPERS_MAX: usize = 64;
/// Offers that a layer takes at a time.
const OFFERS_MAX: usize = 4 * UPPERS_MAX;

/// One protocol that stands on the layer, and its receiver from below.
#[derive(Clone)]
pub struct UpperReceiver {
    /// The protocol above.
    pub upper: ProtocolRef,
    /// Protocol whose type number selects it.
    pub selector: ProtocolId,
    /// Receives for it: the layer itself for the first, for each further one an object of its own,
    /// since an `open_done` from below names only its receiver.
    pub object: ProtocolRef,
}

impl UpperReceiver {
    /// The upper on whose behalf the layer opens sessions below.
    pub fn upper(&self) -> Upper<'_> {
        Upper { receiver: &self.object, selector: self.selector }
    }
}

/// All protocols that stand on a layer, and what they offered.
#[derive(Default)]
pub struct UpperReceivers {
    all: RefCell<Vec<UpperReceiver>>,
    offers: RefCell<Vec<Offer>>,
    offer_last: Cell<u64>,
}

/// Enables at the layers below that serve one offer.
struct Offer {
    number: u64,
    made: Vec<(ProtocolRef, Enable)>,
}

impl UpperReceivers {
    /// The place of `upper` and what stands there, entered if it is new; `make` makes the object
    /// for a place behind the first.
    ///
    /// # Errors
    /// [`OpenError::Full`].
    pub fn place<P: Protocol + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        make: impl FnOnce(usize) -> P,
    ) -> Result<(usize, UpperReceiver), OpenError> {
        let same = |s: &&UpperReceiver| s.upper == *upper.receiver && s.selector == upper.selector;
        let at = self.len();
        if let Some((at, known)) = self.all.borrow().iter().enumerate().find(|(_, s)| same(s)) {
            return Ok((at, known.clone()));
        }
        if at >= UPPERS_MAX {
            return Err(OpenError::Full);
        }
        let object = if at == 0 {
            this.clone()
        } else {
            let name = format!("{}>{}", this.name(), upper.receiver.name());
            cx.add_protocol(this.head().kind(), &name, make(at))
        };
        let (upper, selector) = (upper.receiver.clone(), upper.selector);
        let new = UpperReceiver { upper, selector, object };
        self.all.borrow_mut().push(new.clone());
        Ok((at, new))
    }

    /// Offers to each of `lowers` what `offered` says for its place, for one offer from above.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing is offered.
    pub fn offer(
        &self,
        cx: &Kernel,
        receiver: &UpperReceiver,
        lowers: &[ProtocolRef],
        offered: impl Fn(usize) -> Participants,
    ) -> Result<Enable, OpenError> {
        if self.offers.borrow().len() >= OFFERS_MAX {
            return Err(OpenError::Full);
        }
        let mut made = Vec::new();
        for (at, lower) in lowers.iter().enumerate() {
            match lower.open_enable(cx, receiver.upper(), offered(at)) {
                Ok(enable) => made.push((lower.clone(), enable)),
                Err(error) => {
                    made.into_iter().for_each(|(lower, enable)| lower.open_disable(cx, enable));
                    return Err(error);
                }
            }
        }
        let number = self.offer_last.get() + 1;
        self.offer_last.set(number);
        self.offers.borrow_mut().push(Offer { number, made });
        Ok(Enable(number))
    }

    /// Withdraws an offer from each layer below.
    pub fn withdraw(&self, cx: &Kernel, enable: Enable) {
        let mut offers = self.offers.borrow_mut();
        let at = offers.iter().position(|offer| offer.number == enable.0);
        let offer = at.map(|at| offers.swap_remove(at));
        drop(offers);
        for (lower, enable) in offer.into_iter().flat_map(|offer| offer.made) {
            lower.open_disable(cx, enable);
        }
    }

    /// The protocol at a place.
    pub fn get(&self, at: usize) -> Option<UpperReceiver> {
        self.all.borrow().get(at).cloned()
    }

    /// Passes a question of a layer below about a session on to the protocol above that `find`
    /// leads to; not if it was, and came back from there. `None` if it is another question.
    pub fn ask_above(
        &self,
        cx: &Kernel,
        ask: &mut Ask<'_>,
        find: impl FnOnce(&mut Ask<'_>) -> Option<ProtocolRef>,
    ) -> Option<Answer> {
        if ask.get::<SendError>().is_some() || ask.get::<HostConflict>().is_some() {
            // The packet's beginning follows, and IP is told of the conflict too.
            return Some(Answer::Unknown);
        }
        if ask.get::<NetworkError>().is_none() && ask.get::<IsOutstanding>().is_none() {
            return None;
        }
        let upper = if self.may_ask_above(ask) { find(ask) } else { None };
        Some(upper.map_or(Answer::Unknown, |upper| upper.control(cx, ask)))
    }

    /// Whether a question from below may be passed on to one of those above; not if it was, and
    /// came back from there.
    #[must_use]
    pub fn may_ask_above(&self, ask: &mut Ask<'_>) -> bool {
        let first = self.all.borrow().first().map(|first| first.object.id());
        first.is_some_and(|layer| ask.goes_up_by(layer))
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.all.borrow().len()
    }

    /// True if none stands there yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all; for the layer's `stop`.
    pub fn clear(&self) {
        let (all, offers) = (self.all.take(), self.offers.take());
        drop((all, offers));
    }
}

/// Has a question of a layer below name the session above that `find` says of the one below.
/// Returns that, if there is one; `None` if the question is about no session.
pub fn lead_up(
    ask: &mut Ask<'_>,
    find: impl FnOnce(&SessionRef) -> Option<SessionRef>,
) -> Option<Option<SessionRef>> {
    let named = if let Some(question) = ask.get::<NetworkError>() {
        question.session.as_mut()
    } else if let Some(question) = ask.get::<IsOutstanding>() {
        Some(&mut question.session)
    } else if let Some(question) = ask.get::<StreamNotice>() {
        Some(&mut question.session)
    } else {
        Some(&mut ask.get::<StreamSettled>()?.session)
    };
    Some(named.and_then(|named| {
        let above = find(named)?;
        *named = above.clone();
        Some(above)
    }))
}

/// Rules for a layer that chooses between a link, its first lower, and a network layer that reaches
/// all hosts, its second ("RPC in the x-Kernel", sections 3.1 and 5).
pub const LINK_OR_NET: StackingRules = StackingRules {
    derived: &[DerivedNumber { on: "eth", from: "ip", base: "ether_base", below: 256 }],
    ..StackingRules::NONE
};

/// Guarantees that such a layer needs of its first and of its second lower.
pub const LINK_AND_NET: &[Guarantees] = &[Guarantees::NEIGHBOURS, Guarantees::ROUTES];

/// Refuses a protocol that depends on IP itself ("RPC in the x-Kernel", section 5) above a layer
/// that chooses between a link and `net`.
///
/// # Errors
/// [`OpenError::NoTypeNumber`] if `net` knows no number for it: told now, and not when that way is
/// needed. [`OpenError::NotSupported`] if it cannot go over the link.
pub fn admit(cx: &Kernel, net: &ProtocolRef, upper: Upper<'_>) -> Result<(), OpenError> {
    let number = cx.type_number(upper.selector, net.id());
    let kind = net.head().kind();
    let by_number = cx.numbers_mut().kinds().iter().any(|n| n.lower == kind);
    if by_number && number.is_none() {
        return Err(OpenError::NoTypeNumber);
    }
    let is_ip_only = matches!(number, Some(1 | 6));
    if is_ip_only || upper.receiver.ask(cx, NeedsPseudoHeader).is_some() {
        return Err(OpenError::NotSupported);
    }
    Ok(())
}

/// Whether a question has no one answer where messages go several ways, or is put to those above:
/// no layer below is asked. What is done for transports on one way is not done on another.
pub fn has_no_answer(ask: &mut Ask<'_>) -> bool {
    ask.get::<LargestPush>().is_some()
        || ask.get::<NeedsPseudoHeader>().is_some()
        || ask.get::<PseudoHeader>().is_some()
        || ask.get::<Offloads>().is_some()
        || ask.get::<SpecificDestination>().is_some()
}

/// Octets of the shortest message that a link of a layer which chooses among several takes as it
/// is: an Ethernet's. Those above cannot know which way each goes.
pub const LINK_MIN: u32 = 46;

/// Sessions that are being opened over a link, by host: a session that the link layer makes
/// meanwhile belongs to one of them.
pub struct Openings<T> {
    open: RefCell<Vec<(u64, HostAddr, T)>>,
    last: Cell<u64>,
}

impl<T> Default for Openings<T> {
    fn default() -> Self {
        Self { open: RefCell::default(), last: Cell::new(0) }
    }
}

impl<T: Clone> Openings<T> {
    /// Runs `open`, which opens a session to `host` for `whom`, and returns its result.
    pub fn during<R>(&self, host: HostAddr, whom: T, open: impl FnOnce() -> R) -> R {
        let number = self.last.get() + 1;
        self.last.set(number);
        self.open.borrow_mut().push((number, host, whom));
        let opened = open();
        self.open.borrow_mut().retain(|(other, ..)| *other != number);
        opened
    }

    /// The session above for which the layer above `link` has opened this session of the link
    /// layer; `None` if a message made it, or nothing is being opened. Of several it is the one
    /// whose host has the session's address.
    pub fn of(&self, cx: &Kernel, link: &ProtocolRef, lower: &SessionRef) -> Option<T> {
        if lower.head().is_passive() {
            return None;
        }
        let mut all = self.open.borrow().clone();
        if all.len() > 1 {
            let address = lower.ask(cx, PeerEther::default())?.address;
            all.retain(|(_, host, _)| {
                let asked = link.ask(cx, Resolve { host: *host, address: None });
                asked.is_some_and(|asked| asked.address == Some(address))
            });
        }
        all.pop().map(|(.., whom)| whom)
    }
}
