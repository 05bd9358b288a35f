//! Streams over the system's TCP: with the standard library's sockets at the other end, with those
//! of a graph on both, and records on top.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use xk_core::graph::Params;
use xk_core::object::Refused;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamError, StreamEvent, StreamInfo, StreamNotice, StreamRoom,
    StreamSet, StreamSetting, StreamShutdown, StreamSpace, StreamState,
};
use xk_run::{Idle, Runner, real_kernel};

/// Protocol on top: notes all, and answers as it is told.
#[derive(Default)]
struct Top {
    heard: RefCell<Vec<u8>>,
    events: RefCell<Vec<StreamEvent>>,
    sessions: RefCell<Vec<SessionRef>>,
    echoes: bool,
    full: RefCell<bool>,
    refuses: bool,
}

struct Upperside(Rc<Top>);

impl Protocol for Upperside {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        self.0.sessions.borrow_mut().push(lower.clone());
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if self.0.refuses {
            return Err(this.refuse(message, &reason::QUEUE_FULL));
        }
        self.0.heard.borrow_mut().extend(message.octets());
        if self.0.echoes {
            lower.push(cx, message).unwrap();
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(notice) = ask.get::<StreamNotice>() {
            self.0.events.borrow_mut().push(notice.event);
            if self.0.echoes && notice.event == StreamEvent::EndOfStream {
                notice.session.ask(cx, StreamShutdown).unwrap();
            }
        } else if let Some(room) = ask.get::<StreamRoom>() {
            room.full = *self.0.full.borrow();
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }
}

struct Rig {
    cx: Rc<Kernel>,
    runner: Runner,
    wire: ProtocolRef,
    upper: ProtocolRef,
    top: Rc<Top>,
}

impl Rig {
    fn new(top: Top) -> Self {
        let cx = Rc::new(real_kernel(8 << 20).unwrap());
        let wire = xk_host::TCP_ENTRY.add(&cx, "host-tcp", &[], &Params::default()).unwrap();
        let top = Rc::new(top);
        let upper = cx.add_protocol("top", "top", Upperside(Rc::clone(&top)));
        let runner = Runner::new(Rc::clone(&cx), Idle::Sleep).unwrap();
        runner.start().map_err(|(_, error)| error).unwrap();
        Self { cx, runner, wire, upper, top }
    }

    fn open(&self, to: std::net::SocketAddr) -> SessionRef {
        let ends = format!("*, port{}@{}", to.port(), to.ip()).parse().unwrap();
        self.wire.open(&self.cx, Upper::new(&self.upper), ends).unwrap()
    }

    fn until(&self, done: impl Fn(&Top) -> bool + 'static) {
        let top = Rc::clone(&self.top);
        let done = Rc::new(done);
        let is_done = Rc::clone(&done);
        let finished = Rc::new(move |_: &Kernel| is_done(&top));
        self.runner.run(Some(Duration::from_secs(30)), finished).unwrap();
        assert!(done(&self.top), "{:?}", self.top.events.borrow());
    }

    fn has(&self, event: StreamEvent) {
        self.until(move |top| top.events.borrow().contains(&event));
    }

