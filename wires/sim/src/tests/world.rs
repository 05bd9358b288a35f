//! Hosts and time of a world.

use super::*;

/// Frames that one station saw.
type Seen = Vec<(u64, Vec<u8>)>;

/// Everything seen in a busy, faulty network.
fn noise(seed: u64) -> (Vec<Seen>, LinkStats, WorldStats) {
    let rough = LinkConfig {
        rate_bit_s: Some(1_000_000),
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.1,
        corrupt: 0.1,
        jitter: Duration::from_micros(300),
        ..link(LinkKind::Switch)
    };
    let manner = Manner { broadcasts: 20, period: Duration::from_micros(900), ..Manner::default() };
    let mut net = Net::of(seed, rough, 10, &manner);
    for host in 0..10 {
        net.send(host, |cx| frame(cx, 1 + (host as u8 + 1) % 10, host as u8 + 1, 9)).unwrap();
    }
    net.world.run_until(Time::from_ms(5));
    net.world.run_until_idle(Time::MAX);
    let logs = net.logs.iter().map(|log| log.borrow().clone()).collect();
    (logs, net.stats(), net.world.stats())
}

#[test]
fn one_seed_is_one_run() {
    let (one, same, other) = (noise(5), noise(5), noise(6));
    assert!(one.1.delivered > 1_000 && one.1.lost > 0, "{:?}", one.1);
    assert!(one == same);
    assert!(one.0 != other.0);
}

#[test]
fn fetching_ahead_changes_nothing() {
    let run = |ahead_from, jitter_us| {
        let jitter = Duration::from_micros(jitter_us);
        let manner = Manner { answers: true, ..Manner::default() };
        let one = LinkConfig { jitter, ..link(LinkKind::Switch) };
        let mut net = Net::of(3, one, 10, &manner);
        net.world.ahead_from = ahead_from;
        for host in 0..10 {
            let (to, from) = ((host as u8 ^ 1) + 1, host as u8 + 1);
            net.send(host, |cx| frame(cx, to, from, 99)).unwrap();
        }
        assert_eq!(net.world.run_until_idle(Time::MAX), Ended::Idle);
        let logs: Vec<Seen> = net.logs.iter().map(|log| log.borrow().clone()).collect();
        (logs, net.stats(), net.world.stats(), net.world.lines_noted() > 0)
    };
    for jitter_us in [0, 7] {
        let (plain, ahead) = (run(usize::MAX, jitter_us), run(1, jitter_us));
        assert!(!plain.3 && (ahead.3 || jitter_us > 0));
        assert!((plain.0, plain.1, plain.2) == (ahead.0, ahead.1, ahead.2));
        assert!(ahead.2.frames >= 1000);
    }
}

#[test]
fn a_thousand_hosts_talk() {
    let manner = Manner { broadcasts: 1, period: Duration::from_millis(1), ..Manner::default() };
    let mut net = Net::of(1, link(LinkKind::Switch), 1_000, &manner);
    assert_eq!(net.world.run_until_idle(Time::from_s(1)), Ended::Idle);
    assert_eq!(net.world.stats().frames, 999_000);
    assert!(net.logs.iter().all(|log| log.borrow().len() == 999));
    assert_eq!(net.world.now(), Time::from_us(1_010));
}

#[test]
fn answers_go_to_and_fro_and_progress_is_told() {
    let manner = Manner { answers: true, ..Manner::default() };
    let mut net = Net::of(1, link(LinkKind::PointToPoint), 2, &manner);
    let told = Rc::new(Cell::new(0));
    let count = Rc::clone(&told);
    net.world.on_progress(10, move |progress| count.set(progress.stats.events));
    net.send(0, |cx| frame(cx, 2, 1, 99)).unwrap();
    assert_eq!(net.world.run_until(Time::from_us(500)), Ended::Time);
    assert_eq!((net.world.now(), told.get()), (Time::from_us(500), 50));
    assert_eq!(net.world.next_event(), Some(Time::from_us(510)));
    net.world.set_events_max(60);
    assert_eq!(net.world.run_until_idle(Time::MAX), Ended::Events);
    net.world.set_events_max(u64::MAX);
    assert_eq!(net.world.run_until_idle(Time::MAX), Ended::Idle);
    assert_eq!(net.times(0).len() + net.times(1).len(), 100);
    assert_eq!(net.world.now(), Time::from_us(1_000));
    // No object can be asked for a report, so all have finished.
    assert_eq!(net.world.run_until_finished(Time::MAX), Ended::Finished);
}

#[test]
fn a_third_end_of_a_line_is_refused() {
    let net = Net::of(1, link(LinkKind::PointToPoint), 2, &Manner::default());
    let kernel = net.world.kernel(HostId(0)).unwrap();
    assert!(matches!(wire(kernel, "lan"), Err(BuildError::Open(OpenError::Full))));
    assert!(matches!(wire(kernel, "wan"), Err(BuildError::Param { name: "link", .. })));
    let shepherds = Shepherds::new(Box::new(NoSwitch), Limits::default());
    let alone = Kernel::new(net.world.host_config("x", shepherds, 1));
    assert!(matches!(wire(&alone, "lan"), Err(BuildError::Environment { .. })));
    assert_eq!(net.world.network().add_link(link(LinkKind::Hub)), Err(LinkError::Taken));
}

