//! Connections as values: what is read goes on as what was written, and nothing that can be read
//! does harm.

use super::channel::{Channel, Faults, Side};
use super::rules::Lone;
use super::*;
use super::{faults, pattern};
use xk_core::Pool;
use xk_core::message::PoolConfig;
use xk_kit::net::stream::KeepAlive;

/// Runs a transfer through a channel, and returns the channel with what both sides sent and
/// received.
fn transfer(seed: u64, faults: Faults, settings: &Settings, moves: Option<u32>) -> Channel {
    let mut channel = Channel::with(seed, faults, settings.clone());
    if let Some(share) = moves {
        channel.moves(seed, share, false);
    }
    channel.write(Side::A, &pattern(40_000, 1));
    channel.write(Side::B, &pattern(20_000, 2));
    channel.shut_later();
    channel.run();
    channel
}

/// Settings that differ in all that connections agree on.
fn settings() -> impl Strategy<Value = Settings> {
    let agreed = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let buffers = (11..17_u32, 11..17_u32);
    (agreed, buffers, 0..3_usize, any::<bool>()).prop_map(|(agreed, buffers, congestion, slow)| {
        Settings {
            window_scale: agreed.0,
            timestamps: agreed.1,
            sack: agreed.2,
            ecn: agreed.3,
            receive_buffer: 1 << buffers.0,
            receive_buffer_max: 1 << buffers.0,
            send_buffer: 1 << buffers.1,
            send_buffer_max: 1 << buffers.1,
            congestion: crate::congestion::Name::of(crate::congestion::NAMES[congestion]).unwrap(),
            keep_alive: slow.then_some(KeepAlive {
                idle: Duration::from_secs(1),
                interval: Duration::from_secs(1),
                probes_max: 9,
            }),
            ..Settings::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os("XK_LONG").is_some() { 4000 } else { 32 }, ..ProptestConfig::default() })]

    /// Each step of a connection that goes from place to place is that of one that stays: the same
    /// segments, at the same times.
    #[test]
    fn a_moved_connection_goes_on_as_if_it_had_stayed(
        seed: u64,
        faults in faults(),
        settings in settings(),
        share in 1000..300_000_u32,
    ) {
        let stayed = transfer(seed, faults, &settings, None);
        let moved = transfer(seed, faults, &settings, Some(share));
        let first = stayed.log.iter().zip(&moved.log).position(|(a, b)| a != b);
        prop_assert_eq!(first.map(|at| (&stayed.log[at], &moved.log[at])), None);
        prop_assert_eq!(stayed.log.len(), moved.log.len());
        prop_assert!(moved.got(Side::B) == stayed.got(Side::B));
        prop_assert!(moved.got(Side::A) == stayed.got(Side::A));
        prop_assert_eq!(moved.failures(), stayed.failures());
    }

    #[test]
    fn nothing_that_can_be_read_does_harm(
        seed: u64,
        settings in settings(),
        sent in 0..30_000_usize,
        changes in proptest::collection::vec((any::<u16>(), any::<u8>(), 0..3_u8), 0..6),
        segments in proptest::collection::vec((any::<[u8; 14]>(), 0..2000_usize, any::<bool>()), 0..30),
    ) {
        let Some(mut state) = written(seed, settings, sent) else {
            return Ok(());
        };
        for (at, value, how) in changes {
            // Most of the octets at the end are those that wait.
            let at = usize::from(at) % state.len().min(1500);
            match how {
                0 => state[at] = value,
                1 => state[at] ^= 1 << (value & 7),
                _ => state[at] = if value & 1 == 0 { 0 } else { 0xff },
            }
        }
        drive(&state, segments);
    }
}

/// The state of a connection with octets outstanding, lost, selectively acknowledged and out of
/// order.
fn written(seed: u64, settings: Settings, octets: usize) -> Option<Vec<u8>> {
    let faults = Faults { loss: 100_000, repeat: 10_000, reorder: 200_000, runs: false };
    let mut channel = Channel::with(seed, faults, settings);
    channel.write(Side::A, &pattern(octets, 1));
    channel.write(Side::B, &pattern(octets / 2, 2));
    if seed & 1 == 0 {
        channel.shut_later();
    }
    channel.run_for(Duration::from_millis(seed >> 8 & 127));
    let (now, pool) = (channel.now, pool());
    channel.machine(Side::A).write(&pool, now)
}

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(16 << 20)).unwrap()
}

