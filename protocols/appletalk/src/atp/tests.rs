//! The machines one against the other, step by step.

use super::*;
use core::num::NonZeroU8;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

/// Octets as a shell would keep them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Octets(pub(super) Vec<u8>);

impl Payload for Octets {
    fn octets(&self) -> usize {
        self.0.len()
    }

    fn again(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn cut(&mut self, octets: usize) -> Option<Self> {
        let rest = self.0.split_off(octets);
        Some(Self(core::mem::replace(&mut self.0, rest)))
    }

    fn join(&mut self, behind: Self) {
        self.0.extend(behind.0);
    }
}

/// Network and node above, socket below.
impl Peer for u32 {
    fn host(&self) -> u32 {
        self >> 8
    }
}

const CLIENT: u32 = 0x000a_1183;
const SERVER: u32 = 0x000a_1290;
const CLIENTS_SOCKET: u8 = 0x83;
const SERVERS_SOCKET: u8 = 0x90;

type Asks = Requester<u32, Octets, &'static str>;
type Serves = Responder<u32, Octets>;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn asks() -> Asks {
    Requester::new(Limits { transactions: 16 }, 0x1233)
}

fn serves() -> Serves {
    Responder::new(Bounds::DEFAULT)
}

fn once(responses: usize) -> Want {
    let once = Some(ReleaseTimer::HalfMinute);
    Want { once, user: [0, 0, 0, 1], bitmap: bitmap_of(responses), ..Want::DEFAULT }
}

fn begin(asks: &mut Asks, want: &Want) -> Packet<u32, Octets> {
    let place = (CLIENTS_SOCKET, SERVER);
    asks.begin(s(0), place, want, Octets(b"hello".to_vec()), "owner").unwrap().1
}

fn octets(packet: &Packet<u32, Octets>) -> Vec<u8> {
    let mut octets = packet.header.emit().to_vec();
    octets.extend(packet.data.iter().flat_map(|data| data.0.iter()));
    octets
}

fn arrive(
    asks: &mut Asks,
    now: Duration,
    packet: Packet<u32, Octets>,
) -> Result<Heard<u32, Octets, &'static str>, Unheard> {
    assert_eq!((packet.to, packet.socket), (CLIENT, SERVERS_SOCKET));
    let from = (SERVER, CLIENTS_SOCKET);
    let data = packet.data.unwrap();
    asks.response(now, from, &packet.header, data).map_err(|(why, _)| why)
}

