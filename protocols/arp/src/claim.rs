//! Hosts of ours: probed for, announced and defended (RFC 5227).

use crate::shared::Shared;
use crate::wire::{
    ANNOUNCE_COUNT, ANNOUNCE_INTERVAL_MS, ANNOUNCE_WAIT_MS, DEFEND_INTERVAL_MS, EthAddr, Ipv4,
    PROBE_COUNT, PROBE_INTERVAL_MS_MAX, PROBE_INTERVAL_MS_MIN, PROBE_WAIT_MS, Packet,
    RATE_LIMIT_INTERVAL_MS,
};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::{Kernel, Time};
use xk_kit::control::HostConflict;

/// Largest number of hosts that are ours.
pub const CLAIMS_MAX: usize = 64;

/// Stage of the claim of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Others are asked whether they use it; not ours yet.
    Probing,
    /// Ours; so many announcements are left to send.
    Ours,
    /// Another station uses it; not ours. Tried again later.
    Lost,
}

pub(crate) struct Claim {
    pub(crate) host: Ipv4,
    pub(crate) stage: Cell<Stage>,
    /// Probes or announcements left to send.
    left: Cell<u32>,
    /// Time of its last defence.
    defended: Cell<Option<Time>>,
    timer: Cell<Option<Timer>>,
}

/// All hosts of ours.
#[derive(Default)]
pub(crate) struct Claims(RefCell<Vec<Rc<Claim>>>);

impl Claims {
    pub(crate) fn find(&self, host: Ipv4) -> Option<Rc<Claim>> {
        self.0.borrow().iter().find(|c| c.host == host).cloned()
    }

    /// The first one.
    pub(crate) fn first(&self) -> Option<Ipv4> {
        self.0.borrow().first().map(|c| c.host)
    }

    /// Hosts that are ours by now.
    pub(crate) fn ours(&self) -> Vec<Ipv4> {
        let list = self.0.borrow();
        let ours = list.iter().filter(|c| c.stage.get() == Stage::Ours);
        ours.map(|c| c.host).collect()
    }

    /// Whether requests for it are to be answered.
    pub(crate) fn is_ours(&self, host: Ipv4) -> bool {
        self.find(host).is_some_and(|c| c.stage.get() == Stage::Ours)
    }

    /// Enters a host; `None` if there is no room.
    fn enter(&self, host: Ipv4) -> Option<Rc<Claim>> {
        let mut list = self.0.borrow_mut();
        if list.len() >= CLAIMS_MAX {
            return None;
        }
        let claim = Rc::new(Claim {
            host,
            stage: Cell::new(Stage::Probing),
            left: Cell::new(0),
            defended: Cell::new(None),
            timer: Cell::new(None),
        });
        list.push(Rc::clone(&claim));
        Some(claim)
    }

    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

fn ms(milliseconds: u32) -> Duration {
    Duration::from_millis(u64::from(milliseconds))
}

/// A random time between the two.
fn between(cx: &Kernel, min_ms: u32, max_ms: u32) -> Duration {
    let span = u64::from(max_ms.saturating_sub(min_ms));
    ms(min_ms) + Duration::from_millis(cx.random().below(span + 1))
}

impl Shared {
    /// Makes a host ours; false if it cannot be, or there is no room.
    pub(crate) fn claim(&self, cx: &Kernel, host: Ipv4) -> bool {
        if !is_station(host) || !self.broadcast.is_some() {
            return false;
        }
        if self.claims.find(host).is_some() {
            return true;
        }
        let Some(claim) = self.claims.enter(host) else {
            return false;
        };
        // What was learned of it before belongs to another.
        if let Some(entry) = self.hosts.get(host) {
            self.forget(cx, &entry);
        }
        if self.config.probe {
            self.probe(cx, &claim);
        } else {
            self.announce(cx, &claim);
        }
        true
    }

    /// Begins to probe (RFC 5227, section 2.1.1).
    fn probe(&self, cx: &Kernel, claim: &Claim) {
        claim.stage.set(Stage::Probing);
        claim.left.set(PROBE_COUNT);
        if !self.arm_claim(cx, claim, between(cx, 0, PROBE_WAIT_MS)) {
            self.announce(cx, claim);
        }
    }

