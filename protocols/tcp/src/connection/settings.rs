//! Settings of connections, with their usual values.

use crate::congestion::Name;
use core::time::Duration;
use xk_core::fields;
use xk_kit::net::stream::{KeepAlive, StreamSetting};

/// Octets of the smallest and the largest buffer that can be set.
pub const BUFFER_MIN: u32 = 2048;
/// See [`BUFFER_MIN`].
pub const BUFFER_MAX: u32 = 1 << 30;
/// Octets of data in the smallest segment that can be set, and that a peer or router can push us
/// down to: less would be an attack (RFC 9293, section 3.7.1).
pub const SEGMENT_MIN: u16 = 64;

/// The shortest silence before a probe, and between two: as short as socket options can
/// say. A program that is not trusted may set it.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(1);
/// The shortest user timeout; less that is asked for is raised to it.
const USER_TIMEOUT_MIN: Duration = Duration::from_millis(10);

/// The bits of a class of traffic that are ECN's (RFC 3168, section 5).
const ECN_BITS: u8 = 3;

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Data in a segment at most, in octets, in either direction.
    pub segment_max: u16,
    /// The receive buffer at first, in octets.
    pub receive_buffer: u32,
    /// The receive buffer at most, in octets.
    pub receive_buffer_max: u32,
    /// The send buffer at first, in octets.
    pub send_buffer: u32,
    /// The send buffer at most, in octets.
    pub send_buffer_max: u32,
    /// Octets that may wait to be sent before the sender is held back.
    pub unsent_max: u32,
    /// Acknowledge at once what is not answered as a rule, at the beginning and behind a pause.
    pub quick_acks: bool,
    /// Send small segments at once.
    pub no_delay: bool,
    /// Hold back what fills no segment.
    pub cork: bool,
    /// Probe a silent peer.
    pub keep_alive: Option<KeepAlive>,
    /// Time that octets may stay unacknowledged; [`USER_TIMEOUT`](Self::USER_TIMEOUT) if `None`.
    pub user_timeout: Option<Duration>,
    /// The application has set that itself: then the peer's does not count (CHANGEABLE of RFC 5482,
    /// section 3.1).
    pub is_timeout_own: bool,
    /// Announce the user timeout, and heed the peer's (ENABLED of RFC 5482, section 3.1).
    pub announce_user_timeout: bool,
    /// The receiver tells what it has consumed.
    pub manual_window: bool,
    /// The hops that packets may go; 0 for as many as usual.
    pub hops: u8,
    /// The class of traffic of packets, if it is not the usual one.
    pub class: Option<u8>,
    /// Bounds the time that the peer has to end its direction of a connection that is not held any
    /// more.
    pub orphan_timeout: Duration,
    /// Offer window scaling (RFC 7323, section 2).
    pub window_scale: bool,
    /// Offer timestamps (RFC 7323, section 3).
    pub timestamps: bool,
    /// Offer SACK (RFC 2018).
    pub sack: bool,
    /// Offer ECN (RFC 3168).
    pub ecn: bool,
    /// Offer accurate feedback of marks (RFC 9768), and ECN where the peer knows no other.
    pub accurate_ecn: bool,
    /// Open fast where the peer has given a cookie, and ask for one (RFC 7413).
    pub fast_open: bool,
    /// The congestion control, by name.
    pub congestion: Name,
    /// Time that an acknowledgement may wait for another (RFC 9293, section 3.8.6.3: less than half
    /// a second).
    pub delayed_ack: Duration,
    /// Time that a connection stays in TIME-WAIT: twice a segment's lifetime.
    pub time_wait: Duration,
    /// Times that a SYN is sent again before the open fails (RFC 9293, section 3.8.3: three minutes
    /// at least).
    pub syn_retries_max: u32,
    /// Forget an octet of some of what is sent again: a planted fault, which builds for tests have.
    pub planted: bool,
}

fields!(Settings {
    segment_max,
    receive_buffer,
    receive_buffer_max,
    send_buffer,
    send_buffer_max,
    unsent_max,
    quick_acks,
    no_delay,
    cork,
    keep_alive,
    user_timeout,
    is_timeout_own,
    announce_user_timeout,
    manual_window,
    hops,
    class,
    orphan_timeout,
    window_scale,
    timestamps,
    sack,
    ecn,
    accurate_ecn,
    fast_open,
    congestion,
    delayed_ack,
    time_wait,
    syn_retries_max,
    planted,
});