fn ticket(verdict: Verdict<u32, Octets>) -> Ticket<u32> {
    match verdict {
        Verdict::Execute(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn request(serves: &mut Serves, now: Duration, header: &Header) -> Verdict<u32, Octets> {
    serves.request(now, (CLIENT, SERVERS_SOCKET), header)
}

/// The sheet's vector 5: request, third response, release.
#[test]
fn an_exactly_once_transaction_of_three_responses() {
    let (mut asks, mut serves) = (asks(), serves());
    let asked = begin(&mut asks, &once(3));
    assert_eq!(octets(&asked), [&[0x60, 7, 0x12, 0x34, 0, 0, 0, 1][..], b"hello"].concat());
    let executed = ticket(request(&mut serves, s(0), &asked.header));
    let reply = Octets([&[b'r'; 8][..], b"bye"].concat());
    let sent: Vec<_> = serves.reply(s(0), &executed, [0; 4], 4, reply).unwrap().collect();
    assert_eq!(octets(&sent[2]), [&[0x90, 2, 0x12, 0x34, 0, 0, 0, 0][..], b"bye"].concat());
    assert_eq!(octets(&sent[0])[..2], [0x80, 0]);
    let mut last = None;
    for packet in sent.into_iter().rev() {
        last = Some(arrive(&mut asks, s(1), packet).unwrap());
    }
    let Some(Heard::Done { owner: "owner", wanted: 7, arrived, release: Some(release) }) = last
    else {
        panic!("{last:?}");
    };
    assert!(arrived.end_of_message && asks.is_empty());
    assert_eq!(arrived.join(7), Some(Octets(b"rrrrrrrrbye".to_vec())));
    assert_eq!(octets(&release), [0xc0, 0, 0x12, 0x34, 0, 0, 0, 0]);
    assert_eq!((serves.len(), serves.octets()), (1, 11));
    assert!(serves.release(s(0), (CLIENT, SERVERS_SOCKET), release.header.tid));
    assert!(!serves.release(s(0), (CLIENT, SERVERS_SOCKET), release.header.tid));
    assert_eq!((serves.len(), serves.octets()), (0, 0));
}

#[test]
fn only_what_is_missing_is_asked_for_again_and_sent_again() {
    let (mut asks, mut serves) = (asks(), serves());
    let asked = begin(&mut asks, &once(8));
    let executed = ticket(request(&mut serves, s(0), &asked.header));
    let reply = Octets(vec![7; REPLY_OCTETS_MAX]);
    let sent = serves.reply(s(0), &executed, [0; 4], 999, reply).unwrap();
    for packet in sent.filter(|packet| ![1, 7].contains(&packet.header.number)) {
        assert!(packet.data.as_ref().is_some_and(|data| data.0.len() == 578));
        assert_eq!(arrive(&mut asks, s(1), packet), Ok(Heard::Kept(None)));
    }
    assert_eq!(asks.due(), Some(s(2)));
    assert_eq!(asks.poll(s(1)), None);
    let Some(Due::Again(again)) = asks.poll(s(2)) else { panic!() };
    assert_eq!((again.header.number, again.header.tid), (0b1000_0010, 0x1234));
    assert_eq!(asks.poll(s(2)), None);
    let Verdict::Repeat(repeat) = request(&mut serves, s(2), &again.header) else { panic!() };
    let numbers: Vec<_> = repeat.clone_numbers();
    assert_eq!(numbers, [(1, false), (7, true)]);
    let Verdict::Repeat(repeat) = request(&mut serves, s(2), &again.header) else { panic!() };
    let heard: Vec<_> = repeat.map(|packet| arrive(&mut asks, s(2), packet)).collect();
    assert!(matches!(&heard[1], Ok(Heard::Done { arrived, .. }) if arrived.bitmap() == 0xff));
}

impl Segments<u32, Octets> {
    fn clone_numbers(self) -> Vec<(u8, bool)> {
        self.map(|packet| (packet.header.number, packet.header.end_of_message)).collect()
    }
}

#[test]
fn an_end_of_message_ends_it_whatever_lies_behind() {
    let mut asks = asks();
    let asked = begin(&mut asks, &once(8));
    let response = |number, end| Packet {
        to: CLIENT,
        socket: SERVERS_SOCKET,
        header: Header {
            end_of_message: end,
            ..Header::new(Kind::Response, number, asked.header.tid, [number; 4])
        },
        data: Some(Octets(vec![number])),
    };
    assert_eq!(arrive(&mut asks, s(0), response(5, false)), Ok(Heard::Kept(None)));
    assert_eq!(arrive(&mut asks, s(0), response(1, true)), Ok(Heard::Kept(None)));
    assert_eq!(arrive(&mut asks, s(0), response(5, false)), Err(Unheard::Repeated));
    assert_eq!(arrive(&mut asks, s(0), response(1, true)), Err(Unheard::Repeated));
    let Ok(Heard::Done { arrived, .. }) = arrive(&mut asks, s(0), response(0, false)) else {
        panic!()
    };
    assert_eq!((arrived.bitmap(), arrived.user()), (3, [0; 4]));
    assert_eq!(arrived.join(0xff), Some(Octets(vec![0, 1])));
    assert_eq!(arrive(&mut asks, s(0), response(2, false)), Err(Unheard::Unknown));
}

#[test]
fn send_status_has_the_request_sent_again_without_a_try() {
    let mut asks = asks();
    let asked = begin(&mut asks, &Want { tries: NonZeroU8::new(1), ..once(2) });
    let mut header = Header::new(Kind::Response, 0, asked.header.tid, [0; 4]);
    header.send_status = true;
    let from = (SERVER, CLIENTS_SOCKET);
    let heard = asks.response(s(1), from, &header, Octets(vec![1])).unwrap();
    let Heard::Kept(Some(again)) = heard else { panic!("{heard:?}") };
    assert_eq!((again.header.number, again.to), (2, SERVER));
    // Repeated, it asks for nothing: no two ends keep each other busy.
    let heard = asks.response(s(1), from, &header, Octets(vec![1]));
    assert_eq!(heard, Err((Unheard::Repeated, Octets(vec![1]))));
    assert_eq!(asks.poll(s(2)), None);
    let failed = asks.poll(s(3));
    let Some(Due::Failed { owner: "owner", wanted: 3, arrived }) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!((arrived.bitmap(), arrived.join(3)), (1, Some(Octets(vec![1]))));
    assert_eq!((asks.poll(s(9)), asks.due()), (None, None));
}

#[test]
fn tries_are_counted_and_without_a_number_they_have_no_end() {
    for tries in [1, 5, 255] {
        let mut asks = asks();
        begin(&mut asks, &Want { tries: NonZeroU8::new(tries), ..once(1) });
        let mut sent = 1;
        loop {
            let now = asks.due().unwrap();
            match asks.poll(now) {
                Some(Due::Again(packet)) => assert_eq!(packet.header.number, 1),
                _ => break,
            }
            assert_eq!((asks.poll(now), asks.due()), (None, Some(now + s(2))));
            sent += 1;
        }
        assert_eq!((sent, asks.len()), (tries, 0));
    }
    let mut asks = asks();
    begin(&mut asks, &Want { tries: None, bitmap: 0, ..once(1) });
    for _ in 0..1000 {
        let now = asks.due().unwrap();
        let due = asks.poll(now);
        assert!(matches!(due, Some(Due::Again(packet)) if packet.header.number == 0));
        assert_eq!((asks.poll(now), asks.due()), (None, Some(now + s(2))));
    }
    let tid = asks.find(|owner| *owner == "owner").unwrap();
    assert!(asks.cancel(tid).is_some() && asks.is_empty());
}

#[test]
fn a_request_is_refused_with_its_owner_when_it_cannot_begin() {
    let mut asks = asks();
    let place = (CLIENTS_SOCKET, SERVER);
    let big = asks.begin(s(0), place, &once(1), Octets(vec![0; 579]), "big").map(|_| ());
    assert_eq!(big, Err((BeginError::TooBig, Octets(vec![0; 579]), "big")));
    for _ in 0..16 {
        begin(&mut asks, &once(1));
    }
    let full = asks.begin(s(0), place, &once(1), Octets(vec![0; 578]), "one more").map(|_| ());
    assert_eq!(full, Err((BeginError::Full, Octets(vec![0; 578]), "one more")));
}

/// Another host, another of the peer's sockets, another of ours, or another number says nothing.
#[test]
fn a_forged_response_is_heard_by_no_transaction() {
    let mut asks = asks();
    let tid = begin(&mut asks, &once(1)).header.tid;
    let header = Header::new(Kind::Response, 0, tid, [0; 4]);
    let forged = [
        (SERVER ^ 0x100, CLIENTS_SOCKET, tid),
        (SERVER ^ 1, CLIENTS_SOCKET, tid),
        (SERVER, CLIENTS_SOCKET ^ 1, tid),
        (SERVER, CLIENTS_SOCKET, tid ^ 0x4000),
        (SERVER, CLIENTS_SOCKET, tid ^ 1),
    ];
    for (from, socket, tid) in forged {
        let header = Header { tid, ..header };
        let heard = asks.response(s(0), (from, socket), &header, Octets(vec![]));
        assert_eq!(heard, Err((Unheard::Unknown, Octets(vec![]))));
    }
    let big = asks.response(s(0), (SERVER, CLIENTS_SOCKET), &header, Octets(vec![0; 579]));
    assert_eq!(big.map_err(|(why, _)| why), Err(Unheard::TooBig));
    // A number beyond the eighth, which the parser refuses, has no bit.
    let ninth = Header { number: 8, ..header };
    let heard = asks.response(s(0), (SERVER, CLIENTS_SOCKET), &ninth, Octets(vec![]));
    assert_eq!(heard.map_err(|(why, _)| why), Err(Unheard::Repeated));
    assert!(asks.response(s(0), (SERVER, CLIENTS_SOCKET), &header, Octets(vec![])).is_ok());
}

#[test]
fn at_least_once_goes_up_each_time_and_is_not_remembered() {
    let mut serves = serves();
    let header = Header::request(None, 5, 9, [0; 4]);
    for _ in 0..3 {
        let ticket = ticket(request(&mut serves, s(0), &header));
        assert!(serves.is_empty());
        // The second response is not missing, whatever the reply is.
        let reply = serves.reply(s(0), &ticket, [1; 4], 2, Octets(b"aabbc".to_vec())).unwrap();
        assert_eq!(reply.omitted(), 2);
        assert_eq!(reply.clone_numbers(), [(0, false), (2, true)]);
    }
}

#[test]
fn a_release_of_what_has_no_reply_or_by_another_releases_nothing() {
    let mut serves = serves();
    let header = Header::request(Some(ReleaseTimer::HalfMinute), 1, 9, [0; 4]);
    let ticket = ticket(request(&mut serves, s(0), &header));
    assert!(!serves.release(s(0), (CLIENT, SERVERS_SOCKET), 9));
    assert_eq!(request(&mut serves, s(0), &header), Verdict::InProgress);
    assert!(serves.reply(s(0), &ticket, [0; 4], 578, Octets(vec![])).is_ok());
    for forged in [(CLIENT ^ 0x100, 0x90, 9), (CLIENT ^ 1, 0x90, 9), (CLIENT, 0x91, 9)] {
        assert!(!serves.release(s(0), (forged.0, forged.1), forged.2));
    }
    assert!(!serves.release(s(0), (CLIENT, SERVERS_SOCKET), 10));
    assert!(matches!(request(&mut serves, s(0), &header), Verdict::Repeat(_)));
    assert!(serves.release(s(0), (CLIENT, SERVERS_SOCKET), 9));
}

#[test]
fn the_release_timer_is_restarted_and_then_forgets() {
    let mut serves = serves();
    let header = Header::request(Some(ReleaseTimer::OneMinute), 1, 9, [0; 4]);
    let first = ticket(request(&mut serves, s(0), &header));
    assert_eq!(serves.poll(s(59)), (0, 0));
    assert!(serves.reply(s(59), &first, [0; 4], 578, Octets(vec![1])).is_ok());
    let late = serves.reply(s(59), &first, [0; 4], 578, Octets(vec![2]));
    assert_eq!(late.map(|_| ()), Err((ReplyError::Repeated, Octets(vec![2]))));
    assert_eq!(serves.poll(s(118)), (0, 0));
    assert!(matches!(request(&mut serves, s(118), &header), Verdict::Repeat(_)));
    assert_eq!(serves.poll(s(177)), (0, 0));
    assert_eq!((serves.poll(s(179)), serves.len(), serves.octets()), ((1, 0), 0, 0));
    let late = serves.reply(s(179), &first, [0; 4], 578, Octets(vec![2]));
    assert_eq!(late.map(|_| ()), Err((ReplyError::Unknown, Octets(vec![2]))));
    // What no reply was made to is forgotten, too, and told apart.
    ticket(request(&mut serves, s(200), &header));
    assert_eq!((serves.poll(s(260)), serves.due()), ((1, 1), None));
}

#[test]
fn a_refused_request_may_be_executed_when_it_comes_again() {
    let mut serves = serves();
    let header = Header::request(Some(ReleaseTimer::HalfMinute), 1, 9, [0; 4]);
    let first = ticket(request(&mut serves, s(0), &header));
    serves.refuse(&first);
    let second = ticket(request(&mut serves, s(1), &header));
    assert!(serves.reply(s(1), &second, [0; 4], 578, Octets(vec![])).is_ok());
    serves.refuse(&second);
    assert_eq!(serves.len(), 1, "what has its reply stays");
    serves.close(SERVERS_SOCKET ^ 1);
    assert_eq!(serves.len(), 1);
    serves.close(SERVERS_SOCKET);
    assert_eq!(serves.len(), 0);
}

#[test]
fn a_reply_beyond_eight_packets_is_refused_and_an_empty_one_is_one_packet() {
    for timer in [None, Some(ReleaseTimer::HalfMinute)] {
        let mut serves = serves();
        let header = Header::request(timer, 0xff, 9, [0; 4]);
        let ticket = ticket(request(&mut serves, s(0), &header));
        let big = Octets(vec![0; REPLY_OCTETS_MAX + 1]);
        let refused = serves.reply(s(0), &ticket, [0; 4], 0xffff, big.clone());
        assert_eq!(refused.map(|_| ()), Err((ReplyError::TooBig, big)));
        let nine = serves.reply(s(0), &ticket, [0; 4], 0, Octets(vec![0; 9]));
        assert_eq!(nine.map(|_| ()), Err((ReplyError::TooBig, Octets(vec![0; 9]))));
        let empty = serves.reply(s(0), &ticket, [0; 4], 512, Octets(vec![])).unwrap();
        assert_eq!(empty.clone_numbers(), [(0, true)]);
    }
}

/// A stranger that begins transactions and ends none takes its share and no more, and what was
/// remembered before is neither forgotten nor executed twice.
#[test]
fn a_flood_of_exactly_once_requests_is_refused_and_evicts_nothing() {
    let mut serves =
        Serves::new(Bounds { transactions: 8, per_host: 4, octets: 100, unreleased: 0 });
    let header = |tid| Header::request(Some(ReleaseTimer::EightMinutes), 1, tid, [0; 4]);
    let own = ticket(request(&mut serves, s(0), &header(1)));
    assert!(serves.reply(s(0), &own, [0; 4], 578, Octets(vec![1])).is_ok());
    let mut flood = |host: u32, count: usize| {
        let at = |tid: u16| (host << 8 | u32::from(tid) & 0xff, SERVERS_SOCKET);
        (0..1000)
            .filter(|tid| serves.request(s(0), at(*tid), &header(*tid)) != Verdict::Full)
            .count()
            == count
    };
    assert!(flood(7, 4) && flood(8, 3) && flood(9, 0));
    assert!(matches!(request(&mut serves, s(1), &header(1)), Verdict::Repeat(_)));
    assert_eq!(request(&mut serves, s(1), &header(2)), Verdict::Full);
    assert_eq!((serves.len(), serves.poll(s(480)), serves.poll(s(481)).0), (8, (7, 7), 1));
    // Octets that are kept have a bound of their own.
    let big = ticket(request(&mut serves, s(500), &header(1)));
    assert!(serves.reply(s(500), &big, [0; 4], 578, Octets(vec![1; 200])).is_ok());
    assert_eq!(request(&mut serves, s(500), &header(2)), Verdict::Full);
}

/// A host that has released something is remembered all the same: a flood in forged names keeps
/// neither it nor what it asks for from being served, and is bounded as before.
#[test]
fn a_host_that_releases_is_served_in_spite_of_a_flood() {
    let mut serves = Serves::new(Bounds { transactions: 8, per_host: 4, ..Bounds::DEFAULT });
    let header = |tid| Header::request(Some(ReleaseTimer::HalfMinute), 1, tid, [0; 4]);
    let own = ticket(request(&mut serves, s(0), &header(1)));
    assert!(serves.reply(s(0), &own, [0; 4], 578, Octets(vec![1])).is_ok());
    assert!(serves.release(s(1), (CLIENT, SERVERS_SOCKET), 1));
    for forged in 100_000..102_000 {
        let from = (forged << 8, SERVERS_SOCKET);
        let verdict = serves.request(s(2), from, &header(1));
        assert_eq!(verdict == Verdict::Full, forged >= 100_008, "{forged}");
    }
    for tid in 2..6 {
        assert!(matches!(request(&mut serves, s(3), &header(tid)), Verdict::Execute(_)), "{tid}");
    }
    assert_eq!(request(&mut serves, s(3), &header(6)), Verdict::Full);
    // Which is over a minute after its last release.
    let asked = request(&mut serves, s(61), &header(7));
    assert_eq!((asked, serves.len()), (Verdict::Full, 12));
    // There are no more than 64 such hosts; those that were first stay as long as they go on.
    let mut serves = Serves::new(Bounds { transactions: 100, ..Bounds::DEFAULT });
    for host in 0..1000u32 {
        let from = (host << 8, SERVERS_SOCKET);
        let Verdict::Execute(own) = serves.request(s(0), from, &header(1)) else {
            panic!("{host}")
        };
        assert!(serves.reply(s(0), &own, [0; 4], 578, Octets(vec![1])).is_ok());
        assert!(serves.release(s(0), from, 1));
    }
    let ask = |host: u32| (host << 8, SERVERS_SOCKET);
    for host in 2000..2100 {
        assert!(matches!(serves.request(s(1), ask(host), &header(1)), Verdict::Execute(_)));
    }
    let served =
        |host: &u32| matches!(serves.request(s(1), ask(*host), &header(2)), Verdict::Execute(_));
    assert_eq!((0..1000).filter(served).collect::<Vec<_>>(), (0..64).collect::<Vec<_>>());
}

/// Requests in the name of a host that asked for nothing: packets beyond the first of each reply,
/// and those sent again, are limited by the second, and a release makes up for its reply.
#[test]
fn a_forged_requester_is_sent_so_much_and_no_more() {
    let bounds = Bounds { unreleased: 100, ..Bounds::DEFAULT };
    for timer in [None, Some(ReleaseTimer::HalfMinute)] {
        let mut serves = Serves::new(bounds);
        let header = |tid| Header::request(timer, 0xff, tid, [0; 4]);
        // Of each request in a second of ten thousand, how many packets were sent.
        let mut flood = |at: Duration, tids: std::ops::Range<u16>| {
            let mut sent = 0;
            for tid in tids {
                match request(&mut serves, at, &header(tid)) {
                    Verdict::Execute(ticket) => {
                        let data = Octets(vec![7; REPLY_OCTETS_MAX]);
                        let reply = serves.reply(at, &ticket, [0; 4], 578, data);
                        sent += reply.expect("it fits").count();
                    }
                    Verdict::Repeat(packets) => sent += packets.count(),
                    Verdict::Unreleased | Verdict::Full => {}
                    Verdict::InProgress => panic!("it has a reply"),
                }
            }
            sent
        };
        // Each reply counts seven, and the last one may go beyond the bound.
        assert_eq!(flood(s(0), 0..10_000), 15 * 8, "{timer:?}");
        assert_eq!(flood(s(0), 0..10_000), 0);
        assert!((100..=130).contains(&flood(s(1), 20_000..30_000)));
        // What is asked for again counts whole.
        assert!((100..=112).contains(&flood(s(3), 0..15)) || timer.is_none());
        // Another host is served.
        let other = serves.request(s(3), (0xdead_0000, SERVERS_SOCKET), &header(1));
        assert!(matches!(other, Verdict::Execute(_)));
    }
    // One that releases has no such bound.
    let mut serves = Serves::new(bounds);
    for tid in 0..10_000 {
        let header = Header::request(Some(ReleaseTimer::HalfMinute), 0xff, tid, [0; 4]);
        let own = ticket(request(&mut serves, s(0), &header));
        let data = Octets(vec![7; REPLY_OCTETS_MAX]);
        assert!(serves.reply(s(0), &own, [0; 4], 578, data).is_ok());
        assert!(serves.release(s(0), (CLIENT, SERVERS_SOCKET), tid), "{tid}");
    }
}

#[test]
fn a_peer_of_this_network_replies_from_the_network_that_it_is() {
    use crate::addr::AtAddr;
    let here = AtAddr::new(0, 18, 144);
    assert!(here.is(&AtAddr::new(10, 18, 144)) && !here.is(&AtAddr::new(10, 17, 144)));
    let there = AtAddr::new(10, 18, 144);
    assert!(there.is(&here) && !there.is(&AtAddr::new(11, 18, 144)));
    assert!(there.is(&there) && !there.is(&AtAddr::new(10, 18, 145)));
    assert_ne!(there.host(), AtAddr::new(18, 10, 144).host());
}

/// The known limit (Inside AppleTalk, chapter 9): a request that was delayed until after the
/// release is taken for a new one, and executed a second time.
#[test]
fn a_request_delayed_past_its_release_is_executed_again() {
    let (mut asks, mut serves) = (asks(), serves());
    let asked = begin(&mut asks, &once(1));
    let delayed = asked.header;
    let first = ticket(request(&mut serves, s(0), &asked.header));
    let mut reply = serves.reply(s(0), &first, [0; 4], 578, Octets(vec![1])).unwrap();
    let heard = arrive(&mut asks, s(0), reply.next().unwrap()).unwrap();
    let Heard::Done { release: Some(release), .. } = heard else { panic!("{heard:?}") };
    assert!(serves.release(s(0), (CLIENT, SERVERS_SOCKET), release.header.tid));
    let second = ticket(request(&mut serves, s(1), &delayed));
    assert_eq!(second, first);
    let mut reply = serves.reply(s(1), &second, [0; 4], 578, Octets(vec![1])).unwrap();
    assert_eq!(arrive(&mut asks, s(1), reply.next().unwrap()), Err(Unheard::Unknown));
}

/// The other known limit: after 65536 transactions within a release timer a number comes again,
/// and if its release was lost the old reply is taken for the new one's.
#[test]
fn a_number_that_comes_round_within_the_release_timer_finds_the_old_reply() {
    let mut serves = serves();
    let header = Header::request(Some(ReleaseTimer::HalfMinute), 1, 9, [0; 4]);
    let first = ticket(request(&mut serves, s(0), &header));
    assert!(serves.reply(s(0), &first, [7; 4], 578, Octets(b"old".to_vec())).is_ok());
    let Verdict::Repeat(mut old) = request(&mut serves, s(29), &header) else { panic!() };
    assert_eq!(old.next().and_then(|packet| packet.data), Some(Octets(b"old".to_vec())));
}
