//! Enables that several above share: a layer that tells its uppers apart by itself enables below
//! once for each participant.

use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::object::{Enable, OpenError};
use xk_core::{Kernel, Participant, Participants, ProtocolRef, Upper};

/// Largest number of different participants that one layer enables below.
const OFFERS_MAX: usize = 4096;

struct Offer {
    local: Participant,
    below: Enable,
    count: u32,
}

/// The enables that a layer has made on one protocol below.
#[derive(Default)]
pub struct Offers(RefCell<Vec<Offer>>);

impl Offers {
    /// Enables `this` on `lower` with this participant, unless it is already; once more for each
    /// time it is asked for.
    ///
    /// # Errors
    /// What `lower` answers, or [`OpenError::Full`].
    pub fn make(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        this: &ProtocolRef,
        local: &Participant,
    ) -> Result<(), OpenError> {
        if self.is_made_again(local) {
            return Ok(());
        }
        if self.0.borrow().len() >= OFFERS_MAX {
            return Err(OpenError::Full);
        }
        // No borrow is held: the layer below may ask back, and may block.
        let participants = Participants::local(local.clone());
        let below = lower.open_enable(cx, Upper::new(this), participants);
        if self.is_made_again(local) {
            // Another protocol above was faster.
            if let Ok(below) = below {
                lower.open_disable(cx, below);
            }
            return Ok(());
        }
        self.0.borrow_mut().push(Offer { local: local.clone(), below: below?, count: 1 });
        Ok(())
    }

    /// Counts an enable that there is once more.
    fn is_made_again(&self, local: &Participant) -> bool {
        let mut list = self.0.borrow_mut();
        let offer = list.iter_mut().find(|offer| offer.local == *local);
        offer.map(|offer| offer.count += 1).is_some()
    }

    /// Takes one of them back; with the last of a participant its enable on `lower` goes.
    pub fn withdraw(&self, cx: &Kernel, lower: &ProtocolRef, local: &Participant) {
        let mut list = self.0.borrow_mut();
        let Some(at) = list.iter().position(|offer| offer.local == *local) else {
            return;
        };
        let Some(offer) = list.get_mut(at) else {
            return;
        };
        offer.count -= 1;
        if offer.count == 0 {
            let gone = list.swap_remove(at);
            drop(list);
            lower.open_disable(cx, gone.below);
        }
    }

    /// Forgets all; for a protocol's `stop`.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use xk_core::Protocol;
    use xk_core::kernel::Config;
    use xk_core::message::{Pool, PoolConfig};
    use xk_core::random::Random;
    use xk_core::shepherd::{Limits, NoSwitch, Shepherds};

    struct Still;
    impl Protocol for Still {}

    /// Counts what is enabled.
    struct Counts(Cell<u64>, alloc::rc::Rc<Cell<u64>>);
    impl Protocol for Counts {
        fn open_enable(
            &self,
            _: &Kernel,
            _: &ProtocolRef,
            _: Upper<'_>,
            participants: Participants,
        ) -> Result<Enable, OpenError> {
            if participants.iter().all(Participant::is_empty) {
                return Err(OpenError::NotSupported);
            }
            self.0.set(self.0.get() + 1);
            Ok(Enable(self.0.get()))
        }

        fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
            self.1.set(enable.0);
        }
    }

    #[test]
    fn one_enable_for_each_participant() {
        let cx = Kernel::new(Config {
            random: Random::new(1),
            pool: Pool::new(&PoolConfig::default()).expect("a pool"),
            shepherds: Shepherds::new(alloc::boxed::Box::new(NoSwitch), Limits::default()),
            timers_max: 8,
        });
        let gone = alloc::rc::Rc::new(Cell::new(0));
        let lower = cx.add_protocol("c", "c", Counts(Cell::new(0), gone.clone()));
        let this = cx.add_protocol("s", "s", Still);
        let offers = Offers::default();
        let [a, b]: [Participant; 2] = ["port1", "port2"].map(|p| p.parse().expect("one"));
        for local in [&a, &b, &a] {
            assert_eq!(offers.make(&cx, &lower, &this, local), Ok(()));
        }
        offers.withdraw(&cx, &lower, &a);
        assert_eq!(gone.get(), 0, "one more holds it");
        offers.withdraw(&cx, &lower, &a);
        assert_eq!(gone.get(), 1);
        offers.withdraw(&cx, &lower, &a);
        offers.withdraw(&cx, &lower, &b);
        assert_eq!(gone.get(), 2);
        assert_eq!(
            offers.make(&cx, &lower, &this, &Participant::new()),
            Err(OpenError::NotSupported)
        );
    }
}
