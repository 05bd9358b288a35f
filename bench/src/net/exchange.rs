//! The exchange between the two ends, over anything that carries messages.

use super::endpoint::{Endpoint, Task};
use super::endpoint::{failed, ready};
use crate::case::Trouble;
use crate::stopwatch::clock_ns;
use serde_json::{Value, json};
use std::io;
use std::time::{Duration, Instant};
use xk_run::interrupt_unsafe::is_requested;

/// Something that carries messages to one peer and back.
pub(super) trait Line {
    /// Takes a message to send. False if there is no room now; it may be offered again after
    /// [`Line::flush`].
    ///
    /// # Errors
    /// It will never go.
    fn send(&mut self, message: &[u8]) -> io::Result<bool>;

    /// Sees that what was taken goes out.
    ///
    /// # Errors
    /// It does not.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Shows what has arrived and gives how many messages. A line that spins comes back at once if
    /// there are none, another waits for some, but no longer than [`WAIT`], and not beyond a
    /// signal.
    ///
    /// # Errors
    /// Nothing more will come.
    fn receive(&mut self, each: impl FnMut(&[u8])) -> io::Result<usize>;

    /// Sends back the last of what has arrived, by way of `held` and no more than its room, and
    /// gives how many messages came.
    ///
    /// # Errors
    /// As for the parts.
    fn answer(&mut self, held: &mut [u8]) -> io::Result<usize> {
        let mut octets = 0;
        let count = self.receive(|message| {
            octets = message.len().min(held.len());
            held[..octets].copy_from_slice(&message[..octets]);
        })?;
        if count > 0 {
            self.send(&held[..octets])?;
            self.flush()?;
        }
        Ok(count)
    }
}

/// Longest time that a sleeping line waits.
pub(super) const WAIT: Duration = Duration::from_millis(50);
/// Longest time to an answer, and to the first message.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Longest time to the first arrival: an ARP request or a SYN that gets lost is repeated after a
/// second, and then after more.
const PATIENCE_FIRST: Duration = Duration::from_secs(5);
/// From one try to reach the peer to the next, at the beginning.
pub(super) const KNOCK: Duration = Duration::from_millis(20);
/// Looks for an arrival from one look at the clock to the next.
const LOOKS: u32 = 256;
/// Round trips of one round at most.
pub(super) const TRIPS_MAX: usize = 1 << 18;
/// Messages sent or received from one look at the clock to the next.
pub(super) const BURST: usize = 32;
/// The longest message, in octets.
pub(super) const OCTETS_MAX: usize = 1 << 16;
/// Share of the time that goes by before anything counts: one of so many.
const WARM: u32 = 5;

/// Runs one end over a line.
///
/// # Errors
/// What the line says, or that no answer comes.
pub(super) fn run(end: &Endpoint, mut line: impl Line) -> Result<Value, Trouble> {
    ready();
    match end.task {
        Task::Ask => ask(end, &mut line),
        Task::Answer => answer(&mut line, OCTETS_MAX),
        Task::Acknowledge => answer(&mut line, 1),
        Task::Send => send(end, &mut line),
        Task::Receive => receive(end, &mut line),
        Task::Connect | Task::Accept | Task::Call | Task::Execute => {
            Err(Trouble::Failed("datagrams have neither connections nor calls".into()))
        }
    }
}

/// The times of round trips.
pub(super) struct Trips {
    begun: Instant,
    last: Instant,
    warm: Duration,
    time: Duration,
    ns: Vec<u32>,
}

impl Trips {
    pub(super) fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self { begun: now, last: now, warm: time / WARM, time, ns: Vec::with_capacity(TRIPS_MAX) }
    }

    /// The first answer has come.
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
        self.last = self.begun;
    }

    /// One more round trip is over. False if it was the last.
    pub(super) fn note(&mut self) -> bool {
        let now = Instant::now();
        let trip = now.duration_since(self.last);
        self.last = now;
        let since = now.duration_since(self.begun);
        if since >= self.warm {
            self.ns.push(u32::try_from(trip.as_nanos()).unwrap_or(u32::MAX));
        }
        since < self.warm + self.time && self.ns.len() < TRIPS_MAX
    }

    /// Returns the result, without the time of reading the clock once a trip.
    pub(super) fn result(mut self) -> Value {
        self.ns.sort_unstable();
        let clock = clock_ns();
        let at = |share: f64| {
            let place = (self.ns.len().saturating_sub(1) as f64 * share) as usize;
            self.ns.get(place).map(|ns| (f64::from(*ns) - clock).max(0.0))
        };
        let whole: f64 = self.ns.iter().map(|ns| f64::from(*ns)).sum();
        let mean = whole / self.ns.len() as f64 - clock;
        json!({ "p50": at(0.5), "p99": at(0.99), "mean": mean, "trips": self.ns.len(), "ns": whole })
    }
}

