//! Tests of the packets on the wire and of arrivals, octet by octet.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use xk_appletalk::atp::{Header, Kind, OptionKind, Options, ReleaseTimer, Want, bitmap_of};
use xk_core::object::{CallCause, PushError};
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, SessionRef,
};
use xk_kit::rpc::call::Transaction;
use xk_testkit::kernel::{Bottom, Family, HEADROOM, Lower, TestKernel, Top};

const LIMIT: Duration = Duration::from_secs(600);

fn host(n: u32) -> HostAddr {
    Family::V4.host(n)
}

/// Packets that were sent, the reply, and its options.
type Called = (Vec<Vec<u8>>, Result<Vec<u8>, CallCause>, Option<Options>);

/// One instance on a bottom that a test answers.
struct Node {
    cx: TestKernel,
    bottom: Rc<Bottom>,
    atp: ProtocolRef,
    top: Top,
}

impl Node {
    fn new(settings: xk_atp::Settings) -> Self {
        let cx = TestKernel::with_stacks(7);
        let bottom = Rc::new(Bottom::add(&cx, "ddp", Lower::host(host(1), 0)));
        let atp = xk_atp::add(&cx, "atp", bottom.protocol().clone(), settings);
        let top = Top::add(&cx, "top");
        cx.start().unwrap();
        Self { cx, bottom, atp, top }
    }

    fn open(&self) -> SessionRef {
        let to = Participants::pair(Part::Any, Part::Host(host(2)));
        self.top.open(&self.cx, &self.atp, to).unwrap()
    }

    /// Calls while the peer does this with each packet; what was sent, and the reply.
    fn call(
        &self,
        request: Message,
        peer: impl Fn(Header, &[u8]) -> Vec<Vec<u8>> + 'static,
    ) -> Called {
        let session = self.open();
        let (sent, all) = (Rc::new(RefCell::new(Vec::new())), Rc::clone(&self.bottom));
        let wrote = Rc::clone(&sent);
        let carry = move |cx: &Kernel| {
            let frames = all.take_sent();
            let count = frames.len();
            for frame in frames {
                let octets: Vec<u8> = frame.message.octets().collect();
                let header = Header::parse(&octets).unwrap();
                wrote.borrow_mut().push(octets.clone());
                for answer in peer(header, &octets[8..]) {
                    let message = cx.pool().copy_from(HEADROOM, &answer).unwrap();
                    all.inject(cx, Some(Part::Host(host(2))), message);
                }
            }
            count
        };
        let end = self.cx.call_all_carried(vec![(session.clone(), request)], carry).remove(0);
        let wrote: Vec<_> =
            self.bottom.take_sent().iter().map(|sent| sent.message.octets().collect()).collect();
        sent.borrow_mut().extend(wrote);
        session.close(&self.cx);
        let beside = end.as_ref().ok().and_then(Message::attribute::<Transaction>);
        let beside = beside.map(|Transaction(octets)| Options::parse(&octets).unwrap());
        let sent = sent.take();
        (sent, end.map(|reply| reply.octets().collect()).map_err(|error| error.cause), beside)
    }

    /// Packets that the server sends when this arrives from a host.
    fn arrives(&self, from: u32, octets: &[u8]) -> Vec<Vec<u8>> {
        let (bottom, message) = (Rc::clone(&self.bottom), self.cx.message(octets));
        let task = Box::new(move |cx: &Kernel| {
            bottom.inject(cx, Some(Part::Host(host(from))), message);
        });
        assert!(self.cx.run_tasks(LIMIT, vec![task], |_| 0));
        self.bottom.take_sent().iter().map(|sent| sent.message.octets().collect()).collect()
    }

    fn serve(&self) {
        let local = Participants::local(Part::Any);
        let _ = self.top.enable(&self.cx, &self.atp, local).unwrap();
    }

    fn drops(&self, reason: &'static xk_core::Reason) -> u64 {
        self.atp.head().drops().of(reason)
    }
}

fn response(tid: u16, number: u8, end: bool, data: &[u8]) -> Vec<u8> {
    let header = Header {
        end_of_message: end,
        ..Header::new(Kind::Response, number, tid, [number, 1, 2, 3])
    };
    [&header.emit()[..], data].concat()
}

#[test]
fn an_exactly_once_call_is_request_responses_and_release() {
    let node = Node::new(xk_atp::Settings { responses: 3, ..Default::default() });
    let (sent, reply, beside) =
        node.call(node.cx.message(b"hello"), |header, _| match header.kind {
            Kind::Request => [(2, true, b"bye"), (0, false, b"abc"), (1, false, b"def")]
                .map(|(number, end, data)| response(header.tid, number, end, data))
                .to_vec(),
            _ => Vec::new(),
        });
    assert_eq!(reply.unwrap(), b"abcdefbye");
    let tid = &sent[0][2..4];
    assert_eq!(sent[0], [&[0x60, 7][..], tid, &[0; 4], b"hello"].concat());
    assert_eq!(sent[1..], [[&[0xc0, 0][..], tid, &[0; 4]].concat()]);
    let beside = beside.unwrap();
    assert_eq!((beside.kind, beside.user), (OptionKind::Response, [0, 1, 2, 3]));
    assert_eq!((beside.bitmap, beside.end_of_message), (7, true));
}

