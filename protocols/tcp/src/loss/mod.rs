//! Loss recovery: round trip times, outstanding segments, and when to send again.
//!
//! [`Recovery`] is the whole of it for one connection, and all that the send side talks to:
//!
//! - it tells what it sends ([`sent`](Recovery::sent), [`resent`](Recovery::resent)) and asks how
//!   much it may ([`may_send`](Recovery::may_send)) and what is lost
//!   ([`next_lost`](Recovery::next_lost));
//! - it hands in each acknowledgment ([`acknowledge`](Recovery::acknowledge)) and each expiry
//!   ([`on_timer`](Recovery::on_timer));
//! - it keeps one timer at [`timer`](Recovery::timer).
//!
//! Inside stand the outstanding segments ([`Scoreboard`]), the round trip ([`Rtt`]), loss detection
//! by time ([`Rack`], RFC 8985), rate reduction ([`Prr`], RFC 6937), the rate of delivery
//! ([`Rate`]) and the congestion control of the graph's choice.

mod ack;
mod extreme;
mod pacer;
mod prr;
mod rack;
mod rate;
mod recovery;
mod rtt;
mod scoreboard;
mod timer;
mod undo;

#[cfg(test)]
mod tests;

pub use extreme::Extreme;
pub use pacer::Pacer;
pub use prr::Prr;
pub use rack::Rack;
pub use rate::{Rate, RateSample};
pub use recovery::{Ack, Acked, Counters, Due, Full, Lost, Phase, Recovery, Timer};
pub use rtt::Rtt;
pub use scoreboard::{Newly, SackBlock, Scoreboard, Sending};
