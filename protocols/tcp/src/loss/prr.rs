//! Proportional rate reduction: what fast recovery may send for what it hears delivered (RFC 6937).

use xk_core::fields;

/// One fast recovery's reckoning, in octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prr {
    threshold: u64,
    /// Outstanding when recovery began (RecoverFS).
    flight: u64,
    delivered: u64,
    out: u64,
    /// Octets that may be in the network now.
    window: u32,
}

fields!(Prr { threshold, flight, delivered, out, window });

impl Prr {
    /// Whether its reckoning is of octets that may have been under way.
    pub(super) fn is_sound(&self) -> bool {
        let most = 1 << 31;
        let all = [self.threshold, self.delivered, self.out];
        (1..=most).contains(&self.flight) && all.iter().all(|octets| *octets <= most)
    }

    /// Recovery begins with `outstanding_octets` sent and not acknowledged, and shall end at
    /// `threshold_octets`.
    #[must_use]
    pub fn new(outstanding_octets: u32, threshold_octets: u32) -> Prr {
        Prr {
            threshold: threshold_octets.into(),
            flight: u64::from(outstanding_octets).max(1),
            delivered: 0,
            out: 0,
            window: 0,
        }
    }

    /// An acknowledgment delivered `delivered_octets`, and `in_flight_octets` are out now. It is a
    /// safe one if it advances and tells of no further loss: only then may slow start make up for
    /// what was lost beyond the reduction.
    pub fn on_ack(&mut self, delivered_octets: u32, in_flight_octets: u32, mss: u32, safe: bool) {
        self.delivered += u64::from(delivered_octets);
        let in_flight = u64::from(in_flight_octets);
        let send = if in_flight > self.threshold {
            // RFC 6937, section 3: the proportional part.
            (self.delivered * self.threshold).div_ceil(self.flight).saturating_sub(self.out)
        } else {
            // The reduction bound: slow start if safe, packet conservation if not.
            let mut limit = self.delivered.saturating_sub(self.out).max(delivered_octets.into());
            if safe {
                limit += u64::from(mss);
            }
            limit.min(self.threshold - in_flight)
        };
        // The first retransmission goes out at once (RFC 6937, section 3).
        let send = if self.out == 0 { send.max(mss.into()) } else { send };
        self.window = u32::try_from(in_flight + send).unwrap_or(u32::MAX);
    }

    /// Lets `octets` go in any case.
    pub fn allow(&mut self, in_flight_octets: u32, octets: u32) {
        self.window = self.window.max(in_flight_octets.saturating_add(octets));
    }

    /// `octets` were sent or resent.
    pub fn on_sent(&mut self, octets: u32) {
        self.out += u64::from(octets);
    }

    /// Octets that may be in the network.
    pub fn window(&self) -> u32 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    /// RFC 6937, section 4, its first example: one of twenty is lost, and for every two that arrive
    /// one goes out. Counting octets, the second whole one is due when four have arrived.
    #[test]
    fn half_the_flight_goes_out_while_the_other_half_arrives() {
        let mut prr = Prr::new(20 * MSS, 10 * MSS);
        let mut in_flight = 19 * MSS;
        let mut sent = [0; 19];
        for sent in &mut sent {
            in_flight -= MSS;
            prr.on_ack(MSS, in_flight, MSS, false);
            while prr.window() >= in_flight + MSS {
                prr.on_sent(MSS);
                in_flight += MSS;
                *sent += 1;
            }
        }
        assert_eq!(&sent[..7], &[1, 0, 0, 1, 0, 1, 0]);
        assert_eq!(in_flight, sent.iter().sum::<u32>() * MSS);
        assert!((9 * MSS..=10 * MSS).contains(&in_flight), "{in_flight}");
    }

    /// RFC 6937, section 4, its second example: sixteen of twenty are lost. What is in flight is
    /// below the target, and grows by slow start only as long as acknowledgments advance without
    /// further losses.
    #[test]
    fn many_losses_are_repaired_by_slow_start_at_most() {
        let mut prr = Prr::new(20 * MSS, 10 * MSS);
        prr.on_ack(MSS, 3 * MSS, MSS, false);
        assert_eq!(prr.window(), 4 * MSS, "as much as arrived");
        prr.on_sent(MSS);
        prr.on_ack(MSS, 3 * MSS, MSS, true);
        assert_eq!(prr.window(), 5 * MSS, "one more than arrived");
        prr.on_sent(2 * MSS);
        prr.on_ack(7 * MSS, 9 * MSS, MSS, true);
        assert_eq!(prr.window(), 10 * MSS, "never beyond the target");
    }

    #[test]
    fn the_first_repair_goes_out_at_once() {
        let mut prr = Prr::new(20 * MSS, 10 * MSS);
        prr.on_ack(0, 19 * MSS, MSS, false);
        assert_eq!(prr.window(), 20 * MSS);
    }
}
