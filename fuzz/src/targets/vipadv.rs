//! The protocol that tells of virtual protocols: whatever hosts say, in whatever order, and
//! whatever time passes between.

use crate::harness::{Rig, Script, integers};
use core::cell::Cell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::Answer;
use xk_core::HostAddr;
use xk_kit::net::neighbour::{
    ArpExchange, ArpReply, HostAt, HostChanged, RunsVirtual, SendArpReply, SubscribeType,
    WatchHosts,
};
use xk_testkit::kernel::{Lower, Top};
use xk_vip::vipadv::VipTable;

/// Hosts that it remembers in the target: few, so that they give way too.
const ENTRIES_MAX: usize = 4;
/// Time that it remembers them, in seconds.
const LIFETIME_S: u64 = 180;
/// The protocol type of its packets.
const PROTOCOL_TYPE: u16 = xk_vip::ETHER_BASE;

/// Feeds the protocol with what `data` says: hosts that speak, exchanges of addresses, time that
/// passes. The table stays within its bound, keeps no host for too long, and does not contradict
/// itself.
pub(crate) fn stack(data: &[u8]) {
    let params = integers(&[("entries_max", ENTRIES_MAX as i64)]);
    let rig = Rig::new(Lower::ether([2; 6]), 64, &xk_vip::vipadv::ENTRY, &params);
    // The lower layer stands for address resolution: it counts what is said.
    let said = Rc::new(Cell::new(0));
    let counted = Rc::clone(&said);
    rig.bottom.on_ask(Rc::new(move |_, ask| {
        if let Some(say) = ask.get::<SendArpReply>() {
            counted.set(counted.get() + 1);
            say.sent = 1;
        } else if ask.get::<SubscribeType>().is_none() && ask.get::<WatchHosts>().is_none() {
            return Answer::Unknown;
        }
        Answer::Answered
    }));
    // The upper one stands for a virtual protocol: told of a change, it asks back.
    let watcher = Top::add(&rig.cx, "watcher");
    let layer = rig.layer.clone();
    watcher.on_ask(Rc::new(move |cx, ask| {
        let Some(changed) = ask.get::<HostChanged>() else {
            return Answer::Unknown;
        };
        let asked = RunsVirtual { host: changed.host, address: [2; 6], runs: false };
        assert!(layer.ask(cx, asked).is_some(), "it always knows");
        Answer::Answered
    }));
    rig.start();
    let _ = rig.layer.ask(&rig.cx, WatchHosts { watcher: watcher.protocol().clone() });
    let script = Script::new(data);
    while let Some(&[operation, host, address]) = script.take(3).first_chunk() {
        let host = HostAddr::from([10, 0, 0, host % 16]);
        let address = [2, 0, 0, 0, 0, address % 8];
        match operation & 3 {
            0 => {
                let protocol_type = PROTOCOL_TYPE ^ u16::from(operation >> 7);
                let heard = ArpReply { protocol_type, host, address };
                let taken = rig.layer.ask(&rig.cx, heard).is_some();
                assert_eq!(taken, operation >> 7 == 0, "one type is its own");
            }
            1 => {
                let own = HostAddr::from([10, 0, 0, 99]);
                let before = said.get();
                let _ = rig.layer.ask(&rig.cx, ArpExchange { own, host, address });
                assert_eq!(said.get(), before + 1, "each exchange is answered once");
            }
            2 => drop(rig.cx.advance(Duration::from_millis(1 << (operation >> 2).min(17)))),
            _ => drop(rig.layer.ask(&rig.cx, HostAt { address, host })),
        }
        check(&rig);
    }
    rig.stop();
}

fn check(rig: &Rig) {
    let asked = VipTable { max: 100, ..VipTable::default() };
    let table = rig.layer.ask(&rig.cx, asked).expect("the table is told");
    assert!(table.total <= ENTRIES_MAX, "the table is too large");
    for known in table.hosts {
        let age = rig.cx.now().since(known.heard);
        assert!(age.as_secs() < LIFETIME_S, "a host is kept for too long");
        let (host, address, runs) = (known.host, known.address, false);
        let answer = rig.layer.ask(&rig.cx, RunsVirtual { host, address, runs });
        assert!(answer.is_some_and(|a| a.runs), "the table contradicts itself");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_sequence_keeps_the_bounds(octets in prop::collection::vec(any::<u8>(), 0..600)) {
            super::stack(&octets);
        }
    }
}
