//! Demultiplexing by an index in the link header of a frame, chosen by its receiver: the buffer
//! queue index of "Implementing Network Protocols at User Level", sections 3.3 and 3.4.
//!
//! Each right whose frames go to one station has an index, of which the module at that station is
//! told by an *offer*. That module puts it into each frame of the right from then on:
//!
//! | octets | a frame with an index | an offer |
//! | --- | --- | --- |
//! | 0..12 | both stations | both stations |
//! | 12..14 | [`INDEX_TYPE`] | [`INDEX_TYPE`] |
//! | 14..16 | the index | 0 |
//! | 16..18 | the type that follows the stations otherwise | the index |
//! | 18.. | the rest of the frame | the headers of the frames that are to bear it, stations too |
//!
//! A frame without one is as if it had index 0: it goes the ordinary way. An index that arrives is
//! a hint and no more: what it leads to is the receiver of the frame only if the frame fits it.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::reason::{Class, Reason};
use xk_core::{Ask, Kernel, Message, reason};
use xk_kit::control::{MaxPacket, OptPacket};
use xk_kit::net::template::{Check, OCTETS_MAX, Template};

use super::{Module, RIGHTS_MAX};
use crate::channel::{Channel, Toward};
use crate::rules::Face;

/// The type in the link header of frames with an index and of offers: the second of the two for
/// experiments (IEEE 802, "Local Experimental EtherTypes"). No layer above sees such frames.
pub const INDEX_TYPE: u16 = 0x88b6;
/// Octets by which an index makes a frame longer.
pub(super) const TAG_OCTETS: usize = 4;
/// Octets of the stations that a frame begins with.
const STATIONS: usize = 12;
/// Octets in front of the headers in an offer.
const OFFER: usize = STATIONS + TAG_OCTETS + 2;
/// Octets of the shortest frame.
const FRAME_OCTETS_MIN: usize = 60;
/// An index is free for so many others before it is used again, so that one that a peer still knows
/// leads to nothing.
const FREE_MIN: usize = 256;

/// An offer of an index that fits no right, or not the station that has sent it.
pub static STRAY_OFFER: Reason = Reason::new("offer for no right", Class::NotMine);

/// Receiver of the frames that arrive for a right: the channel and its checks.
pub(crate) struct Receiver {
    pub(super) check: Check,
    pub(super) channel: Rc<Channel>,
    /// The right's frames in the other direction.
    toward: Rc<Toward>,
    /// The number of the right.
    right: u32,
    /// Index by which a right is found, if not by its headers; 0 for none.
    index: Cell<u16>,
    /// Frames that were found by their headers, though it has an index.
    without: Cell<u32>,
    receives_nothing: bool,
}

impl AsRef<Check> for Receiver {
    fn as_ref(&self) -> &Check {
        &self.check
    }
}

impl Receiver {
    pub(super) fn new(
        received: &Template,
        channel: &Rc<Channel>,
        toward: &Rc<Toward>,
        right: u32,
    ) -> Self {
        Self {
            check: Check::new(received),
            channel: Rc::clone(channel),
            toward: Rc::clone(toward),
            right,
            index: Cell::new(0),
            without: Cell::new(0),
            receives_nothing: received.octets_max() == 0,
        }
    }
}

/// The rights by their indices, and how many frames were found so.
#[derive(Default)]
pub(super) struct Indices {
    /// Receivers by index; the first has index 1.
    receivers: RefCell<Vec<Option<Rc<Receiver>>>>,
    /// Free indices; the one that was used last is at the end.
    free: RefCell<VecDeque<u16>>,
    by_index: Cell<u64>,
    by_headers: Cell<u64>,
    astray: Cell<u64>,
}

