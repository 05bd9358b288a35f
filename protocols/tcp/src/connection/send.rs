//! The send side: octets that were pushed, as references to the buffers that they were pushed in (RFC 9293, section 3.3.1).
//!
//! What is not sent yet is one chain of buffers. It is cut when a segment goes for the first time; the cut stays, so that
//! sending it again is a reference to it and no search.

use crate::seq::Seq;
use alloc::collections::VecDeque;
use xk_core::Message;
use xk_core::message::NoBuffers;

/// How many messages may wait to be sent, of whatever size: each takes a buffer, be it for one octet.
const PUSHES_MAX: u32 = 16_384;

/// What went in one segment.
struct Piece {
    start: Seq,
    octets: Message,
}

impl Piece {
    fn end(&self) -> Seq {
        self.start + self.octets.len() as u32
    }
}

/// The send side of a connection.
pub(crate) struct Send {
    /// Our initial sequence number.
    pub(crate) iss: Seq,
    /// The end of the window that the peer announced, in octets from its acknowledgement on.
    pub(crate) snd_wnd: u32,
    /// The largest window that it has announced.
    pub(crate) max_snd_wnd: u32,
    /// The segment that the window was taken from: its sequence number and acknowledgement.
    pub(crate) snd_wl1: Seq,
    /// See [`snd_wl1`](Self::snd_wl1).
    pub(crate) snd_wl2: Seq,
    /// The shift of the windows that the peer announces.
    pub(crate) shift: u8,
    /// Sent and not acknowledged.
    pieces: VecDeque<Piece>,
    unsent: Option<Message>,
    /// How many messages were joined to what is unsent.
    pushes: u32,
    /// The end of what was pushed when somebody said that nothing follows.
    pub(crate) is_shut: bool,
    /// Our FIN's place, once it went.
    pub(crate) fin: Option<Seq>,
    /// Somebody was told that there is too little room.
    pub(crate) is_wanted: bool,
    /// Octets of the buffer.
    pub(crate) buffer: u32,
    /// Octets of data acknowledged, ever.
    pub(crate) acknowledged: u64,
}

impl Send {
    pub(crate) fn new(iss: Seq, buffer: u32) -> Self {
        Self {
            iss,
            snd_wnd: 0,
            max_snd_wnd: 0,
            snd_wl1: Seq(0),
            snd_wl2: Seq(0),
            shift: 0,
            pieces: VecDeque::new(),
            unsent: None,
            pushes: 0,
            is_shut: false,
            fin: None,
            is_wanted: false,
            buffer,
            acknowledged: 0,
        }
    }

    /// Octets pushed and not sent.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        self.unsent.as_ref().map_or(0, |unsent| unsent.len() as u32)
    }

    /// Octets sent and not acknowledged, up to the end of the segment that holds the oldest.
    fn unacknowledged(&self) -> u32 {
        match (self.pieces.front(), self.pieces.back()) {
            (Some(first), Some(last)) => last.end().since(first.start),
            _ => 0,
        }
    }

    /// Octets that a push may have now.
    pub(crate) fn space(&self) -> u32 {
        if self.pushes >= PUSHES_MAX {
            return 0;
        }
        let used = self.unsent() + self.unacknowledged();
        self.buffer.saturating_sub(used)
    }

    /// Puts a message behind what waits; the caller has looked at the space.
    pub(crate) fn push(&mut self, message: Message) {
        self.pushes += 1;
        match &mut self.unsent {
            Some(unsent) => unsent.join(message),
            None => self.unsent = Some(message),
        }
    }

    /// Cuts the next segment of `octets` octets, which begins at `start`, for its first transmission. The message has what
    /// headroom there is; a reference to its octets stays here.
    pub(crate) fn cut(&mut self, start: Seq, octets: u32) -> Result<Message, NoBuffers> {
        let Some(unsent) = &mut self.unsent else {
            return Err(NoBuffers);
        };
        let is_all = octets as usize >= unsent.len();
        if is_all {
            let kept = unsent.try_clone()?;
            self.pieces.push_back(Piece {
                start,
                octets: kept,
            });
            self.pushes = 0;
            return self.unsent.take().ok_or(NoBuffers);
        }
        let first = unsent.split_front(octets as usize).map_err(|_| NoBuffers)?;
        match first.try_clone() {
            Ok(kept) => {
                self.pieces.push_back(Piece {
                    start,
                    octets: kept,
                });
                Ok(first)
            }
            Err(error) => {
                // Back in front of the rest.
                let mut whole = first;
                if let Some(rest) = self.unsent.take() {
                    whole.join(rest);
                }
                self.unsent = Some(whole);
                Err(error)
            }
        }
    }

    /// A reference to at most `octets` octets from `start` on, which went before.
    pub(crate) fn again(&self, start: Seq, octets: u32) -> Option<Message> {
        let at = self.pieces.partition_point(|p| p.end().at_or_before(start));
        let piece = self.pieces.get(at)?;
        if piece.start.after(start) {
            return None;
        }
        let mut message = piece.octets.try_clone().ok()?;
        if !message.strip(start.since(piece.start) as usize) {
            return None;
        }
        message.truncate(octets as usize);
        Some(message)
    }

    /// A reference to the first octet that was not sent.
    pub(crate) fn first_octet(&self) -> Option<Message> {
        let mut octet = self.unsent.as_ref()?.try_clone().ok()?;
        octet.truncate(1);
        Some(octet)
    }

    /// Lets go of what lies before `una`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: Seq) {
        while let Some(piece) = self.pieces.front()
            && piece.end().at_or_before(una)
        {
            self.pieces.pop_front();
        }
    }

    /// Whether there is so much room that somebody who found too little is to be told.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_wanted && self.space() >= self.buffer / 2
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        self.unsent = None;
        self.pushes = 0;
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        if self.pieces.is_empty() && self.pieces.capacity() > 0 {
            self.pieces = VecDeque::new();
        }
    }
}
