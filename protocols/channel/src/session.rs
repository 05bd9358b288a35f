//! Sessions: channels of the client's side, which make calls, and of the server's side, which have
//! them executed.

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod state;

use crate::table::{Key, SERVER_SIDE, Table, count, send_header};
use crate::wire::{HEADER_OCTETS, Header, Kind};
use alloc::rc::Rc;
use core::cell::Cell;
use xk_core::object::{ProtocolId, PushError};
use xk_core::reason::{self, Class, Reason};
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::rpc::retransmit::{AskCopy, CopyState, FreeCopy, LastCopy};

/// A packet of a call that is over.
pub(crate) static LATE: Reason = Reason::new("late packet", Class::Bad);

/// One end of a channel, and the headers that it sends.
pub(crate) struct ChannelEnd {
    pub(crate) table: Rc<Table>,
    pub(crate) key: Key,
    /// The header of every request, or of every reply, but for mark, sequence number and error.
    template: [u8; HEADER_OCTETS],
    /// Name of the copy of the last one in the layer below, or 0.
    kept: Cell<u32>,
}

impl ChannelEnd {
    /// The end of a channel in whose packets `kind` carries a payload.
    pub(crate) fn new(table: &Rc<Table>, key: Key, kind: Kind) -> Self {
        let table = Rc::clone(table);
        let mut end = Self { table, key, template: [0; HEADER_OCTETS], kept: Cell::new(0) };
        end.template = end.header(kind, 0, 0).emit();
        end
    }

    fn header(&self, kind: Kind, sequence: u32, error: u16) -> Header {
        Header {
            kind,
            for_server: self.key.2 & SERVER_SIDE == 0,
            please_ack: kind == Kind::Probe,
            payload: None,
            channel: self.key.2 as u16,
            number: self.key.1,
            sequence,
            error,
            boot: self.table.boot,
        }
    }

    /// Puts the header in front of a request, which bears a ticket, or of a reply.
    ///
    /// # Errors
    /// [`PushError::NoBuffers`].
    #[inline(always)]
    pub(crate) fn put(
        &self,
        message: &mut Message,
        flags: u16,
        sequence: u32,
        ticket: Option<u16>,
    ) -> Result<(), PushError> {
        let fill = |octets: &mut [u8; HEADER_OCTETS]| {
            *octets = self.template;
            octets[..2].copy_from_slice(&flags.to_be_bytes());
            octets[8..12].copy_from_slice(&sequence.to_be_bytes());
            if let Some(ticket) = ticket {
                octets[12..14].copy_from_slice(&ticket.to_be_bytes());
            }
        };
        if message.fill_in_place(fill) {
            return Ok(());
        }
        let mut octets = [0; HEADER_OCTETS];
        fill(&mut octets);
        message.push_array(&octets).map_err(|_| PushError::NoBuffers)
    }

    /// Sends a packet without payload; `error` is a ticket or the code of a refusal.
    #[cold]
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        (lower, from): (&SessionRef, ProtocolId),
        marks: bool,
        (kind, sequence, error): (Kind, u32, u16),
    ) {
        let header = self.header(kind, sequence, error);
        let header = Header { payload: marks.then_some(0), ..header };
        match kind {
            Kind::Probe => count(&self.table.tally.probes),
            Kind::Ack => count(&self.table.tally.acks),
            Kind::Nack if header.for_server => count(&self.table.tally.acks),
            Kind::Nack if error != 0 => count(&self.table.tally.challenges),
            _ => {}
        }
        send_header(cx, lower, from, &header.emit());
    }

    /// Asks the layer below for its name of the copy of what was just sent.
    #[cold]
    fn note_kept(&self, cx: &Kernel, lower: &SessionRef) {
        let kept = lower.ask(cx, LastCopy::default());
        self.kept.set(kept.map_or(0, |kept| kept.ticket));
    }

    /// Releases the copy in the layer below.
    #[cold]
    fn free_kept(&self, cx: &Kernel, lower: Option<&SessionRef>) {
        let ticket = self.kept.replace(0);
        let _ = lower.and_then(|lower| lower.ask(cx, FreeCopy { ticket }));
    }

    /// Whether the layer below has heard the peer ask for pieces since it was last asked.
    fn is_collecting(&self, cx: &Kernel, lower: &SessionRef) -> bool {
        let kept = self.kept.get();
        let asked = (kept != 0).then(|| lower.ask(cx, AskCopy::about(kept))).flatten();
        asked.is_some_and(|asked| asked.state == CopyState::Collecting)
    }
}

/// Takes the header off any packet, and what is behind its payload.
fn take_header(message: &mut Message) -> Result<Header, &'static Reason> {
    // The protocol has brought the header together.
    let octets = message.pop_array::<HEADER_OCTETS>().copied();
    let header = octets.and_then(|octets| Header::parse(&octets).ok());
    let header = header.ok_or(&reason::MALFORMED)?;
    if let Some(len) = header.payload.map(usize::from) {
        if len > message.len() {
            return Err(&reason::BAD_LENGTH);
        }
        message.truncate(len);
    }
    Ok(header)
}