    /// The host is ours now: says so, the first of several times (RFC 5227, section 2.3), and asks
    /// for whom others wait.
    fn announce(&self, cx: &Kernel, claim: &Claim) {
        claim.stage.set(Stage::Ours);
        claim.left.set(ANNOUNCE_COUNT);
        self.announce_once(cx, claim);
        self.resume_waiting(cx);
    }

    fn announce_once(&self, cx: &Kernel, claim: &Claim) {
        let packet = Packet::announcement(self.mine.get(), claim.host);
        self.send(cx, EthAddr::BROADCAST, &packet);
        let left = claim.left.get().saturating_sub(1);
        claim.left.set(left);
        if left > 0 {
            // Without a timer the first announcement has to do.
            let _ = self.arm_claim(cx, claim, ms(ANNOUNCE_INTERVAL_MS));
        }
    }

    fn arm_claim(&self, cx: &Kernel, claim: &Claim, delay: Duration) -> bool {
        cx.cancel(claim.timer.take());
        let timer = self.arm(cx, delay, crate::shared::Token::Claim(claim.host));
        claim.timer.set(timer);
        timer.is_some()
    }

    /// A claim's timer went off.
    pub(crate) fn claim_timeout(&self, cx: &Kernel, host: Ipv4) {
        let Some(claim) = self.claims.find(host) else {
            return;
        };
        claim.timer.set(None);
        match (claim.stage.get(), claim.left.get()) {
            (Stage::Probing, 0) => self.announce(cx, &claim),
            (Stage::Probing, left) => {
                let packet = Packet::probe(self.mine.get(), host);
                self.send(cx, EthAddr::BROADCAST, &packet);
                claim.left.set(left - 1);
                let delay = match left {
                    1 => ms(ANNOUNCE_WAIT_MS),
                    _ => between(cx, PROBE_INTERVAL_MS_MIN, PROBE_INTERVAL_MS_MAX),
                };
                if !self.arm_claim(cx, &claim, delay) {
                    self.announce(cx, &claim);
                }
            }
            (Stage::Ours, 0) => {}
            (Stage::Ours, _) => self.announce_once(cx, &claim),
            (Stage::Lost, _) => self.probe(cx, &claim),
        }
    }

    /// Looks whether a packet shows that a host of ours is used by its sender too, and sees to it.
    /// True if so.
    pub(crate) fn find_conflict(&self, cx: &Kernel, packet: &Packet) -> bool {
        let mine = self.mine.get();
        let found = self.claims.find(packet.sender_ip);
        // Another's probe counts as long as we are probing ourselves.
        let found = found.or_else(|| self.claims.find(packet.target_ip));
        let Some(claim) = found else { return false };
        let probing = claim.stage.get() == Stage::Probing;
        if !packet.conflicts_with(mine, claim.host, probing) {
            return false;
        }
        match claim.stage.get() {
            Stage::Probing => {
                claim.stage.set(Stage::Lost);
                // Without a timer it stays lost until it is claimed in another run.
                let _ = self.arm_claim(cx, &claim, ms(RATE_LIMIT_INTERVAL_MS));
                self.resume_waiting(cx);
            }
            Stage::Ours => self.defend(cx, &claim),
            Stage::Lost => {}
        }
        self.conflicts.set(self.conflicts.get() + 1);
        let (host, address) = (claim.host.into(), packet.sender_eth.0);
        for upper in self.uppers() {
            let _ = upper.ask(cx, HostConflict { host, address });
        }
        true
    }

    /// Says again whose host it is, but not too often, so that two stations do not answer each
    /// other without end (RFC 5227, section 2.4, case c: the graph gave the address, so it is never
    /// given up).
    fn defend(&self, cx: &Kernel, claim: &Claim) {
        let now = cx.now();
        let recent = |at: Time| now.since(at) < ms(DEFEND_INTERVAL_MS);
        if claim.defended.get().is_some_and(recent) {
            return;
        }
        claim.defended.set(Some(now));
        let packet = Packet::announcement(self.mine.get(), claim.host);
        self.send(cx, EthAddr::BROADCAST, &packet);
    }
}

/// Whether an address can be one station's: none of 0/8, 127/8, groups, 240/4 (RFC 1122, section
/// 3.2.1.3).
pub(crate) fn is_station(host: Ipv4) -> bool {
    matches!(host.octets()[0], 1..=126 | 128..=223)
}