#[test]
fn who_blocks_lets_the_next_frame_pass() {
    let semaphore = Rc::new(Semaphore::new(0));
    let manner = Manner { blocks: Some(semaphore), coroutines: true, ..Manner::default() };
    let mut net = Net::new(1, vec![link(LinkKind::PointToPoint)]);
    net.add("lan", &Manner::default());
    net.add("lan", &manner);
    net.world.start().unwrap();
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until(Time::from_ms(2));
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until_idle(Time::MAX);
    // Both came at once, and each waited its five milliseconds beside the other.
    assert_eq!(net.times(1), [10_000, 2_010_000, 5_010_000, 7_010_000]);
    // One that still waits at the end is interrupted.
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until(Time::from_ms(8));
    net.world.stop();
    assert_eq!(net.logs[1].borrow().last().unwrap().1, b"Err(Interrupted)");
}

#[test]
fn without_a_switch_a_wait_is_refused() {
    let semaphore = Rc::new(Semaphore::new(0));
    let manner = Manner { blocks: Some(semaphore), ..Manner::default() };
    let mut net = Net::of(1, link(LinkKind::PointToPoint), 2, &manner);
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until_idle(Time::MAX);
    assert_eq!(net.logs[1].borrow()[1].1, b"Err(NotOnShepherd)");
}

#[derive(Default)]
struct Capture(RefCell<Vec<String>>);

impl Tap for Capture {
    fn frame(&self, seen: Sighting<'_>) {
        let line =
            format!("{} {} {} {}", seen.time, seen.link_name, seen.host_name, seen.frame.len());
        self.0.borrow_mut().push(line);
    }
}

#[test]
fn a_tap_sees_every_frame_once() {
    let lossy = LinkConfig { loss: 1.0, ..link(LinkKind::Hub) };
    let mut net = Net::of(1, lossy, 3, &Manner::default());
    let capture = Rc::new(Capture::default());
    let tap: Rc<dyn Tap> = capture.clone();
    net.world.network().set_tap(Some(tap));
    net.send(2, |cx| frame(cx, ALL, 3, 0)).unwrap();
    net.send(0, |cx| frame(cx, ALL, 1, 0)).unwrap();
    net.world.run_until_idle(Time::MAX);
    assert_eq!(*capture.0.borrow(), ["0.000010s lan h3 60", "0.000010s lan h1 60"]);
    assert_eq!((net.stats().lost, net.stats().delivered), (4, 0));
}

#[test]
fn a_stopped_world_gives_everything_back() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let weak = {
        let world = World::new(1, pool.clone());
        world.network().add_link(link(LinkKind::Switch)).unwrap();
        let mut net = Net { world, logs: Vec::new(), stations: Vec::new() };
        let manner =
            Manner { broadcasts: 100, period: Duration::from_micros(3), ..Manner::default() };
        for _ in 0..5 {
            net.add("lan", &manner);
        }
        net.world.start().unwrap();
        net.world.run_until(Time::from_us(50));
        assert!(net.world.network().in_flight() > 0);
        Rc::downgrade(net.world.network())
    };
    assert_eq!(weak.strong_count(), 0);
    let stats = pool.stats();
    assert_eq!((stats.descriptors_live, stats.buffers_live), (0, 0));
}

#[test]
fn a_run_ends_when_every_anchor_has_finished() {
    let manner = Manner {
        broadcasts: 1_000,
        period: Duration::from_millis(1),
        wants: Some(100),
        ..Manner::default()
    };
    let mut net = Net::of(1, link(LinkKind::Switch), 3, &manner);
    assert_eq!(net.world.run_until_finished(Time::from_ms(20)), Ended::Time);
    assert_eq!(net.world.now(), Time::from_ms(20));
    assert_eq!(net.world.run_until_finished(Time::from_s(10)), Ended::Finished);
    let seen = net.times(0).len();
    assert!((100..120).contains(&seen), "{seen}");
    // One that can never finish runs out of events.
    let alone = Manner { wants: Some(1), ..Manner::default() };
    let mut net = Net::of(1, link(LinkKind::Switch), 1, &alone);
    assert_eq!(net.world.run_until_finished(Time::MAX), Ended::Idle);
}

#[test]
fn a_wire_of_another_kind_is_looked_at() {
    let mut net = Net::of(1, link(LinkKind::Switch), 1, &Manner::default());
    let log = Log::default();
    let kept = Rc::clone(&log);
    let session = net.world.enter(HostId(0), move |cx| {
        let entry = &xk_loopback::ENTRY;
        let (name, params) = ("loopback", Params::default());
        let wire = entry.add(cx, name, &[], &params);
        let station = Station {
            lower: wire.unwrap(),
            session: RefCell::default(),
            log: kept,
            answers: true,
            period: Duration::ZERO,
            left: Cell::new(0),
            number: 9,
            blocks: None,
            wants: None,
        };
        let station = cx.add_protocol("station", "inner", station);
        station.start(cx).unwrap();
        let wire = cx.find_protocol("loopback").unwrap();
        wire.open(cx, Upper::new(&station), Participants::default()).unwrap()
    });
    let session = session.unwrap();
    net.world.run_until(Time::from_s(1));
    net.world.enter(HostId(0), |cx| session.push(cx, frame(cx, 9, 9, 3)).unwrap());
    assert_eq!(net.world.run_until_idle(Time::MAX), Ended::Idle);
    assert_eq!(log.borrow().iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1_000_000_000; 4]);
}
