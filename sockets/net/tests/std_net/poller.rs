//! `Poller` and readiness.

use crate::{A_MOMENT, STEP_TIME_MAX, everywhere};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use xk_net::{
    Driver, Event, Mode, Poller, Ready, Source, Stack, TcpListener, TcpStream, Thread, UdpSocket,
    Watch,
};

everywhere!(
    by_level_it_is_told_until_it_is_read,
    by_edge_it_is_told_once_for_each_arrival,
    once_means_once,
    nothing_ready_ends_with_the_timeout,
    writing_is_ready_at_once,
    keys_are_taken_once,
    a_watch_is_told,
    one_poller_serves_many,
);

fn pair<D: Driver>(stack: &Stack<D>) -> (UdpSocket<D>, UdpSocket<D>) {
    let one = UdpSocket::bind(stack, "10.0.0.1:0").unwrap();
    let other = UdpSocket::bind(stack, "10.0.0.1:0").unwrap();
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}

/// The keys that are ready now or soon.
fn wait<D: Driver>(poller: &Poller<D>, time: Duration) -> Vec<(usize, Ready)> {
    let mut events = Vec::new();
    poller.wait(&mut events, Some(time)).unwrap();
    events.iter().map(|event| (event.key, event.ready)).collect()
}

fn by_level_it_is_told_until_it_is_read<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&other, 7, Ready::READABLE, Mode::Level).unwrap();
    one.send(b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(wait(&poller, STEP_TIME_MAX), [(7, Ready::READABLE)]);
    }
    other.recv(&mut [0; 8]).unwrap();
    assert_eq!(wait(&poller, Duration::ZERO), []);
    one.send(b"x").unwrap();
    assert_eq!(wait(&poller, STEP_TIME_MAX).len(), 1);
}

fn by_edge_it_is_told_once_for_each_arrival<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&other, 7, Ready::READABLE, Mode::Edge).unwrap();
    for _ in 0..3 {
        one.send(b"x").unwrap();
        assert_eq!(wait(&poller, STEP_TIME_MAX), [(7, Ready::READABLE)]);
        assert_eq!(wait(&poller, A_MOMENT), []);
    }
    poller.modify(7, Ready::READABLE, Mode::Edge).unwrap();
    assert_eq!(wait(&poller, STEP_TIME_MAX).len(), 1, "what waits is an edge for a new interest");
}

fn once_means_once<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&other, 7, Ready::READABLE, Mode::Once).unwrap();
    one.send(b"x").unwrap();
    assert_eq!(wait(&poller, STEP_TIME_MAX).len(), 1);
    one.send(b"x").unwrap();
    assert_eq!(wait(&poller, A_MOMENT), []);
    poller.modify(7, Ready::READABLE, Mode::Once).unwrap();
    assert_eq!(wait(&poller, STEP_TIME_MAX).len(), 1);
}

fn nothing_ready_ends_with_the_timeout<D: Driver>(stack: &Stack<D>) {
    let (_one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&other, 7, Ready::READABLE, Mode::Level).unwrap();
    let begun = Instant::now();
    assert_eq!(wait(&poller, A_MOMENT), []);
    assert!(begun.elapsed() >= A_MOMENT);
}

fn writing_is_ready_at_once<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    let both = Ready::READABLE | Ready::WRITABLE;
    poller.register(&one, 1, both, Mode::Level).unwrap();
    assert_eq!(wait(&poller, STEP_TIME_MAX), [(1, Ready::WRITABLE)]);
    // A socket that is always ready to be written does not keep others from being read.
    other.send(b"x").unwrap();
    xk_testkit::await_that!(
        STEP_TIME_MAX,
        wait(&poller, STEP_TIME_MAX) == [(1, both)],
        "it takes too long"
    );
}

fn keys_are_taken_once<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&one, 1, Ready::READABLE, Mode::Level).unwrap();
    let again = poller.register(&other, 1, Ready::READABLE, Mode::Level);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::InvalidInput);
    poller.deregister(1).unwrap();
    assert_eq!(poller.deregister(1).unwrap_err().kind(), ErrorKind::NotFound);
    let gone = poller.modify(1, Ready::READABLE, Mode::Level);
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
    other.send(b"x").unwrap();
    assert_eq!(wait(&poller, A_MOMENT), []);
}

