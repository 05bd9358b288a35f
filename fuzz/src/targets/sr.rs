//! Machines of SR: the headers, the order of invocations, and those held.

use crate::harness::Script;
use xk_kit::rpc::invoke::Manner;
use xk_sr::held::{Choice, Held, Invoked, Most};
use xk_sr::ledger::Ledger;
use xk_sr::orders::{EARLY_MAX, Orders};
use xk_sr::wire::{Header, Reply};

/// Reads `data` as a header, a reply and a ledger, writes each again and compares.
pub(crate) fn wire(data: &[u8]) {
    if let Some((octets, ledger)) = data.split_first_chunk::<{ Header::OCTETS }>() {
        let header = Header::parse(octets);
        assert_eq!(header.emit(), *octets, "the header changed");
        if let Some(invoked) = header.invoked() {
            let again = Header::invoke(&invoked, header.destination, header.octets);
            assert_eq!(
                Header { message: header.message, version: header.version, ..again },
                header
            );
        }
        if let Some(read) = Ledger::parse(ledger) {
            assert_eq!(read.emit(), ledger, "the ledger changed");
        }
    }
    if let Some(octets) = data.first_chunk() {
        assert_eq!(Reply::parse(octets).emit(), *octets, "the reply changed");
    }
}

const QUEUED_MAX: usize = 8;

/// Lets `data` act as machines that invoke, in any order, and as guards and servers.
pub(crate) fn machines(data: &[u8]) {
    let script = Script::new(data);
    let most = Most { queued: QUEUED_MAX, of_machine: QUEUED_MAX / 2, results: 1 };
    let (mut orders, mut held) = (Orders::default(), Held::new(0, most));
    let mut waiting = 0usize;
    while let Some(act) = script.octet() {
        let (process, order) =
            ((u16::from(act >> 6), act >> 4 & 3), u32::from(script.octet_or_zero()) << (act & 8));
        match act & 7 {
            0 | 1 => {
                waiting += usize::from(orders.arrive(process, order, order) == Ok(None));
            }
            2 => waiting -= usize::from(orders.done(process, order).is_some()),
            3 => waiting -= usize::from(orders.give_up(|early| *early >= order).is_some()),
            4 | 5 => {
                let (manner, hops, operation) = (Manner::Call, 0, order);
                let (origin, process) = process;
                let invoked =
                    Invoked { manner, origin, process, hops, operation, token: order, order };
                let (queued, all) = held.len();
                if held.add(invoked, act).is_err() {
                    let has_share = origin != 0 && all >= most.of_machine;
                    assert!(queued == QUEUED_MAX || has_share, "there is room");
                }
            }
            6 => {
                let (mut choice, mut last) = (Choice::default(), 0);
                while let Some((number, _, work)) = held.after(last) {
                    choice.hear(number, u32::from(*work) & 0x10 == order & 0x10, (*work).into());
                    last = number;
                }
                if let Some(number) = choice.chosen() {
                    assert!(held.take(number).is_some(), "what is chosen is queued");
                    let answered = held.reply(number).expect("it is executed");
                    held.sent(&answered);
                    held.forward(&answered, 1);
                    assert_eq!(held.answer(number), None, "it is answered once");
                    held.remove(number);
                }
            }
            _ => drop(held.destroy(|operation| operation == order)),
        }
        assert_eq!(orders.early(), waiting, "each that waits is known");
        assert!(orders.early() <= EARLY_MAX);
        assert!(held.len().1 <= QUEUED_MAX, "what is over is forgotten");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::random::Random;

    #[test]
    fn machines_that_act_by_chance_stay_within_bounds() {
        let random = Random::new(1);
        for _ in 0..200 {
            let data: Vec<u8> = (0..600).map(|_| random.next_u32() as u8).collect();
            machines(&data);
            wire(&data);
        }
    }
}
