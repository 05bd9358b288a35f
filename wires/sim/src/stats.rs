//! Counters of links and of the world.

/// Counters of one link. Deliveries are counted per receiver, everything sent once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames taken from hosts.
    pub sent: u64,
    /// Their octets.
    pub sent_octets: u64,
    /// Frames handed to hosts.
    pub delivered: u64,
    /// Deliveries lost by chance.
    pub lost: u64,
    /// Deliveries made twice by chance.
    pub duplicated: u64,
    /// Deliveries put off by chance (not by jitter).
    pub reordered: u64,
    /// Deliveries with one bit flipped by chance.
    pub corrupted: u64,
    /// Deliveries that a partition prevented.
    pub partitioned: u64,
    /// Frames dropped because a port's queue was full: on the way into the link, or out of a
    /// switch.
    pub queue_full: u64,
    /// Frames dropped because too many were in flight in the whole network.
    pub in_flight_full: u64,
    /// Deliveries dropped because the pool was exhausted.
    pub no_buffers: u64,
    /// Frames for one station that a switch sent to all, not knowing it.
    pub flooded: u64,
    /// Frames that a switch sent nowhere: for a station behind the port that they came from.
    pub filtered: u64,
    /// Frames to a group that a switch which snoops sent to some ports alone, or to none.
    pub snooped: u64,
    /// Frames whose source a switch did not learn, its table being full.
    pub not_learned: u64,
    /// Deliveries to interfaces taken down meanwhile.
    pub gone: u64,
}

impl LinkStats {
    /// The figures with their names, in the order to print them.
    pub fn list(&self) -> [(&'static str, u64); 16] {
        [
            ("sent", self.sent),
            ("octets", self.sent_octets),
            ("delivered", self.delivered),
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
            ("corrupted", self.corrupted),
            ("partitioned", self.partitioned),
            ("queue full", self.queue_full),
            ("in-flight full", self.in_flight_full),
            ("no buffers", self.no_buffers),
            ("flooded", self.flooded),
            ("filtered", self.filtered),
            ("snooped", self.snooped),
            ("not learned", self.not_learned),
            ("gone", self.gone),
        ]
    }
}

/// Counters of the whole world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldStats {
    /// Events: arrivals and wake-ups of hosts for their timers.
    pub events: u64,
    /// Frames handed to hosts.
    pub frames: u64,
    /// Wake-ups of hosts for their timers.
    pub wakeups: u64,
}