impl Settings {
    /// Whether each could have been set.
    pub(super) fn is_sound(&self) -> bool {
        let sizes = BUFFER_MIN..=BUFFER_MAX;
        self.segment_max >= SEGMENT_MIN
            && sizes.contains(&self.receive_buffer_max)
            && self.receive_buffer <= self.receive_buffer_max
            && sizes.contains(&self.send_buffer_max)
            && self.send_buffer <= self.send_buffer_max
            && self.keep_alive.is_none_or(|k| k.idle.min(k.interval) >= KEEP_ALIVE_MIN)
            && self.user_timeout.is_none_or(|time| !time.is_zero())
    }

    /// Time that octets may stay unacknowledged unless set otherwise (RFC 9293, section 3.8.3: R2
    /// of 100 seconds at least).
    pub const USER_TIMEOUT: Duration = Duration::from_secs(300);

    /// Sets one; false if the value is out of bounds.
    pub fn set(&mut self, setting: StreamSetting) -> bool {
        let is_buffer = |octets: u32| (BUFFER_MIN..=BUFFER_MAX).contains(&octets);
        match setting {
            StreamSetting::NoDelay(on) => self.no_delay = on,
            StreamSetting::Cork(on) => self.cork = on,
            StreamSetting::KeepAlive(Some(k)) if k.idle.min(k.interval) < KEEP_ALIVE_MIN => {
                return false;
            }
            StreamSetting::KeepAlive(keep_alive) => self.keep_alive = keep_alive,
            StreamSetting::UserTimeout(Some(time)) if time.is_zero() => return false,
            StreamSetting::UserTimeout(time) => {
                self.user_timeout = time.map(|time| time.max(USER_TIMEOUT_MIN));
                self.is_timeout_own = time.is_some();
            }
            StreamSetting::AnnounceUserTimeout(on) => self.announce_user_timeout = on,
            StreamSetting::ManualWindow(on) => self.manual_window = on,
            StreamSetting::ReceiveBuffer(octets) if is_buffer(octets) => {
                self.receive_buffer_max = octets;
                self.receive_buffer = self.receive_buffer.min(octets);
            }
            StreamSetting::SendBuffer(octets) if is_buffer(octets) => {
                (self.send_buffer, self.send_buffer_max) = (octets, octets);
            }
            StreamSetting::Congestion(name) => {
                let Some(known) = Name::of(&name) else {
                    return false;
                };
                self.congestion = known;
            }
            StreamSetting::FastOpen(on) => self.fast_open = on,
            StreamSetting::SegmentMax(octets) if octets >= SEGMENT_MIN => {
                self.segment_max = octets;
            }
            StreamSetting::UnsentMax(octets) if octets > 0 => self.unsent_max = octets,
            StreamSetting::QuickAcks(on) => self.quick_acks = on,
            StreamSetting::Hops(hops) => self.hops = hops,
            StreamSetting::Class(class) => self.class = class.map(|class| class & !ECN_BITS),
            StreamSetting::OrphanTimeout(limit) => self.orphan_timeout = limit,
            _ => return false,
        }
        true
    }

    /// The shift with which every window up to the largest buffer can be announced.
    pub(crate) fn shift(&self) -> u8 {
        let mut shift = 0;
        while shift < crate::options::SHIFT_MAX
            && self.receive_buffer_max >> shift > u32::from(u16::MAX)
        {
            shift += 1;
        }
        shift
    }

    /// The user timeout that rules.
    pub(crate) fn timeout(&self) -> Duration {
        self.user_timeout.unwrap_or(Self::USER_TIMEOUT)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            segment_max: u16::MAX,
            receive_buffer: 64 << 10,
            receive_buffer_max: 4 << 20,
            send_buffer: 1 << 20,
            send_buffer_max: 4 << 20,
            unsent_max: u32::MAX,
            quick_acks: true,
            no_delay: false,
            cork: false,
            keep_alive: None,
            user_timeout: None,
            is_timeout_own: false,
            announce_user_timeout: false,
            manual_window: false,
            hops: 0,
            class: None,
            orphan_timeout: Duration::from_secs(60),
            window_scale: true,
            timestamps: true,
            sack: true,
            ecn: false,
            accurate_ecn: false,
            fast_open: false,
            congestion: Name::default(),
            delayed_ack: Duration::from_millis(40),
            time_wait: Duration::from_secs(60),
            syn_retries_max: 7,
            planted: false,
        }
    }
}