fn count_one(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

impl Indices {
    /// Gives a right an index, if one is free.
    fn enter(&self, receiver: &Rc<Receiver>) {
        let (mut receivers, mut free) = (self.receivers.borrow_mut(), self.free.borrow_mut());
        let index = match free.len() < FREE_MIN && receivers.len() < RIGHTS_MAX {
            true => {
                receivers.push(None);
                // At most `RIGHTS_MAX`.
                receivers.len() as u16
            }
            false => free.pop_front().unwrap_or_default(),
        };
        if let Some(place) = receivers.get_mut(usize::from(index).wrapping_sub(1)) {
            *place = Some(Rc::clone(receiver));
            receiver.index.set(index);
        }
    }

    /// Takes it back.
    pub(super) fn leave(&self, receiver: &Receiver) {
        let index = receiver.index.take();
        let mut receivers = self.receivers.borrow_mut();
        if let Some(place) = receivers.get_mut(usize::from(index).wrapping_sub(1)) {
            *place = None;
            self.free.borrow_mut().push_back(index);
        }
    }

    /// The right of this index, if such a frame fits it.
    #[inline]
    fn find(&self, index: u16, face: &Face) -> Option<Rc<Receiver>> {
        let receivers = self.receivers.borrow();
        let receiver = receivers.get(usize::from(index).wrapping_sub(1))?.as_ref()?;
        face.fits(&receiver.check).then(|| Rc::clone(receiver))
    }

    pub(super) fn describe(&self) -> String {
        let (by_index, by_headers) = (self.by_index.get(), self.by_headers.get());
        let astray = self.astray.get();
        format!("{by_index} by index, {by_headers} by headers, {astray} with an index astray")
    }
}

/// Puts an index into a frame, which has stations.
pub(super) fn put_index(frame: &mut Message, index: u16) -> Result<(), &'static Reason> {
    let mut head = [0; STATIONS + TAG_OCTETS];
    frame.copy_to(0, &mut head[..STATIONS]);
    let _ = frame.strip(STATIONS);
    head[STATIONS..][..2].copy_from_slice(&INDEX_TYPE.to_be_bytes());
    head[STATIONS + 2..].copy_from_slice(&index.to_be_bytes());
    frame.push_array(&head).map_err(|_| &reason::NO_BUFFERS)
}

/// The index that a frame bears, 0 in an offer; `None` if it is neither.
#[inline]
fn index_of(frame: &Message) -> Option<u16> {
    let mut head = [0; STATIONS + TAG_OCTETS];
    let is_whole = frame.copy_to(0, &mut head) == head.len();
    let [.., kind_high, kind_low, high, low] = head;
    let is_one = is_whole && u16::from_be_bytes([kind_high, kind_low]) == INDEX_TYPE;
    is_one.then(|| u16::from_be_bytes([high, low]))
}

impl Module {
    /// Rights are found by an index in the frames from now on, where the peer's module does so too.
    /// The wire's frames are those of Ethernet, and those that are sent 4 octets shorter.
    pub fn use_indices(&self) {
        let _ = self.indices.set(Indices::default());
    }

    /// The number of the channel that has a right to receive a frame: found by the index that it
    /// bears, else by its headers.
    pub fn would_take(&self, frame: &Message) -> Option<u32> {
        let indices = self.indices.get();
        let indexed = indices.zip(index_of(frame).filter(|index| *index != 0));
        let mut face = Face::of(frame);
        let Some((indices, index)) = indexed else {
            let found = self.receivers.borrow().find(&face);
            return found.map(|receiver| receiver.channel.number);
        };
        frame.copy_to(STATIONS + TAG_OCTETS, &mut face.front[STATIONS..]);
        face.octets -= TAG_OCTETS;
        face.longest -= TAG_OCTETS;
        let found = indices.find(index, &face);
        found.map(|receiver| receiver.channel.number)
    }

    /// Octets of a frame that an index may take.
    pub(super) fn index_octets(&self) -> usize {
        if self.indices.get().is_some() { TAG_OCTETS } else { 0 }
    }