fn a_watch_is_told<D: Driver>(stack: &Stack<D>) {
    struct Count(AtomicUsize);
    impl Watch for Count {
        fn notify(&self, now: Ready) {
            if now.is_readable() {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let (one, other) = pair(stack);
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let id = other.watch(Arc::clone(&count) as _);
    for told in 1..4 {
        one.send(b"x").unwrap();
        other.set_nonblocking(false).unwrap();
        other.recv(&mut [0; 8]).unwrap();
        assert_eq!(count.0.load(Ordering::SeqCst), told);
    }
    other.unwatch(id);
    one.send(b"x").unwrap();
    other.recv(&mut [0; 8]).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 3);
}

fn one_poller_serves_many<D: Driver>(stack: &Stack<D>) {
    let pairs: Vec<_> = (0..50).map(|_| pair(stack)).collect();
    let poller = Poller::new(stack);
    for (key, (_, other)) in pairs.iter().enumerate() {
        poller.register(other, key, Ready::READABLE, Mode::Edge).unwrap();
    }
    for (one, _) in &pairs {
        one.send(b"x").unwrap();
    }
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.len() < pairs.len() {
        seen.extend(wait(&poller, STEP_TIME_MAX).iter().map(|(key, _)| *key));
        assert!(begun.elapsed() < STEP_TIME_MAX);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..pairs.len()));
}

/// Results of poll(2) and epoll(7) for a descriptor beside another, which is ready from time to
/// time.
struct Beside<'p> {
    poller: BorrowedFd<'p>,
    other: OwnedFd,
    epoll: OwnedFd,
}

impl<'p> Beside<'p> {
    fn new(poller: BorrowedFd<'p>) -> Self {
        let other = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for (number, fd) in [poller, other.as_fd()].into_iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN).unwrap();
        }
        Self { poller, other, epoll }
    }

    /// Waits for both to become readable, within this time: the poller's descriptor, and the other
    /// one. Both calls agree, unless it changes between them.
    fn ready(&self, within: Duration) -> (bool, bool) {
        let begun = Instant::now();
        loop {
            let (polled, found) = (self.polled(within), self.found());
            if polled == found {
                return found;
            }
            assert!(begun.elapsed() < STEP_TIME_MAX, "epoll says what poll does");
        }
    }

    fn polled(&self, within: Duration) -> (bool, bool) {
        let within = Timespec { tv_sec: 0, tv_nsec: i64::from(within.subsec_nanos()) };
        let mut polled = [
            PollFd::from_borrowed_fd(self.poller, PollFlags::IN),
            PollFd::new(&self.other, PollFlags::IN),
        ];
        rustix::event::poll(&mut polled, Some(&within)).unwrap();
        let [poller, other] = polled.map(|fd| fd.revents().contains(PollFlags::IN));
        (poller, other)
    }

    fn found(&self) -> (bool, bool) {
        let mut events = Vec::with_capacity(4);
        let none = Timespec::default();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&none)).unwrap();
        let has = |number| events.iter().any(|event| event.data.u64() == number);
        (has(0), has(1))
    }
}

/// A poller's descriptor is ready with its sockets, and in a loop with others.
fn its_descriptor_is_ready_with_them(stack: &Stack<Thread>) {
    let listener = TcpListener::bind(stack, "10.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&listener, 1, Ready::READABLE, Mode::Level).unwrap();
    poller.register(&other, 2, Ready::READABLE, Mode::Edge).unwrap();
    let beside = Beside::new(poller.descriptor().unwrap());
    let mut events = Vec::new();
    // What is told of the beginning ends.
    let begun = Instant::now();
    while beside.ready(A_MOMENT).0 {
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty() && begun.elapsed() < STEP_TIME_MAX, "{events:?}");
    }
    rustix::io::write(&beside.other, &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(beside.ready(A_MOMENT), (false, true), "another of the loop alone");

    let until = |what: &str| {
        xk_testkit::await_that!(STEP_TIME_MAX, beside.ready(A_MOMENT).0, "{what}");
    };
    one.send(b"a datagram").unwrap();
    until("a datagram comes");
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(events, [Event { key: 2, ready: Ready::READABLE }]);
    assert!(!beside.ready(A_MOMENT).0, "an edge is told once");
    assert_eq!(other.recv(&mut [0; 16]).unwrap(), 10);

    let peer = TcpStream::begin_connect(stack, None, listener.local_addr().unwrap(), &[]).unwrap();
    until("a peer comes");
    for _ in 0..3 {
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().map(|event| event.key).collect::<Vec<_>>(), [1]);
        assert!(beside.ready(A_MOMENT).0, "a level stays");
    }
    let accepted = listener.accept().unwrap();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert!(events.is_empty() && !beside.ready(A_MOMENT).0, "none waits");
    drop((accepted, peer));
}

#[test]
fn a_descriptor_beside_a_graph() {
    its_descriptor_is_ready_with_them(&crate::thread());
}

#[test]
fn a_descriptor_attached() {
    crate::attached(|setup| its_descriptor_is_ready_with_them(&setup.thread().unwrap()));
}

#[test]
fn a_descriptor_on_a_library() {
    crate::library(|setup| its_descriptor_is_ready_with_them(&setup.thread().unwrap()));
}