#[test]
fn a_request_says_what_it_asks_for_and_only_what_is_missing_comes_again() {
    let node = Node::new(xk_atp::Settings::default());
    let want = Want { user: *b"user", bitmap: bitmap_of(2), ..Want::DEFAULT };
    let mut request = node.cx.message(b"x");
    let beside = Transaction(Options::request(&want, 0).emit());
    request.set_attribute(beside).unwrap();
    let (sent, reply, _) = node.call(request, |header, _| match header.number {
        // The second is lost at first.
        3 => vec![response(header.tid, 0, false, b"a"), response(header.tid, 0, false, b"a")],
        _ => vec![response(header.tid, 1, false, b"b")],
    });
    assert_eq!(reply.unwrap(), b"ab");
    assert_eq!(sent[0][..2], [0x40, 3]);
    assert_eq!(sent[1], [&[0x40, 2][..], &sent[0][2..4], b"userx"].concat());
    assert_eq!(sent.len(), 2, "executed at least once, it has nothing to release");
    assert_eq!(node.drops(&xk_atp::REPEATED_RESPONSE), 1);
}

#[test]
fn tries_come_to_an_end_and_a_request_of_579_octets_is_refused() {
    let node = Node::new(xk_atp::Settings { tries: 3, ..Default::default() });
    let begun = node.cx.now();
    let (sent, reply, _) = node.call(node.cx.message(b"x"), |_, _| Vec::new());
    assert_eq!((sent.len(), reply), (3, Err(CallCause::TimedOut { tries: 3 })));
    assert_eq!(node.cx.now().since(begun), Duration::from_secs(6));
    let (sent, reply, _) = node.call(node.cx.message(&[0; 579]), |_, _| Vec::new());
    assert_eq!((sent.len(), reply), (0, Err(CallCause::Push(PushError::TooBig))));
    let (sent, reply, _) =
        node.call(node.cx.message(&[0; 578]), |header, _| vec![response(header.tid, 0, true, b"")]);
    assert_eq!((sent.len(), reply), (2, Ok(Vec::new())));
}

#[test]
fn a_request_for_no_response_is_sent_and_done() {
    let node = Node::new(xk_atp::Settings { responses: 0, xo: false, ..Default::default() });
    let (sent, reply, _) = node.call(node.cx.message(b"tickle"), |_, _| Vec::new());
    assert_eq!((sent.len(), reply), (1, Ok(Vec::new())));
    assert_eq!(sent[0][..2], [0x40, 0]);
}

#[test]
fn send_status_is_answered_at_once() {
    let node = Node::new(xk_atp::Settings { responses: 2, ..Default::default() });
    let (begun, asked) = (node.cx.now(), RefCell::new(0));
    let (sent, reply, _) = node.call(node.cx.message(b"x"), move |header, _| {
        *asked.borrow_mut() += 1;
        match *asked.borrow() {
            1 => {
                let mut first = response(header.tid, 0, false, b"a");
                first[0] |= 8;
                vec![first]
            }
            2 => vec![response(header.tid, 1, true, b"b")],
            _ => Vec::new(),
        }
    });
    assert_eq!((reply.unwrap(), sent.len()), (b"ab".to_vec(), 3));
    assert_eq!((sent[1][1], node.cx.now()), (2, begun));
}

/// Papd's request for a printer's status, as the sources have it.
#[test]
fn a_server_executes_once_and_sends_again_what_is_asked_for() {
    let node = Node::new(xk_atp::Settings::default());
    node.top.on_serve(Some(Rc::new(|cx, _, request| {
        let Transaction(octets) = request.attribute().unwrap();
        let asked = Options::parse(&octets).unwrap();
        assert_eq!((asked.user, asked.bitmap), ([7, 3, 0, 1], 0xff));
        assert_eq!(asked.once, Some(ReleaseTimer::HalfMinute));
        let mut reply = cx.pool().copy_from(HEADROOM, &[9; 1200]).unwrap();
        let beside = Options { amount: 512, ..asked.response([7, 4, 1, 0]) };
        reply.set_attribute(Transaction(beside.emit())).unwrap();
        Ok(reply)
    })));
    node.serve();
    let request = [0x60, 0xff, 0x75, 0xc9, 7, 3, 0, 1];
    let first = node.arrives(2, &request);
    assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [520, 520, 184]);
    assert_eq!(first[0][..8], [0x80, 0, 0x75, 0xc9, 7, 4, 1, 0]);
    assert_eq!(first[2][..8], [0x90, 2, 0x75, 0xc9, 7, 4, 1, 0]);
    let mut again = request;
    again[1] = 0b110;
    assert_eq!(node.arrives(2, &again), first[1..]);
    // The same number of another host is another transaction.
    assert_eq!(node.arrives(3, &request).len(), 3);
    assert_eq!(node.top.served(), 2);
    assert!(node.arrives(3, &[0xc0, 0, 0x75, 0xc8, 0, 0, 0, 0]).is_empty());
    assert_eq!(node.drops(&xk_atp::NO_TRANSACTION), 1);
    assert!(node.arrives(2, &[0xc0, 0, 0x75, 0xc9, 0, 0, 0, 0]).is_empty());
    assert!(node.arrives(3, &[0xc0, 0, 0x75, 0xc9, 0, 0, 0, 0]).is_empty());
    assert_eq!(node.drops(&xk_atp::NO_TRANSACTION), 1);
    assert_eq!(node.arrives(2, &request).len(), 3);
    assert_eq!(node.top.served(), 3, "released, it is a new one");
    node.cx.advance(Duration::from_secs(31));
    assert_eq!(node.arrives(2, &request).len(), 3);
    assert_eq!(node.top.served(), 4, "and forgotten, too");
}

