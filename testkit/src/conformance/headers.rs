//! Headers as data ([`xk_kit::net::template`]): what a session says of its headers is what it does.

use super::{Fixture, Verdict, World};
use crate::kernel::{Sent, octets};
use xk_core::SessionRef;
use xk_kit::Checksum;
use xk_kit::control::max_packet;
use xk_kit::net::template::{Check, HeaderField, Headers, OCTETS_MAX, Template};
use xk_kit::wire::offload::TransportChecksum;

/// The law, as [`super::LAWS`] has it.
pub const NAME: &str = "headers are as they are told";
/// The largest message tried, in octets.
const TRIED_MAX: usize = 1400;

/// Every message that a session sends fits the template of what it sends, and none that is altered
/// where the template says that all are alike, or in a length; checksums lie where it says. Every
/// message that arrives for the session at the other end fits its template of arrivals; one that is
/// altered so that it does not, all checksums right, does not arrive there.
///
/// # Panics
/// If the law is broken.
pub fn are_as_told(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("it stands on nothing of the graph");
    }
    let world = World::new(fixture);
    let session = world.converse();
    drop(world.send(&session, &super::messages::pattern(64, 1)));
    let other = world.end().top.take_opened().pop().map(|(session, _)| session);
    if let Some(other) = &other {
        // A session that a message made may find its way down with what it sends.
        let _ = other.push(&world.cx, world.cx.message(&super::messages::pattern(64, 2)));
        world.exchange();
    }
    let lower = world.capture(&session).session;
    let Some(sent) = Headers::of(&world.cx, &session).map(|headers| headers.sent) else {
        return Verdict::Skipped("it does not say what its headers are like");
    };
    let room = sent.octets_max().saturating_sub(sent.octets().len());
    let room = room.min(max_packet(&world.cx, &session, u32::MAX) as usize).min(TRIED_MAX);
    let mut seen = 0;
    for size in [0, 1, 2, 45, 46, 47, 63, 64, 65, 300, room] {
        if !(fixture.message_octets_min()..=room).contains(&size) {
            continue;
        }
        for frame in push(&world, &session, size) {
            if frame.session == lower {
                holds_sent(&sent, &frame);
                if let Some(other) = &other {
                    holds_received(&world, other, &frame);
                }
                seen += 1;
            }
            world.inject(&world.a, &world.b, frame);
        }
        world.exchange();
    }
    let least = fixture.message_octets_min();
    assert!(
        seen > 0 || room < least,
        "law 14: messages of {least} to {room} octets leave, {sent:?}"
    );
    Verdict::Holds
}

/// Frames that leave A for a message of `size` octets.
fn push(world: &World<'_>, session: &SessionRef, size: usize) -> Vec<Sent> {
    let message = world.cx.message(&super::messages::pattern(size, 3));
    session.push(&world.cx, message).expect("law 5: a session that sent once sends again");
    world.cross();
    world.a.bottom.take_sent()
}

fn admits(template: &Template, frame: &[u8]) -> bool {
    Check::new(template).admits(&frame[..frame.len().min(OCTETS_MAX)], frame.len())
}

/// A frame of which each bit that is alike is turned, and each length is too long.
fn altered<'t>(template: &'t Template, frame: &'t [u8]) -> impl Iterator<Item = Vec<u8>> + 't {
    let mask = template.mask();
    let bits = (0..8 * mask.len()).filter(move |bit| mask[bit / 8] >> (bit % 8) & 1 == 1);
    let bits = bits.map(|bit| {
        let mut frame = frame.to_vec();
        frame[bit / 8] ^= 1 << (bit % 8);
        frame
    });
    let lengths = template.fields().iter().filter_map(|(at, field)| match field {
        HeaderField::Length { .. } => Some(usize::from(*at)),
        _ => None,
    });
    let longer = lengths.map(|at| {
        let mut frame = frame.to_vec();
        frame[at..at + 2].fill(0xff);
        frame
    });
    bits.chain(longer)
}

/// The sum over what a checksum field covers, the field included, and whether there is one.
fn sum_over(field: HeaderField, at: u8, frame: &[u8]) -> Option<(usize, Checksum)> {
    let mut sum = Checksum::new();
    match field {
        HeaderField::HeaderSum { from, octets } => {
            sum.add(&frame[from.into()..][..octets.into()]);
        }
        HeaderField::Sum { from, pseudo } => {
            let covered = &frame[from.into()..];
            sum = Checksum::resume(pseudo);
            sum.add_u32(covered.len() as u32);
            sum.add(covered);
        }
        _ => return None,
    }
    Some((at.into(), sum))
}

fn holds_sent(sent: &Template, frame: &Sent) {
    let is_left = frame.message.attribute::<TransportChecksum>().is_some();
    let frame = octets(&frame.message);
    let front = &frame[..frame.len().min(64)];
    assert!(admits(sent, &frame), "law 14: {front:02x?} was sent, of {sent}");
    for altered in altered(sent, &frame) {
        assert!(!admits(sent, &altered), "law 14: {altered:02x?} was not sent, of {sent}");
    }
    for (at, field) in sent.fields() {
        if let Some((at, sum)) = sum_over(*field, *at, &frame) {
            let is_none = frame[at..at + 2] == [0, 0];
            assert!(
                is_left || is_none || sum.is_valid(),
                "law 14: the checksum at {at} of {front:02x?}"
            );
        }
    }
}

/// Makes the checksums of a frame right, the inner ones first.
fn seal(template: &Template, frame: &mut [u8]) {
    for (at, field) in template.fields().iter().rev() {
        if sum_over(*field, *at, frame).is_some() {
            let at = usize::from(*at);
            frame[at..at + 2].fill(0);
            let sum = sum_over(*field, at as u8, frame).map_or(0, |(_, sum)| sum.finish());
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

fn holds_received(world: &World<'_>, session: &SessionRef, frame: &Sent) {
    let given = octets(&frame.message);
    let again = |octets: &[u8]| {
        drop(world.end().top.take_received());
        let message = world.cx.message(octets);
        let (session, (peer, selector)) = (frame.session.clone(), (frame.peer, frame.selector));
        world.inject(&world.a, &world.b, Sent { session, peer, selector, message });
        world.cross();
        drop(world.a.bottom.take_sent());
        drop(world.b.bottom.take_sent());
        world.end().top.take_received()
    };
    let received = Headers::of(&world.cx, session).map(|headers| headers.received);
    let received = received.expect("law 14: what one end says of its headers the other says, too");
    assert!(admits(&received, &given), "law 14: {given:02x?} arrives, of {received}");
    for mut altered in altered(&received, &given) {
        assert!(!admits(&received, &altered), "law 14: {altered:02x?} is not of {received}");
        seal(&received, &mut altered);
        let taken = again(&altered);
        let is_taken = taken.iter().any(|got| got.session == *session);
        assert!(!is_taken, "law 14: {altered:02x?} arrives, not of {received}");
    }
}
