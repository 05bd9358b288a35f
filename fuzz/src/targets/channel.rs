//! CHANNEL: the codec, and the layer between two others, where no call may be executed twice.

use crate::harness::{Rig, Script, integers, number};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeSet;
use std::rc::Rc;
use xk_channel::wire::{HEADER_OCTETS, Header, Kind};
use xk_core::control::ListSessions;
use xk_core::{Part, Participants, SessionRef};
use xk_kit::rpc::call::BAD_ARGUMENTS;
use xk_kit::rpc::incarnation::{FIRST, TICKET};
use xk_testkit::kernel::{Lower, Top};

/// Parses `data` as a packet, writes its header again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Some((octets, _)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    if let Ok(header) = Header::parse(octets) {
        assert_eq!(header.emit(), *octets, "the header changed");
    }
}

/// Largest number of channels.
const CHANNELS_MAX: usize = 6;

/// Takes `data` as steps of four octets: a kind, a channel, a number, and how. A step lets a packet
/// arrive, of a client that knows its ticket or not, or time pass, or the client makes a call. No
/// call is executed twice, and the bound on channels holds.
pub(crate) fn stack(data: &[u8]) {
    let params = integers(&[("channels_max", CHANNELS_MAX as i64), ("hosts_max", 2)]);
    let rig = Rig::new(Lower::link(1500), 64, &xk_channel::ENTRY, &params);
    number(&rig.cx, "top", "channel", 7);
    let top = Top::add(&rig.cx, "top");
    top.forget(true);
    // Requests name themselves in their first octets.
    let executed = RefCell::<BTreeSet<[u8; 8]>>::default();
    top.on_serve(Some(Rc::new(move |_, _, request| {
        let name = request.peek::<8>().copied().ok_or(&BAD_ARGUMENTS)?;
        let is_first = executed.borrow_mut().insert(name);
        assert!(is_first, "a call was executed twice: {name:?}");
        Ok(request)
    })));
    // The ticket of the latest challenge.
    let ticket = Rc::new(Cell::new(0));
    let seen = Rc::clone(&ticket);
    rig.bottom.keep(false);
    rig.bottom.on_push(Rc::new(move |_, message| {
        if let Some(Ok(header)) = message.peek::<HEADER_OCTETS>().map(Header::parse)
            && header.kind == Kind::Nack
            && !header.for_server
            && header.error != 0
        {
            seen.set(header.error);
        }
    }));
    rig.start();
    let any = Participants::local(Part::Any);
    assert!(top.enable(&rig.cx, &rig.layer, any).is_ok(), "the number is free");
    let own = top.open(&rig.cx, &rig.layer, Participants::default()).ok();
    let script = Script::new(data);
    while let Some(step) = script.take(4).first_chunk() {
        act(&rig, own.as_ref(), ticket.get(), *step);
        let list = ListSessions::first(0);
        let total = rig.layer.ask(&rig.cx, list).map_or(0, |list| list.total);
        assert!(total <= CHANNELS_MAX, "channels are bounded");
    }
    drop(own);
    rig.stop();
}

fn act(rig: &Rig, own: Option<&SessionRef>, ticket: u16, [kind, channel, sequence, how]: [u8; 4]) {
    let kind = match kind % 9 {
        0 => {
            rig.cx.advance(Duration::from_millis(50) * u32::from(how));
            return;
        }
        1 => {
            // No shepherd can wait here: the call fails once its request has gone.
            if let (Some(own), Some(request)) = (own, rig.message(&[how; 8], usize::MAX)) {
                drop(own.call(&rig.cx, request));
            }
            return;
        }
        2 => Kind::Probe,
        3 => Kind::Ack,
        4 => Kind::Nack,
        5 => Kind::Reply,
        6 => Kind::Refusal,
        _ => Kind::Request,
    };
    let for_server = match kind {
        Kind::Request => true,
        Kind::Reply | Kind::Refusal => false,
        _ => how & 1 != 0,
    };
    let ticket = match how >> 1 & 3 {
        0 => 0,
        1 => ticket,
        2 => ticket | FIRST,
        _ => u16::from(how) << 8,
    };
    let header = Header {
        kind,
        for_server,
        please_ack: kind == Kind::Probe || how & 8 != 0 && !matches!(kind, Kind::Ack | Kind::Nack),
        payload: (how & 16 != 0).then_some(how >> 5),
        channel: u16::from(channel % 16),
        number: if how & 32 != 0 { 7 } else { 7 + u32::from(how >> 7) },
        sequence: u32::from(sequence),
        error: ticket,
        // One incarnation: the numbers of another would name other calls.
        boot: 77,
    };
    // A client takes a number again only if the server has forgotten it, and then with another
    // ticket.
    let (at, number) = (header.channel.to_be_bytes(), header.sequence.to_be_bytes());
    let name = [&at[..], &number, &(ticket & TICKET).to_be_bytes()].concat();
    rig.arrive(None, &[&header.emit()[..], &name].concat());
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::random::Random;

    #[test]
    fn no_script_executes_a_call_twice() {
        let random = Random::new(1);
        for _ in 0..500 {
            let mut script: Vec<u8> = Vec::new();
            for _ in 0..400 {
                let word = random.next_u32().to_be_bytes();
                // Few channels and numbers, so that many are duplicates.
                script.extend([word[0], word[1] % 9, word[2] % 24, word[3]]);
            }
            stack(&script);
            wire(&script);
        }
    }
}
