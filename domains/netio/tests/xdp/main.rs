//! Channels that the system checks and demultiplexes, between network namespaces.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use xk_core::random::Random;
use xk_kit::net::template::{Check, HeaderField, Headers, OCTETS_MAX};
use xk_netio::xdp::{Counts, Steering};
use xk_netio::{ENDED_MAX, Rate, VIOLATIONS_MAX};
use xk_testkit::netns::{Net, Space};
use xk_testkit::{needs_root, peer};
use xk_xdp::{Fate, Mode, Options, XdpSocket};

const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
const MTU: usize = 1500;
const ETH: usize = 14;
const IP: usize = 20;
const HEADERS: usize = ETH + IP + 8;

fn main() -> ExitCode {
    peer::main(&[
        ("programs_agree_with_the_module", programs_agree_with_the_module),
        ("what_is_granted_passes_and_nothing_else", what_is_granted_passes_and_nothing_else),
        ("a_channel_sends_within_its_rate", a_channel_sends_within_its_rate),
        ("a_channel_that_goes_on_is_shut", a_channel_that_goes_on_is_shut),
        ("what_comes_late_for_a_right_is_forgiven", what_comes_late_for_a_right_is_forgiven),
        ("nothing_remains", nothing_remains),
    ])
}

/// Two spaces joined by a veth pair, `v0` and `v1`.
fn pair(label: &str) -> (Net, Space, Space) {
    let net = Net::new(label).unwrap();
    let (left, right) = (net.space().unwrap(), net.space().unwrap());
    net.veth(&left, "v0", &right, "v1").unwrap();
    (net, left, right)
}

fn steering(space: &Space, mode: Mode) -> Steering {
    let begun = space.enter(|| Steering::attach("v0", mode)).unwrap();
    begun.unwrap_or_else(|error| panic!("{error}"))
}

fn station(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

/// The headers of datagrams from `port` here to port 9 there, and back.
fn headers(port: u16) -> Headers {
    let eth = |to, from| [&station(to)[..], &station(from), &[8, 0]].concat();
    let ip = |from, to| {
        let mut octets = [0; IP];
        (octets[0], octets[8], octets[9]) = (0x45, 64, 17);
        octets[12..16].copy_from_slice(&[10, 0, 0, from]);
        octets[16..20].copy_from_slice(&[10, 0, 0, to]);
        octets
    };
    let udp = |from: u16, to: u16| [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0; 4]].concat();
    let ip_fields = |peer| {
        vec![
            (1, HeaderField::Bits(0xfc)),
            (2, HeaderField::Length { from: 0 }),
            (4, HeaderField::Free(2)),
            (10, HeaderField::HeaderSum { from: 0, octets: 20 }),
            (peer, HeaderField::Peer(4)),
        ]
    };
    let udp_fields = [(4, HeaderField::Length { from: 0 }), (6, HeaderField::Free(2))];
    let all = Headers::of_wire(ETH + MTU)
        .with((&eth(2, 1), &[]), (&eth(1, 2), &[]))
        .and_then(|all| all.with((&ip(1, 2), &ip_fields(16)), (&ip(2, 1), &ip_fields(12))))
        .and_then(|all| all.with((&udp(port, 9), &udp_fields), (&udp(9, port), &udp_fields)));
    all.expect("headers")
}

/// A frame of these headers with so many octets behind them, whose lengths are right.
fn frame(octets: &[u8], payload: usize) -> Vec<u8> {
    let mut frame = octets.to_vec();
    frame.extend((0..payload).map(|octet| octet as u8));
    let (ip, udp) = (IP + 8 + payload, 8 + payload);
    frame[ETH + 2..ETH + 4].copy_from_slice(&(ip as u16).to_be_bytes());
    frame[ETH + IP + 4..ETH + IP + 6].copy_from_slice(&(udp as u16).to_be_bytes());
    frame
}

/// The frames that arrive until none comes for a while.
fn arrivals(socket: &mut XdpSocket, within: Duration) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < within {
        let seen = socket.receive(64, |frame| {
            found.push(frame.to_vec());
            Fate::Done
        });
        match seen {
            0 => std::thread::sleep(Duration::from_millis(1)),
            _ => last = Instant::now(),
        }
    }
    found
}