    /// Takes the room for an index off the wire's answer.
    pub(super) fn leave_room(&self, ask: &mut Ask<'_>) {
        let octets = self.index_octets() as u32;
        if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = question.octets.saturating_sub(octets);
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = question.octets.saturating_sub(octets);
        }
    }

    /// Gives a new right an index, and offers it to the station at the other end, if there is one.
    pub(super) fn index_right(&self, cx: &Kernel, receiver: &Rc<Receiver>) {
        let Some(indices) = self.indices.get() else {
            return;
        };
        if receiver.toward.station.is_some() && !receiver.receives_nothing {
            indices.enter(receiver);
            self.offer(cx, receiver);
        }
    }

    /// Tells the station at the other end of a right by which index it is found.
    fn offer(&self, cx: &Kernel, receiver: &Receiver) {
        let (index, rights) = (receiver.index.get(), self.rights.borrow());
        let Some(right) = rights.get(&receiver.right).filter(|_| index != 0) else {
            return;
        };
        let headers = right.headers.sent.octets();
        let (stations, kind) = (&headers[..STATIONS], INDEX_TYPE.to_be_bytes());
        let mut offer = [stations, &kind, &[0; 2], &index.to_be_bytes(), headers].concat();
        drop(rights);
        offer.resize(offer.len().max(FRAME_OCTETS_MIN), 0);
        match (self.wire(), cx.pool().copy_from(0, &offer)) {
            // What the wire does not take it has counted.
            (Some(wire), Ok(offer)) => drop(wire.push(cx, offer)),
            (None, _) => self.count(&reason::CLOSED),
            (_, Err(_)) => self.count(&reason::NO_BUFFERS),
        }
    }

    /// Takes the index out of an arrival, and gives it to the program to whose right that leads.
    /// What has none comes back, and without it what had one that leads to no right that it fits.
    #[inline]
    pub(super) fn take_by_index(
        &self,
        cx: &Kernel,
        indices: &Indices,
        mut frame: Message,
    ) -> Option<Message> {
        let Some(index) = index_of(&frame) else {
            return Some(frame);
        };
        if index == 0 {
            self.hear_offer(&frame);
            return None;
        }
        let mut stations = [0; STATIONS];
        frame.copy_to(0, &mut stations);
        let _ = frame.strip(STATIONS + TAG_OCTETS);
        if frame.push_array(&stations).is_err() {
            self.count(&reason::NO_BUFFERS);
            return None;
        }
        let found = indices.find(index, &Face::of(&frame));
        match found.filter(|receiver| receiver.channel.carrier().is_some()) {
            Some(receiver) => {
                count_one(&indices.by_index);
                self.hand_whole(cx, &receiver.channel, frame);
                None
            }
            None => {
                count_one(&indices.astray);
                Some(frame)
            }
        }
    }

    /// A right was found by its headers. That its peer does not know the index, or no longer, is no
    /// reason to tell it each time: it may be one that has none.
    pub(super) fn found_by_headers(&self, cx: &Kernel, receiver: &Receiver) {
        let Some(indices) = self.indices.get() else {
            return;
        };
        count_one(&indices.by_headers);
        let without = receiver.without.get().saturating_add(1);
        receiver.without.set(without);
        if without.is_power_of_two() {
            self.offer(cx, receiver);
        }
    }

    /// A station offers an index for frames to it: taken if they are those of a right, and come
    /// from the station to which that right's frames go.
    fn hear_offer(&self, offer: &Message) {
        let (mut head, mut front) = ([0; OFFER], [0; OCTETS_MAX]);
        offer.copy_to(0, &mut head);
        let is_whole = offer.copy_to(OFFER, &mut front) >= STATIONS;
        let [stations @ .., high, low] = head;
        let is_alike = is_whole && stations[..STATIONS] == front[..STATIONS];
        let found = is_alike.then(|| self.receivers.borrow().find_alike(&front)).flatten();
        let from = stations[6..STATIONS].first_chunk().copied();
        match (found, u16::from_be_bytes([high, low])) {
            (Some(receiver), index @ 1..) if receiver.toward.station == from => {
                receiver.toward.index.set(index);
            }
            _ => self.count(&STRAY_OFFER),
        }
    }
}
