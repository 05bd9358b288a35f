//! Fuzz target: whatever hosts say, in whatever order, and whatever time passes between.

use crate::protocol::{Settings, VipTable};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Answer, Ask, Kernel, Pool, Protocol, ProtocolRef};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::neighbour::{
    Exchanged, Heard, HostAt, HostChanged, RunsVirtual, Say, TakeType, WatchHosts,
};

/// Hosts that it remembers in the target: few, so that they give way too.
const ENTRIES_MAX: usize = 4;
/// How long it remembers them, seconds.
const LIFETIME_S: u64 = 180;

/// Stands for address resolution: counts what is said.
struct Below(Rc<Cell<u64>>);

impl Protocol for Below {
    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(say) = ask.get::<Say>() {
            self.0.set(self.0.get() + 1);
            say.sent = 1;
            return Answer::Answered;
        }
        match ask.get::<TakeType>() {
            Some(_) => Answer::Answered,
            None => ask.answer::<WatchHosts>(|_| ()),
        }
    }
}

/// Stands for a virtual protocol: asks back when it is told of a change, as those do.
struct Watcher(ProtocolRef);

impl Protocol for Watcher {
    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(changed) = ask.get::<HostChanged>() else {
            return Answer::Unknown;
        };
        let asked = RunsVirtual { host: changed.host, address: [2; 6], runs: false };
        assert!(self.0.ask(cx, asked).is_some(), "it always knows");
        Answer::Answered
    }
}

/// Feeds the protocol with what `data` says: hosts that speak, exchanges of addresses, time that
/// passes.
///
/// # Panics
/// If the table outgrows its bound, keeps a host for too long, or contradicts itself.
pub fn fuzz_stack(mut data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool,
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 64,
    });
    let said = Rc::new(Cell::new(0));
    let below = cx.add_protocol("below", "below", Below(Rc::clone(&said)));
    let settings = Settings { entries_max: ENTRIES_MAX, ..Settings::default() };
    let vipadv = crate::add(&cx, "vipadv", below, settings);
    let watcher = cx.add_protocol("watcher", "watcher", Watcher(vipadv.clone()));
    if cx.start().is_err() {
        return;
    }
    let _ = vipadv.ask(&cx, WatchHosts { watcher });
    while let Some((&[operation, host, address], rest)) = data.split_first_chunk() {
        data = rest;
        let (host, address) = (Ipv4::new(10, 0, 0, host % 16), [2, 0, 0, 0, 0, address % 8]);
        let own = Ipv4::new(10, 0, 0, 99);
        match operation & 3 {
            0 => {
                let protocol_type = crate::PROTOCOL_TYPE ^ u16::from(operation >> 7);
                let heard = Heard { protocol_type, host, address };
                let taken = vipadv.ask(&cx, heard).is_some();
                assert_eq!(taken, operation >> 7 == 0, "one type is its own");
            }
            1 => {
                let exchanged = Exchanged { own, host, address };
                let before = said.get();
                let _ = vipadv.ask(&cx, exchanged);
                assert_eq!(said.get(), before + 1, "each exchange is answered once");
            }
            2 => {
                let step = Duration::from_millis(1 << (operation >> 2).min(17));
                cx.set_now(cx.now().after(step));
                cx.run_due();
            }
            _ => drop(vipadv.ask(&cx, HostAt { address, host })),
        }
        check(&cx, &vipadv);
    }
    cx.stop();
}

fn check(cx: &Kernel, vipadv: &ProtocolRef) {
    let asked = VipTable { max: 100, ..VipTable::default() };
    let Some(table) = vipadv.ask(cx, asked) else {
        panic!("the table is not told");
    };
    assert!(table.total <= ENTRIES_MAX, "the table is too large");
    for known in table.hosts {
        let age = cx.now().since(known.heard);
        assert!(age.as_secs() < LIFETIME_S, "a host is kept for too long");
        let (host, address, runs) = (known.host, known.address, false);
        let asked = RunsVirtual { host, address, runs };
        let answer = vipadv.ask(cx, asked);
        assert!(answer.is_some_and(|a| a.runs), "the table contradicts itself");
    }
}
