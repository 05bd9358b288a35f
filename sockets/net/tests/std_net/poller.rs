//! `Poller` and readiness.

use crate::{A_MOMENT, PATIENCE, everywhere};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use xk_net::{Driver, Mode, Poller, Ready, Source, Stack, UdpSocket, Watch};

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
        assert_eq!(wait(&poller, PATIENCE), [(7, Ready::READABLE)]);
    }
    other.recv(&mut [0; 8]).unwrap();
    assert_eq!(wait(&poller, Duration::ZERO), []);
    one.send(b"x").unwrap();
    assert_eq!(wait(&poller, PATIENCE).len(), 1);
}

fn by_edge_it_is_told_once_for_each_arrival<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&other, 7, Ready::READABLE, Mode::Edge).unwrap();
    for _ in 0..3 {
        one.send(b"x").unwrap();
        assert_eq!(wait(&poller, PATIENCE), [(7, Ready::READABLE)]);
        assert_eq!(wait(&poller, A_MOMENT), []);
    }
    poller.modify(7, Ready::READABLE, Mode::Edge).unwrap();
    assert_eq!(wait(&poller, PATIENCE).len(), 1, "what waits is an edge for a new interest");
}

fn once_means_once<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    let poller = Poller::new(stack);
    poller.register(&other, 7, Ready::READABLE, Mode::Once).unwrap();
    one.send(b"x").unwrap();
    assert_eq!(wait(&poller, PATIENCE).len(), 1);
    one.send(b"x").unwrap();
    assert_eq!(wait(&poller, A_MOMENT), []);
    poller.modify(7, Ready::READABLE, Mode::Once).unwrap();
    assert_eq!(wait(&poller, PATIENCE).len(), 1);
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
    assert_eq!(wait(&poller, PATIENCE), [(1, Ready::WRITABLE)]);
    // A socket that is always ready to be written does not keep others from being read.
    other.send(b"x").unwrap();
    let begun = Instant::now();
    while wait(&poller, PATIENCE) != [(1, both)] {
        assert!(begun.elapsed() < PATIENCE);
    }
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
        seen.extend(wait(&poller, PATIENCE).iter().map(|(key, _)| *key));
        assert!(begun.elapsed() < PATIENCE);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..pairs.len()));
}
