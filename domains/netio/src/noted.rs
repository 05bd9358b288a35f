//! Frames with what they say besides their octets in front of them: a [`Note`], so that a checksum
//! that is open and a run of segments cross a channel as they are.

use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Time};
use xk_domains::{Arrival, Carrier, SendError};
use xk_kit::wire::frames;
use xk_kit::wire::segments::{self, RUN_PACKETS_MAX};
use xk_kit::wire::virtio::{NOTE_OCTETS, Note};

/// A carrier whose frames bear a note in front. Both sides of it have one of these.
///
/// What the other side notes holds if the headers of the frame agree; otherwise the frame is as if
/// it had no note.
pub struct Noted<C>(pub C);

/// The octets in front of a frame; `None` if they cannot say what it is.
fn note(frame: &Message) -> Option<[u8; NOTE_OCTETS]> {
    let is_short = segments::of(frame).is_none_or(|run| run.packets() <= RUN_PACKETS_MAX);
    Note::of(frame).filter(|_| is_short).map(Note::emit)
}

/// Takes the note off a frame; false if there is none.
fn take_note(frame: &mut Message) -> bool {
    let Some(note) = frame.pop_array::<NOTE_OCTETS>().copied() else {
        return false;
    };
    let (start, field, size) = match Note::parse(note) {
        Some(Note::Partial { start, field }) => (start, field, 0),
        Some(Note::Run { start, field, segment_octets, .. }) => (start, field, segment_octets),
        _ => return true,
    };
    let _ = frames::believe(frame, (start, field), size);
    true
}

impl<C: Carrier> Carrier for Noted<C> {
    fn room(&self) -> usize {
        self.0.room()
    }

    fn frame_octets_max(&self) -> usize {
        self.0.frame_octets_max().saturating_sub(NOTE_OCTETS)
    }

    fn takes_notes(&self) -> bool {
        true
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        let note = note(body).ok_or(SendError::TooLong)?;
        match head {
            [] => self.0.send(cx, &note, body),
            _ => self.0.send(cx, &[&note, head].concat(), body),
        }
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        match self.0.receive(cx) {
            Arrival::Frame(mut frame) => match take_note(&mut frame) {
                true => Arrival::Frame(frame),
                false => {
                    self.close();
                    Arrival::Lost
                }
            },
            other => other,
        }
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        self.0.is_lost(cx)
    }

    fn close(&self) {
        self.0.close();
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn turn(&self, cx: &Kernel) {
        self.0.turn(cx);
    }

    fn next_poll(&self) -> Option<Time> {
        self.0.next_poll()
    }

    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        self.0.rest(cx, sleeper)
    }

    fn woken(&self) {
        self.0.woken();
    }

    fn may_spin(&self) -> bool {
        self.0.may_spin()
    }
}