/// Every message begins with a number; an answer with another number is one that was given up.
fn ask(end: &Endpoint, line: &mut impl Line) -> Result<Value, Trouble> {
    let broken = failed("while asking");
    let mut message = vec![0x5a; end.octets.max(1)];
    let mut trips = Trips::new(end.time);
    let mut number = 0;
    message[0] = number;
    knock(line, &message)?;
    trips.begin();
    loop {
        number = number.wrapping_add(1);
        message[0] = number;
        if !line.send(&message).map_err(&broken)? {
            return Err(Trouble::Failed("no room for one message".into()));
        }
        line.flush().map_err(&broken)?;
        await_answer(line, number, ANSWER_TIME_MAX)?;
        if !trips.note() || is_requested() {
            return Ok(trips.result());
        }
    }
}

/// Sends the first message again and again until it is answered.
fn knock(line: &mut impl Line, message: &[u8]) -> Result<(), Trouble> {
    let broken = failed("at the beginning");
    let begun = Instant::now();
    loop {
        let _ = line.send(message).map_err(&broken)?;
        line.flush().map_err(&broken)?;
        let answer = await_answer(line, message[0], KNOCK);
        if answer.is_ok() || begun.elapsed() > ANSWER_TIME_MAX {
            return answer;
        }
    }
}

fn await_answer(line: &mut impl Line, number: u8, limit: Duration) -> Result<(), Trouble> {
    let mut begun = None;
    loop {
        for _ in 0..LOOKS {
            let mut found = false;
            let each = |octets: &[u8]| found |= octets.first() == Some(&number);
            let count = line.receive(each).map_err(failed("while waiting"))?;
            if found {
                return Ok(());
            }
            if count == 0 {
                std::hint::spin_loop();
            }
            if count > 0 || is_requested() {
                break;
            }
        }
        let begun = *begun.get_or_insert_with(Instant::now);
        if begun.elapsed() > limit || is_requested() {
            return Err(Trouble::Failed(format!("no answer within {limit:?}")));
        }
    }
}

/// Sends back so many octets of what comes, at most.
fn answer(line: &mut impl Line, octets_max: usize) -> Result<Value, Trouble> {
    let mut held = vec![0; octets_max];
    while !is_requested() {
        line.answer(&mut held).map_err(failed("while answering"))?;
    }
    Ok(json!({}))
}

/// Number of messages sent, and their rate.
pub(super) fn sent(messages: u64, time: Duration) -> Value {
    json!({ "sent": messages, "ns": time.as_nanos() as f64 })
}

/// Sends as fast as it can until told to end; each message begins with its number.
fn send(end: &Endpoint, line: &mut impl Line) -> Result<Value, Trouble> {
    let broken = failed("while sending");
    let mut message = vec![0x5a; end.octets.max(8)];
    // The first one finds the way: neighbours are looked for on its behalf.
    message[..8].copy_from_slice(&0_u64.to_le_bytes());
    let _ = line.send(&message).map_err(&broken)?;
    line.flush().map_err(&broken)?;
    std::thread::sleep(KNOCK);
    let mut number: u64 = 1;
    let begun = Instant::now();
    while !is_requested() && begun.elapsed() < end.time * 2 + ANSWER_TIME_MAX {
        // A receiver that has seen enough may have taken the device with it before the signal came.
        let Ok(count) = send_some(line, &mut message, number) else {
            break;
        };
        number += count;
    }
    Ok(sent(number - 1, begun.elapsed()))
}

/// Sends a burst and answers how many went.
fn send_some(line: &mut impl Line, message: &mut [u8], from: u64) -> io::Result<u64> {
    let mut count = 0;
    while count < BURST as u64 {
        message[..8].copy_from_slice(&(from + count).to_le_bytes());
        if !line.send(message)? {
            break;
        }
        count += 1;
    }
    line.flush()?;
    Ok(count)
}