const A_WHILE: Duration = Duration::from_millis(300);
/// More than anything takes, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

fn send(socket: &mut XdpSocket, frame: &[u8]) {
    assert!(socket.transmit(frame), "there is room");
    assert!(socket.flush().unwrap());
}

fn programs_agree_with_the_module() {
    needs_root!("ip");
    let (_net, left, _right) = pair("xdp programs");
    let steering = steering(&left, Mode::Generic);
    let chance = Random::new(7);
    let mut granted = Vec::new();
    for number in 1..=3u16 {
        let _socket = steering.open(number.into(), FREELY).unwrap();
        let headers = match number {
            // One of another shape: any peer.
            3 => headers(5003).for_any_peer(),
            _ => headers(5000 + number),
        };
        steering.grant(number.into(), headers.clone()).unwrap();
        granted.push(headers);
    }
    let checks: Vec<Check> = granted.iter().map(|all| Check::new(&all.received)).collect();
    let (mut fitted, mut others) = (0, 0);
    for round in 0..4000 {
        let headers = &granted[chance.below(3) as usize];
        let payload = chance.below(80) as usize;
        let mut frame = frame(headers.received.octets(), payload);
        match round % 4 {
            0 => {}
            1 => {
                let bit = chance.below(8 * HEADERS as u64) as usize;
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            2 => frame.truncate((ETH as u64 + chance.below(60)) as usize),
            _ => frame.resize(frame.len() + chance.below(8) as usize, 0),
        }
        let mut front = frame.clone();
        front.resize(OCTETS_MAX.max(frame.len()), 0);
        let expected = checks.iter().any(|check| check.admits(&front, frame.len()));
        let taken = steering.would_take(frame.clone()).unwrap();
        assert_eq!(taken, expected, "round {round}: {} octets, {frame:02x?}", frame.len());
        *if expected { &mut fitted } else { &mut others } += 1;
    }
    assert!(fitted > 1000 && others > 500, "{fitted} {others}");
    // What is no longer granted is no longer taken.
    steering.revoke(1, granted[0].clone()).unwrap();
    let gone = frame(granted[0].received.octets(), 1);
    assert!(!steering.would_take(gone).unwrap());
    steering.revoke(3, granted[2].clone()).unwrap();
    let [gone, stays] = [2, 1].map(|at: usize| frame(granted[at].received.octets(), 1));
    assert!(!steering.would_take(gone).unwrap() && steering.would_take(stays).unwrap());
}

fn what_is_granted_passes_and_nothing_else() {
    needs_root!("ip");
    for mode in [Mode::Generic, Mode::Native] {
        let (_net, left, right) = pair("xdp grants");
        let options = Options { mode, ..Options::default() };
        let far = right.enter(|| XdpSocket::open("v1", &options)).unwrap();
        let mut far = far.unwrap_or_else(|error| panic!("{error}"));
        let steering = steering(&left, mode);
        let headers = headers(5000);
        let mut sockets = [1, 2].map(|number| {
            XdpSocket::of(steering.open(number, FREELY).unwrap()).expect("rings and memory")
        });
        steering.grant(1, headers.clone()).unwrap();
        let same = steering.grant(2, headers.clone());
        assert!(same.is_err(), "{mode}: two would receive what one does");
        let _before = arrivals(&mut far, A_WHILE);

        let mut expected = Vec::new();
        let check = Check::new(&headers.sent);
        // Each bit of the headers is wrong once; what may be anything passes.
        for bit in 0..8 * HEADERS {
            let mut frame = frame(headers.sent.octets(), bit % 60);
            frame[bit / 8] ^= 1 << (bit % 8);
            let mut front = frame.clone();
            front.resize(OCTETS_MAX, 0);
            let passes = check.admits(&front, frame.len());
            // So many at most may be wrong of one channel.
            if passes || bit % 4 == 0 {
                if passes {
                    expected.push(frame.clone());
                }
                send(&mut sockets[0], &frame);
            }
        }
        // The other channel has no right at all.
        send(&mut sockets[1], &frame(headers.sent.octets(), 9));
        let came = arrivals(&mut far, A_WHILE);
        assert_eq!(came, expected, "{mode}");
        let [one, other] = [1, 2].map(|number| steering.counts(number).unwrap().unwrap());
        assert_eq!(one.admitted as usize, expected.len(), "{mode}");
        assert!(one.forged > 50 && one.forged < u64::from(VIOLATIONS_MAX), "{mode}: {one:?}");
        assert_eq!(other, Counts { forged: 1, ..Counts::default() }, "{mode}");

        // And back: what fits comes to the channel.
        for payload in 0..200 {
            let mut fits = frame(headers.received.octets(), payload);
            assert!(far.transmit(&fits));
            fits[ETH + IP + 3] ^= 1;
            assert!(far.transmit(&fits));
        }
        assert!(far.flush().unwrap());
        let came = arrivals(&mut sockets[0], A_WHILE);
        let sent: Vec<_> = (0..200).map(|n| frame(headers.received.octets(), n)).collect();
        assert_eq!(came, sent, "{mode}");
        assert!(arrivals(&mut sockets[1], Duration::from_millis(20)).is_empty(), "{mode}");

        // A right that is no more lets nothing out or in.
        steering.revoke(1, headers.clone()).unwrap();
        send(&mut sockets[0], &sent[1]);
        send(&mut far, &sent[1]);
        assert!(arrivals(&mut sockets[0], A_WHILE).is_empty(), "{mode}");
        assert!(arrivals(&mut far, A_WHILE).is_empty(), "{mode}");
    }
}

fn a_channel_sends_within_its_rate() {
    needs_root!("ip");
    let (_net, left, right) = pair("xdp rate");
    let far = right.enter(|| XdpSocket::open("v1", &Options::default())).unwrap();
    let mut far = far.unwrap_or_else(|error| panic!("{error}"));
    let steering = steering(&left, Mode::Generic);
    let rate = Rate { octets_per_second: 10_000, burst_octets: 1000 };
    let mut socket = XdpSocket::of(steering.open(1, rate).unwrap()).unwrap();
    let headers = headers(5000);
    steering.grant(1, headers.clone()).unwrap();
    let _before = arrivals(&mut far, A_WHILE);
    let hundred = frame(headers.sent.octets(), 100 - HEADERS);
    let begun = Instant::now();
    for _ in 0..100 {
        send(&mut socket, &hundred);
    }
    // The system may take them a moment later.
    let counts = loop {
        let counts = steering.counts(1).unwrap().unwrap();
        if counts.admitted + counts.late == 100 {
            break counts;
        }
        assert!(begun.elapsed() < STEP_TIME_MAX, "{counts:?}");
    };
    let all = begun.elapsed();
    // The burst, and what the rate gives meanwhile.
    let most = 10 + all.as_millis() as u64 / 10 + 1;
    assert!((10..=most).contains(&counts.admitted), "{counts:?} in {all:?}");
    assert_eq!(arrivals(&mut far, A_WHILE).len() as u64, counts.admitted);
    std::thread::sleep(Duration::from_millis(50));
    send(&mut socket, &hundred);
    assert_eq!(arrivals(&mut far, A_WHILE).len(), 1, "and again after a pause");
}

fn a_channel_that_goes_on_is_shut() {
    needs_root!("ip");
    let (_net, left, right) = pair("xdp violations");
    let far = right.enter(|| XdpSocket::open("v1", &Options::default())).unwrap();
    let mut far = far.unwrap_or_else(|error| panic!("{error}"));
    let steering = steering(&left, Mode::Generic);
    let mut socket = XdpSocket::of(steering.open(1, FREELY).unwrap()).unwrap();
    let headers = headers(5000);
    steering.grant(1, headers.clone()).unwrap();
    let good = frame(headers.sent.octets(), 30);
    let mut bad = good.clone();
    bad[ETH + 15] = 77;
    let _before = arrivals(&mut far, A_WHILE);
    for _ in 1..VIOLATIONS_MAX {
        send(&mut socket, &bad);
    }
    send(&mut socket, &good);
    assert_eq!(
        arrivals(&mut far, A_WHILE),
        std::slice::from_ref(&good),
        "one more would be too many"
    );
    send(&mut socket, &bad);
    send(&mut socket, &good);
    assert!(arrivals(&mut far, A_WHILE).is_empty());
    let counts = steering.counts(1).unwrap().unwrap();
    assert_eq!(counts, Counts { admitted: 1, forged: VIOLATIONS_MAX.into(), ..Counts::default() });
}

/// A program may have much under way when its right ends: it is neither sent nor held against it.
fn what_comes_late_for_a_right_is_forgiven() {
    needs_root!("ip");
    let (_net, left, right) = pair("xdp late");
    let far = right.enter(|| XdpSocket::open("v1", &Options::default())).unwrap();
    let mut far = far.unwrap_or_else(|error| panic!("{error}"));
    let steering = steering(&left, Mode::Generic);
    let mut socket = XdpSocket::of(steering.open(1, FREELY).unwrap()).unwrap();
    let _before = arrivals(&mut far, A_WHILE);
    let rights = 5000..5003 + ENDED_MAX as u16;
    steering.grant(1, headers(9999)).unwrap();
    let mut late = 0_u64;
    for port in rights.clone() {
        // The last one is of another shape.
        let headers = match port {
            port if port + 1 == rights.end => headers(port).for_any_peer(),
            _ => headers(port),
        };
        let own = frame(headers.sent.octets(), 30);
        steering.grant(1, headers.clone()).unwrap();
        steering.revoke(1, headers.clone()).unwrap();
        for _ in 0..if port % 64 == 0 || port + 3 > rights.end { VIOLATIONS_MAX + 20 } else { 0 } {
            send(&mut socket, &own);
            late += 1;
        }
        assert!(arrivals(&mut far, Duration::from_millis(2)).is_empty(), "{port}");
    }
    // One that ended long ago is forgotten, and one that was granted again is as any other.
    send(&mut socket, &frame(headers(rights.start).sent.octets(), 30));
    let again = frame(headers(5200).sent.octets(), 30);
    steering.grant(1, headers(5200)).unwrap();
    send(&mut socket, &again);
    assert_eq!(arrivals(&mut far, A_WHILE), [again]);
    let counts = steering.counts(1).unwrap().unwrap();
    assert_eq!(counts, Counts { admitted: 1, forged: 1, late: 0, ended: late });
}

fn nothing_remains() {
    needs_root!("ip");
    let (_net, left, right) = pair("xdp remains");
    let far = right.enter(|| XdpSocket::open("v1", &Options::default())).unwrap();
    let mut far = far.unwrap_or_else(|error| panic!("{error}"));
    let links = || left.enter(xk_linux::existing).unwrap();
    let before = links();
    let steering = steering(&left, Mode::Auto);
    let headers = headers(5000);
    let mut sockets = Vec::new();
    for round in 0..20 {
        let socket = XdpSocket::of(steering.open(round, FREELY).unwrap()).unwrap();
        sockets.push(socket);
        steering.grant(round, headers.clone()).unwrap();
        steering.revoke(round, headers.clone()).unwrap();
        if round % 2 == 0 {
            steering.close(round).unwrap();
            assert_eq!(steering.counts(round).unwrap(), None);
        }
    }
    steering.grant(19, headers.clone()).unwrap();
    let good = frame(headers.sent.octets(), 30);
    let _before = arrivals(&mut far, A_WHILE);
    send(&mut sockets[19], &good);
    assert_eq!(arrivals(&mut far, A_WHILE).len(), 1);
    assert_eq!(links(), before, "the pairs are nowhere to be seen");
    drop(steering);
    // The interface is down or gone, or its frames lead nowhere.
    let _ = sockets[19].transmit(&good) && sockets[19].flush().is_ok();
    assert_eq!(arrivals(&mut far, A_WHILE), Vec::<Vec<u8>>::new());
    assert_eq!(links(), before);
}