#[test]
fn what_is_refused_is_not_remembered_and_what_is_executed_is_though_its_reply_is_too_big() {
    let node = Node::new(xk_atp::Settings::default());
    node.top.on_serve(Some(Rc::new(|cx, _, _| {
        cx.pool().copy_from(0, &[0; 8 * 578 + 1]).map_err(|_| &xk_core::reason::NO_BUFFERS)
    })));
    node.serve();
    let once = Some(ReleaseTimer::HalfMinute);
    let big = Header::request(once, 0xff, 8, [0; 4]).emit();
    for again in 0..3 {
        assert!(node.arrives(2, &big).is_empty());
        assert_eq!(node.drops(&xk_atp::REPLY_TOO_BIG), 1);
        assert_eq!(node.drops(&xk_atp::REPEATED_REQUEST), again);
        assert_eq!(node.top.served(), 1);
    }
    let request = Header::request(once, 0xff, 9, [0; 4]).emit();
    node.top.on_serve(Some(Rc::new(|_, _, _| Err(&xk_kit::rpc::call::BUSY))));
    assert!(node.arrives(2, &request).is_empty());
    node.top.on_serve(None);
    let sent = node.arrives(2, &[&request[..], b"echo"].concat());
    assert_eq!(sent, [[&[0x90, 0, 0, 9, 0, 0, 0, 0][..], b"echo"].concat()]);
    assert_eq!(node.top.served(), 3);
}

#[test]
fn a_flood_of_requests_is_refused_counted_and_takes_nothing_from_others() {
    let settings = xk_atp::Settings { remembered: 8, remembered_host: 4, ..Default::default() };
    let node = Node::new(settings);
    node.serve();
    let request = |tid| Header::request(Some(ReleaseTimer::EightMinutes), 1, tid, [0; 4]).emit();
    assert_eq!(node.arrives(9, &request(1)).len(), 1);
    for host in [2, 3] {
        for tid in 0..100 {
            node.arrives(host, &request(tid));
        }
    }
    assert_eq!((node.top.served(), node.drops(&xk_atp::TOO_MANY_REMEMBERED)), (8, 193));
    assert_eq!(node.arrives(9, &request(1)).len(), 1, "what is remembered stays");
    assert_eq!(node.top.served(), 8);
    // What is executed at least once needs no room.
    assert_eq!(node.arrives(4, &Header::request(None, 1, 1, [0; 4]).emit()).len(), 1);
}

#[test]
fn malformed_packets_of_every_length_are_counted() {
    let node = Node::new(xk_atp::Settings::default());
    node.serve();
    let request = Header::request(None, 1, 1, [0; 4]).emit();
    for len in 0..8 {
        assert!(node.arrives(2, &request[..len]).is_empty());
    }
    for bad in [[0x00; 8], [0x3f; 8], [0x88, 8, 0, 0, 0, 0, 0, 0]] {
        assert!(node.arrives(2, &bad).is_empty());
    }
    assert_eq!(node.drops(&xk_core::reason::MALFORMED), 3);
    assert!(node.arrives(2, &[&request[..], &[0; 579]].concat()).is_empty());
    assert!(node.arrives(2, &[0x80, 0, 0, 0, 0, 0, 0, 0]).is_empty());
    assert_eq!(node.drops(&xk_atp::NO_TRANSACTION), 1);
    assert_eq!(node.top.served(), 0);
}

/// Each of two servers has what is sent to its own address.
#[test]
fn servers_are_told_apart_by_what_they_enabled() {
    let node = Node::new(xk_atp::Settings::default());
    let other = Top::add(&node.cx, "other");
    let at = |n| Participants::local(Participant::of(Part::Host(host(n))));
    let _ = other.enable(&node.cx, &node.atp, at(1)).unwrap();
    let _ = node.top.enable(&node.cx, &node.atp, at(5)).unwrap();
    assert_eq!(node.arrives(2, &Header::request(None, 1, 1, [0; 4]).emit()).len(), 1);
    assert_eq!((node.top.served(), other.served()), (0, 1));
    assert!(other.enable(&node.cx, &node.atp, at(5)).is_err(), "it is in use");
}
