//! Membership: the octets of a vote, and the agreement, whatever members vote.

use crate::harness::Script;
use xk_core::message::{Pool, PoolConfig};
use xk_kit::group::NodeId;
use xk_membership::agreement::{Agreement, Held, START_BITS, Up};
use xk_membership::wire::{Header, emit, read};

const MEMBERS: usize = 4;
const HELD_MAX: usize = 8;

/// Reads `data` as a vote, which is written again.
pub(crate) fn wire(data: &[u8]) {
    let pool = Pool::new(&PoolConfig::default()).expect("a pool");
    let mut message = pool.copy_from(0, data).expect("a message");
    let Some(header) = message.pop_array().map(Header::parse) else {
        return;
    };
    if let Some(roll) = read(header, &message) {
        assert_eq!(emit(header.kind, &roll), data, "a vote is written as it was read");
    }
}

/// Lets `data` act on the agreement of four members: each octet of a step says what comes, those
/// behind it the vote.
pub(crate) fn agreement(data: &[u8]) {
    let mut agreement = Agreement::new(MEMBERS, 0, HELD_MAX);
    let mut sent = [0_u32; MEMBERS];
    let script = Script::new(data);
    while let Some((act, octets)) = script.step() {
        let from = usize::from(act >> 4) % MEMBERS;
        let before = agreement.members();
        match act & 3 {
            0 => {
                let _ = agreement.suspect((act >> 4).into());
            }
            1 => {
                let number =
                    |octet: &u8| u64::from(*octet >> 4) << START_BITS | u64::from(*octet & 15);
                let roll: Vec<u64> = octets.iter().map(number).collect();
                let own = agreement.unsaid().map(<[u64]>::to_vec);
                let roll = own.filter(|_| act & 4 != 0).unwrap_or(roll);
                sent[from] += 1;
                let place = (sent[from], sent.iter().sum());
                let _ = agreement.vote(from, &roll, place, sent.to_vec());
            }
            2 => match octets.first() {
                Some(start) => drop(agreement.admit(from, (*start).into())),
                None if from != 0 => agreement.leave(from),
                None => agreement.hello(from),
            },
            _ => {
                sent[from] += 1;
                let id = NodeId { sender: from as u8, seq: sent[from] };
                let _ = agreement.take(Held { id, is_null: act & 4 != 0, body: () });
            }
        }
        assert!(agreement.members().count_ones() >= agreement.quorum(), "enough are in");
        assert!(before & 1 == agreement.members() & 1, "none removes itself");
        if act & 8 != 0 {
            while let Some(up) = agreement.next() {
                let Up::Message(held) = up else { continue };
                assert!(held.id.seq <= sent[usize::from(held.id.sender)], "what was taken");
            }
            assert!(agreement.waiting() <= HELD_MAX, "what is held back is bounded");
        }
    }
}