/// The time in which arrivals count: it begins a while after the first.
#[derive(Default)]
pub(super) struct Window {
    time: Duration,
    messages: u64,
    number: u64,
    first: Option<Duration>,
    from: Option<(Duration, u64, u64)>,
    end: Option<(Duration, u64, u64)>,
}

impl Window {
    pub(super) fn new(time: Duration) -> Self {
        Self { time, ..Self::default() }
    }

    /// A message has come.
    #[inline]
    pub(super) fn saw(&mut self, message: &[u8]) {
        if let Some(number) = message.first_chunk() {
            self.saw_number(u64::from_le_bytes(*number));
        }
    }

    /// A message with this number has come.
    #[inline]
    pub(super) fn saw_number(&mut self, number: u64) {
        self.messages += 1;
        self.number = self.number.max(number);
    }

    /// So many octets of a stream have come.
    #[inline]
    pub(super) fn saw_octets(&mut self, octets: u64) {
        self.messages += octets;
        self.number = self.messages;
    }

    /// Whether what comes counts by now.
    #[inline]
    pub(super) fn measures(&self) -> bool {
        self.from.is_some()
    }

    /// Looks at the clock. True if the time is over.
    pub(super) fn look(&mut self, now: Duration) -> bool {
        if self.number == 0 {
            return now > PATIENCE_FIRST;
        }
        let first = *self.first.get_or_insert(now);
        let mark = (now, self.messages, self.number);
        if now < first + self.time / WARM {
            return false;
        }
        let (from, messages, _) = *self.from.get_or_insert(mark);
        let came = self.messages > messages || now > from + ANSWER_TIME_MAX;
        if now < from + self.time || !came {
            return false;
        }
        self.end = Some(mark);
        true
    }

    /// Number of messages received, and their rate.
    pub(super) fn result(&self) -> Result<Value, Trouble> {
        let (Some(from), Some(end)) = (self.from, self.end) else {
            return Err(Trouble::Failed(match self.messages {
                0 => format!("nothing came within {PATIENCE_FIRST:?}"),
                n => format!("only {n} messages came"),
            }));
        };
        let ns = (end.0 - from.0).as_nanos() as f64;
        let (messages, numbers) = (end.1 - from.1, end.2 - from.2);
        let lost = 1.0 - messages as f64 / (numbers.max(1)) as f64;
        Ok(json!({ "messages": messages, "ns": ns, "lost": lost.clamp(0.0, 1.0) }))
    }
}

fn receive(end: &Endpoint, line: &mut impl Line) -> Result<Value, Trouble> {
    let mut window = Window::new(end.time);
    let begun = Instant::now();
    loop {
        for _ in 0..BURST {
            let count = line.receive(|octets| window.saw(octets));
            if count.map_err(failed("while receiving"))? == 0 {
                std::hint::spin_loop();
                break;
            }
        }
        if window.look(begun.elapsed()) || is_requested() {
            return window.result();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_what_came_within_it() {
        let ms = Duration::from_millis;
        let mut window = Window::new(ms(100));
        assert!(!window.look(ms(1)), "nothing has come yet");
        // Ten a millisecond, of which every second is lost.
        for time in 1..=400 {
            for n in 0..10 {
                window.saw(&u64::to_le_bytes(time * 20 + 2 * n));
            }
            if window.look(ms(time)) {
                break;
            }
        }
        let found = window.result().unwrap();
        assert_eq!(found["messages"], 1000);
        assert_eq!(found["ns"], 1e8);
        assert_eq!(found["lost"], 0.5);
    }

    #[test]
    fn a_window_to_which_nothing_comes_ends() {
        let mut window = Window::new(Duration::from_millis(100));
        assert!(window.look(PATIENCE_FIRST * 2));
        assert!(window.result().is_err());
    }

    #[test]
    fn trips_end_with_their_time() {
        let mut trips = Trips::new(Duration::from_millis(5));
        trips.begin();
        while trips.note() {}
        let found = trips.result();
        assert!(found["trips"].as_u64().unwrap() > 0);
        assert!(found["p99"].as_f64() >= found["p50"].as_f64());
    }
}