/// Lets a state go on, if it is one: segments come, minutes pass.
fn drive(state: &[u8], segments: Vec<([u8; 14], usize, bool)>) {
    let (pool, now) = (pool(), Time::from_s(7));
    let Some(machine) = Connection::read(state, &pool, now) else {
        return;
    };
    assert!(machine.write(&pool, now).is_some_and(|again| again.len() == state.len()));
    let mut lone = Lone { machine, pool, now };
    let rest = |lone: &mut Lone| {
        lone.sent();
        while lone.machine.deliver().is_some() {}
        while lone.machine.event().is_some() {}
    };
    rest(&mut lone);
    if lone.machine.space() > 100 {
        lone.write(&pattern(100, 4));
    }
    for (octets, len, near) in segments {
        let mut raw = [0; HEADER_LEN_MAX];
        raw[..14].copy_from_slice(&octets);
        raw[12] = 5 << 4;
        if let Ok((mut header, _)) = Header::parse(&raw) {
            if near {
                header.seq = lone.machine.rcv_nxt() + u32::from(octets[4]) - 8;
                header.ack = lone.machine.snd_una() + u32::from(octets[8]) * 7;
                header.flags |= Flags::ACK;
            }
            let _ = lone.take(&header, &pattern(len, 3));
        }
        rest(&mut lone);
        lone.now += Duration::from_millis(u64::from(octets[9]));
        lone.machine.timer(lone.now);
        rest(&mut lone);
    }
    for _ in 0..50 {
        let Some(at) = lone.machine.deadline() else {
            break;
        };
        lone.now = lone.now.max(at);
        lone.machine.timer(lone.now);
        rest(&mut lone);
    }
}

/// A clock that began just now knows of nothing before: measurements under way are lost, and no
/// octet.
#[test]
fn a_younger_clock_will_do() {
    for seed in 0..40 {
        let faults = Faults { loss: 20_000, reorder: 50_000, ..Faults::default() };
        let mut channel = Channel::new(seed, faults);
        channel.write(Side::A, &pattern(90_000, 1));
        channel.write(Side::B, &pattern(40_000, 2));
        channel.moves(seed, 100_000, true);
        channel.shut_later();
        channel.run();
        assert!(channel.moved > 10);
        assert!(channel.got(Side::B) == pattern(90_000, 1), "seed {seed}");
        assert!(channel.got(Side::A) == pattern(40_000, 2), "seed {seed}");
        assert_eq!(channel.failures(), (None, None));
    }
}

#[test]
fn nothing_but_the_whole_is_a_connection() {
    let state = written(0x4000, Settings::default(), 6000).expect("it is not over");
    let (pool, now) = (pool(), Time::from_s(1));
    assert!(Connection::read(&state, &pool, now).is_some());
    for end in 0..state.len() {
        assert!(Connection::read(&state[..end], &pool, now).is_none(), "{end} octets");
    }
    let longer = [&state, &[0][..]].concat();
    assert!(Connection::read(&longer, &pool, now).is_none());
    let mut other = state;
    other[4] ^= 1;
    assert!(Connection::read(&other, &pool, now).is_none(), "another version");
}

/// Each state of the diagram goes from place to place, but the one in which nothing is left.
#[test]
fn every_state_moves() {
    let mut seen = Vec::new();
    for seed in 0..3 {
        let mut channel = Channel::new(seed, Faults::default());
        channel.write(Side::A, &pattern(10, 1));
        for ms in 0..400 {
            // Now one ends first, now the other, now both.
            if ms == if seed == 1 { 200 } else { 100 } {
                channel.shut(Side::A);
            }
            if ms == if seed == 0 { 200 } else { 100 } {
                channel.shut(Side::B);
            }
            channel.run_for(Duration::from_millis(1));
            for side in [Side::A, Side::B] {
                let (state, now, pool) = (channel.state(side), channel.now, pool());
                if state == State::Closed || seen.contains(&state) {
                    continue;
                }
                let octets = channel.machine(side).write(&pool, now).expect("it is not over");
                let there = Connection::read(&octets, &pool, now).expect("what was written");
                assert_eq!((there.state(), there.write(&pool, now)), (state, Some(octets)));
                seen.push(state);
            }
        }
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
}
