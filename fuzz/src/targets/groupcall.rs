//! Calls to many: the header, the replies to a call, and the calls that a member executes.

use crate::harness::Script;
use core::time::Duration;
use xk_core::Time;
use xk_groupcall::replies::{Replies, Verdict};
use xk_groupcall::served::{Asked, CALLS_KEPT, OCTETS_KEPT, Served};
use xk_groupcall::wire::{HEADER_OCTETS, Header};
use xk_kit::group::Want;
use xk_kit::rpc::call::BUSY;

/// Reads `data` as a header, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    if let Some(octets) = data.first_chunk::<HEADER_OCTETS>()
        && let Ok(header) = Header::read(octets)
    {
        assert_eq!(header.emit(), *octets, "the header changed");
    }
}

/// Members of a conversation.
const MEMBERS: usize = 4;

/// Lets `data` act as members that call, remind and reply as they like. What is kept of each stays
/// within its share, no reply counts twice, and none is that of another call.
pub(crate) fn calls(data: &[u8]) {
    let script = Script::new(data);
    let want = match script.octet_or_zero() & 3 {
        0 => Want::All,
        1 => Want::Majority,
        _ => Want::Count(script.octet_or_zero()),
    };
    let mut replies = Replies::new(want, (1 << MEMBERS) - 2);
    let (mut served, mut now, mut taken) = (Served::default(), Time::ZERO, 0);
    while let Some(act) = script.octet() {
        let member = act >> 3 & 7;
        match act & 7 {
            0 | 1 => {
                let outcome = if act & 1 == 0 { Ok(member) } else { Err(&BUSY) };
                taken += u32::from(replies.take(member, outcome).is_ok());
            }
            2 => replies.set_gone(script.octet_or_zero().into()),
            3 | 4 => {
                let caller = member % MEMBERS as u8;
                let (number, first) =
                    (script.octet_or_zero().into(), script.octet_or_zero().into());
                if served.begin((caller, u16::from(act >> 7)), number, first) && act & 7 == 3 {
                    let octets = usize::from(script.octet_or_zero()) << 8;
                    served.end(caller, number, (caller, number), octets, now);
                }
            }
            5 => {
                let (number, first) =
                    (script.octet_or_zero().into(), script.octet_or_zero().into());
                if let Asked::Reply(reply) = served.again(member, number, first, now) {
                    assert_eq!(*reply, (member, number), "the reply of another call");
                }
            }
            6 => now = now.after(Duration::from_millis(script.octet_or_zero().into())),
            _ => {
                let next = if act & 8 == 0 { replies.first() } else { replies.take_next() };
                taken -= u32::from(next.is_some());
            }
        }
        assert!(taken < MEMBERS as u32 && replies.missing().count_ones() < MEMBERS as u32);
        let _: Verdict = replies.verdict();
        let (calls, octets) = served.kept();
        let most = OCTETS_KEPT + ((u8::MAX as usize) << 8);
        assert!(
            calls <= MEMBERS * CALLS_KEPT && octets <= MEMBERS * most,
            "what is kept is bounded"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::random::Random;

    #[test]
    fn members_that_act_by_chance_stay_within_bounds() {
        let random = Random::new(1);
        for _ in 0..200 {
            let data: Vec<u8> = (0..600).map(|_| random.next_u32() as u8).collect();
            calls(&data);
            wire(&data);
        }
    }
}