    fn message(&self, octets: &[u8]) -> Message {
        self.cx.pool().copy_from(0, octets).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.top.sessions.borrow_mut().clear();
        self.cx.stop();
        assert_eq!(self.cx.pool().stats().buffers_live, 0);
    }
}

fn pattern(octets: usize) -> Vec<u8> {
    (0..octets).map(|at| (at ^ at >> 8) as u8).collect()
}

#[test]
fn a_stream_opened_here_carries_all_both_ways_and_ends_in_order() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        stream.write_all(&heard).unwrap();
        heard.len()
    });
    let rig = Rig::new(Top::default());
    let session = rig.open(to);
    rig.has(StreamEvent::Connected);
    let sent = pattern(3_000_000);
    let mut at = 0;
    while at < sent.len() {
        let space = session.ask(&rig.cx, StreamSpace::default()).unwrap().octets as usize;
        let count = space.min(20_000).min(sent.len() - at);
        if count == 0 {
            rig.top.events.borrow_mut().clear();
            rig.has(StreamEvent::Writable);
            continue;
        }
        session.push(&rig.cx, rig.message(&sent[at..at + count])).unwrap();
        at += count;
    }
    session.ask(&rig.cx, StreamShutdown).unwrap();
    rig.has(StreamEvent::EndOfStream);
    rig.has(StreamEvent::Closed);
    assert!(session.head().is_closed());
    assert_eq!(peer.join().unwrap(), sent.len());
    assert!(*rig.top.heard.borrow() == sent);
    assert_eq!(rig.wire.head().drops().total(), 0);
}

/// A port that nothing listens at now.
fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn an_enabled_port_takes_peers_when_there_is_room_for_them() {
    let port = free();
    let top = Top { echoes: true, full: RefCell::new(true), ..Top::default() };
    let rig = Rig::new(top);
    let local: Participants = format!("port{port}@127.0.0.1").parse().unwrap();
    let enable = rig.wire.open_enable(&rig.cx, Upper::new(&rig.upper), local).unwrap();
    let peers: Vec<_> = (0..5)
        .map(|turn| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let sent = vec![turn; 100_000];
                let mut other = stream.try_clone().unwrap();
                let mine = sent.clone();
                let writes = thread::spawn(move || {
                    other.write_all(&mine).unwrap();
                    other.shutdown(Shutdown::Write).unwrap();
                });
                let mut back = Vec::new();
                stream.read_to_end(&mut back).unwrap();
                writes.join().unwrap();
                assert!(back == sent);
            })
        })
        .collect();
    rig.runner.run(Some(Duration::from_millis(50)), Rc::new(|_| false)).unwrap();
    assert!(rig.top.sessions.borrow().is_empty(), "they wait");
    *rig.top.full.borrow_mut() = false;
    let closed = |event: &&StreamEvent| **event == StreamEvent::Closed;
    rig.until(move |top| top.events.borrow().iter().filter(closed).count() == 5);
    for peer in peers {
        peer.join().unwrap();
    }
    rig.wire.open_disable(&rig.cx, enable);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn what_breaks_is_told_with_its_reason() {
    let rig = Rig::new(Top::default());
    let refused = rig.open(([127, 0, 0, 1], free()).into());
    rig.has(StreamEvent::Failed(StreamError::Refused));
    assert!(refused.head().is_closed());

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let session = rig.open(listener.local_addr().unwrap());
    rig.has(StreamEvent::Connected);
    let (mut stream, _) = listener.accept().unwrap();
    session.ask(&rig.cx, StreamAbort).unwrap();
    assert!(rig.top.events.borrow().contains(&StreamEvent::Failed(StreamError::Aborted)));
    let error = stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn what_was_pushed_before_the_last_handle_went_arrives() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = Rig::new(Top::default());
    let session = rig.open(listener.local_addr().unwrap());
    session.push(&rig.cx, rig.message(&pattern(200_000))).unwrap();
    let too_much = session.push(&rig.cx, rig.message(&pattern(100_000)));
    assert_eq!(too_much, Err(xk_core::object::PushError::QueueFull));
    session.close(&rig.cx);
    let peer = thread::spawn(move || {
        let mut heard = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut heard).unwrap();
        heard
    });
    let done = Rc::clone(&rig.cx);
    let wire = rig.wire.clone();
    rig.until(move |_| {
        let list = wire.ask(&done, xk_core::control::ListSessions::first(8)).unwrap();
        list.here().next().is_none()
    });
    assert!(peer.join().unwrap() == pattern(200_000));
    drop(session);
}

