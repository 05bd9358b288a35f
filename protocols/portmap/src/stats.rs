//! Counts of requests, for `GETSTAT` (RFC 1833, section 2.2.2).

use crate::universal::Netid;
use crate::wire::{AddressCount, CallCount, Statistics, VERSIONS};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_kit::rpc::onc::ProcedureName;

/// Programs or procedures that are counted apart in each list; those that come later are not in it.
const COUNTED_MAX: usize = 64;

/// The figures of all versions.
#[derive(Default)]
pub(crate) struct Stats(RefCell<[Statistics; VERSIONS.len()]>);

/// A program, its version, and the transport that it was looked for on.
pub(crate) type Asked = (u32, u32, Netid);

impl Stats {
    /// Runs `see` on the figures of a version.
    fn of<T>(&self, version: u32, see: impl FnOnce(&mut Statistics) -> T) -> Option<T> {
        let at = VERSIONS.iter().position(|v| *v == version)?;
        self.0.borrow_mut().get_mut(at).map(see)
    }

    /// A request.
    pub(crate) fn request(&self, version: u32, procedure: u32) {
        self.of(version, |stats| {
            if let Some(count) = stats.requests.get_mut(procedure as usize) {
                *count = count.wrapping_add(1);
            }
        });
    }

    /// A mapping was established, or deleted.
    pub(crate) fn set(&self, version: u32, is_set: bool) {
        self.of(version, |stats| {
            let count = if is_set { &mut stats.set } else { &mut stats.unset };
            *count = count.wrapping_add(1);
        });
    }

    /// An address was asked for in `version`.
    pub(crate) fn address(&self, version: u32, asked: Asked, found: bool) {
        let (program, wanted, netid) = asked;
        self.of(version, |stats| {
            let list = &mut stats.addresses;
            let same = |c: &AddressCount| {
                (c.program, c.version) == (program, wanted) && c.netid == netid.name()
            };
            let at = place(list, same, || AddressCount {
                program,
                version: wanted,
                netid: netid.name().into(),
                ..AddressCount::default()
            });
            if let Some(count) = at {
                let of = if found { &mut count.successes } else { &mut count.failures };
                *of = of.wrapping_add(1);
            }
        });
    }

    /// A procedure was called in `version`.
    pub(crate) fn call(
        &self,
        version: u32,
        (call, tells, netid): (ProcedureName, bool, Netid),
        succeeded: bool,
    ) {
        self.of(version, |stats| {
            let indirect = u32::from(tells);
            let same = |c: &CallCount| {
                (c.program, c.version, c.procedure) == (call.program, call.version, call.procedure)
                    && c.indirect == indirect
                    && c.netid == netid.name()
            };
            let at = place(&mut stats.calls, same, || CallCount {
                program: call.program,
                version: call.version,
                procedure: call.procedure,
                indirect,
                netid: netid.name().into(),
                ..CallCount::default()
            });
            if let Some(count) = at {
                let of = if succeeded { &mut count.successes } else { &mut count.failures };
                *of = of.wrapping_add(1);
            }
        });
    }

    /// All of them.
    pub(crate) fn all(&self) -> [Statistics; VERSIONS.len()] {
        self.0.borrow().clone()
    }
}

/// The entry that is the `same`, or a `new` one while there is room.
fn place<T>(
    list: &mut Vec<T>,
    same: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> Option<&mut T> {
    let at = list.iter().position(same).or_else(|| {
        (list.len() < COUNTED_MAX).then(|| {
            list.push(new());
            list.len() - 1
        })
    })?;
    list.get_mut(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_bounded() {
        let stats = Stats::default();
        for program in 0..1000 {
            stats.address(2, (program, 1, Netid::Udp), false);
            stats.address(2, (0, 1, Netid::Udp), true);
        }
        stats.request(7, 0);
        stats.request(3, 4000);
        stats.set(4, true);
        let [two, three, four] = stats.all();
        assert_eq!(two.addresses.len(), COUNTED_MAX);
        assert_eq!((two.addresses[0].successes, two.addresses[0].failures), (1000, 1));
        assert_eq!(three, Statistics::default());
        assert_eq!((four.set, four.unset), (1, 0));
    }
}