#[test]
fn a_receiver_that_counts_holds_the_peer_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = Rig::new(Top::default());
    let session = rig.open(listener.local_addr().unwrap());
    for setting in [
        StreamSetting::ManualWindow(true),
        StreamSetting::ReceiveBuffer(30_000),
        StreamSetting::NoDelay(true),
    ] {
        assert!(session.ask(&rig.cx, StreamSet { setting, taken: false }).unwrap().taken);
    }
    let (mut stream, _) = listener.accept().unwrap();
    let peer = thread::spawn(move || stream.write_all(&pattern(400_000)).unwrap());
    rig.until(|top| top.heard.borrow().len() >= 30_000);
    rig.runner.run(Some(Duration::from_millis(50)), Rc::new(|_| false)).unwrap();
    let held = rig.top.heard.borrow().len();
    assert!(held < 30_000 + (16 << 10), "{held}");
    let info = session.ask(&rig.cx, StreamInfo::default()).unwrap();
    assert_eq!((info.delivered, info.state), (held as u64, StreamState::Established));
    let mut consumed = 0;
    while consumed < 400_000 {
        let heard = rig.top.heard.borrow().len();
        let octets = (heard - consumed) as u32;
        session.ask(&rig.cx, StreamConsumed { octets }).unwrap();
        consumed = heard;
        rig.until(move |top| top.heard.borrow().len() > heard || heard >= 400_000);
    }
    peer.join().unwrap();
    assert!(*rig.top.heard.borrow() == pattern(400_000));
}

#[test]
fn a_refusal_breaks_the_stream_and_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = Rig::new(Top { refuses: true, ..Top::default() });
    let session = rig.open(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"hello").unwrap();
    rig.has(StreamEvent::Failed(StreamError::Aborted));
    assert!(session.head().is_closed());
    assert!(stream.read(&mut [0; 8]).is_err(), "the peer is told");
}

/// Sockets of `xk-net` on it, against those of the standard library: as on `tcp`.
#[test]
fn sockets_stand_on_it() {
    let entries = &[&xk_host::TCP_ENTRY];
    let setup = xk_net::Setup::from_text("host a { host-tcp }", entries).tcp("host-tcp");
    let stack = setup.thread().unwrap();
    let port = free();
    let listener = xk_net::TcpListener::bind(&stack, format!("127.0.0.1:{port}")).unwrap();
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        stream.read_to_string(&mut back).unwrap();
        back
    });
    let (mut stream, peer) = listener.accept().unwrap();
    assert!(peer.ip().is_loopback());
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    stream.write_all(&heard).unwrap();
    drop(stream);
    assert_eq!(client.join().unwrap(), "hello");
}

/// Records of one host reach another whole, in order, over the system's stream.
#[test]
fn records_stand_on_it() {
    let port = free();
    let pair = [(); 2].map(|()| {
        let rig = Rig::new(Top::default());
        let rm =
            xk_rm::ENTRY.add(&rig.cx, "rm", std::slice::from_ref(&rig.wire), &Params::default());
        (rig, rm.unwrap())
    });
    let [(here, there_rm), (far, far_rm)] = &pair;
    let local = format!("port{port}@127.0.0.1").parse().unwrap();
    far_rm.open_enable(&far.cx, Upper::new(&far.upper), local).map(drop).unwrap();
    let ends = format!("*, port{port}@127.0.0.1").parse().unwrap();
    let session = there_rm.open(&here.cx, Upper::new(&here.upper), ends).unwrap();
    let mut expected = Vec::new();
    for size in [1, 40_000, 7, 100_000] {
        session.push(&here.cx, here.message(&pattern(size))).unwrap();
        expected.extend(pattern(size));
    }
    let begun = std::time::Instant::now();
    while far.top.heard.borrow().len() < expected.len() && begun.elapsed().as_secs() < 30 {
        here.runner.turn();
        far.runner.turn();
    }
    assert!(*far.top.heard.borrow() == expected);
    session.close(&here.cx);
    drop(session);
}
