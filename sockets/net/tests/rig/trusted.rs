//! A registry and a network I/O module on a thread, and a peer on a stack of its own: both on
//! Ethernet in datagrams of the loopback device.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use xk_attach::Grant;
use xk_core::control::ListSessions;
use xk_core::graph::{Params, Value};
use xk_core::{Entry, Kernel, ProtocolRef, SessionRef};
use xk_domains::Known;
use xk_kit::net::stream::{StreamInfo, StreamState};
use xk_net::{Setup, Stack, Thread};
use xk_netio::{ListRights, Rate};
use xk_run::{Idle, Runner, real_kernel};

pub(crate) const ENTRIES: &[&Entry] = xk_catalog::PROTOCOLS;
/// The host with the registry.
pub(crate) const HERE: &str = "10.0.0.1";
/// Address of the peer.
pub(crate) const THERE: &str = "10.0.0.2";

const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };

/// Figures of the thread of registry and module.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    /// Looks so far.
    looks: AtomicUsize,
    /// Connections of the registry's own transport that do not only wait for late segments.
    connections: AtomicUsize,
    /// Rights of programs at the module.
    rights: AtomicUsize,
    /// Datagrams that have gone out and come in by the registry's transport.
    datagrams: AtomicUsize,
}

/// The host with the registry and the module; programs attach.
pub(crate) struct Trusted {
    path: PathBuf,
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
    /// Ports of the peer's datagrams: to it and from it.
    ends: (u16, u16),
}

/// A node of this kind with the defaults of a graph and what `set` sets.
fn node(
    cx: &Kernel,
    kind: &str,
    lower: Option<&ProtocolRef>,
    set: impl Fn(&mut Params),
) -> ProtocolRef {
    let entry = xk_catalog::find(kind).expect("it is in the catalog");
    for number in entry.type_numbers() {
        let _ = cx.numbers_mut().add(number);
    }
    let mut params = Params::default();
    set(&mut params);
    let lowers: Vec<_> = lower.into_iter().cloned().collect();
    entry.add(cx, kind, &lowers, &params).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// Ports of the loopback device that are free.
fn free_ports() -> (u16, u16) {
    let socket = || UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (one, other) = (socket(), socket());
    let port = |socket: &UdpSocket| socket.local_addr().expect("it has one").port();
    (port(&one), port(&other))
}

impl Trusted {
    pub(crate) fn new(name: &str) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let at = |what| {
            let file = format!("xk-library-{name}-{what}-{}-{number}", std::process::id());
            std::env::temp_dir().join(file)
        };
        let (path, door) = (at("open"), at("door"));
        let (seen, ends) = (Arc::<Seen>::default(), free_ports());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (theirs, place) = (Arc::clone(&seen), path.clone());
        let thread = std::thread::spawn(move || {
            let kernel = Rc::new(real_kernel(64 << 20).expect("a kernel"));
            let cx = &*kernel;
            let wire = node(cx, "host-eth", None, |params| {
                params.set("local", Value::Text(format!("127.0.0.1:{}", ends.0)));
                params.set("peer", Value::Text(format!("127.0.0.1:{}", ends.1)));
            });
            let (netio, module) = xk_netio::add(cx, "netio", wire);
            xk_netio::node::Door::open(cx, "netio door", &door, module).expect("a door");
            let eth = node(cx, "eth", Some(&netio), |_| {});
            let arp = node(cx, "arp", Some(&eth), |_| {});
            let ip = node(cx, "ip", Some(&arp), |params| {
                let mut address = Params::default();
                address.set("address", Value::Text(format!("{HERE}/24")));
                params.add_block("address", address);
            });
            node(cx, "icmp", Some(&ip), |_| {});
            let (tcp, udp) =
                (node(cx, "tcp", Some(&ip), |_| {}), node(cx, "udp", Some(&ip), |_| {}));
            let registry = xk_registry::add(cx, "registry", netio.clone(), FREELY);
            let services = |node| Grant { ports: Some(1..=1023), ..Grant::new(node) };
            let mut grants: Vec<Grant> = [&tcp, &udp].map(services).into();
            grants.extend([&tcp, &udp, &registry].map(Grant::new));
            let known = || Known::of(ENTRIES).with(&xk_netio::QUESTIONS);
            xk_attach::Door::open(cx, "users", &place, grants, known).expect("a place");
            let runner = Runner::new(Rc::clone(&kernel), Idle::Sleep).expect("a loop");
            runner.start().unwrap_or_else(|(of, error)| panic!("{}: {error}", of.name()));
            ready.send(()).unwrap();
            while !theirs.stop.load(Ordering::Relaxed) {
                runner.run(Some(Duration::from_millis(5)), Rc::new(|_| false)).unwrap();
                let list = tcp.ask(cx, ListSessions::first(usize::MAX)).unwrap_or_default();
                let info = |of: &SessionRef| of.ask(cx, StreamInfo::default());
                let rests = |info: &StreamInfo| info.state == StreamState::TimeWait;
                let begun = list.here().filter_map(info).filter(|info| !rests(info)).count();
                theirs.connections.store(begun, Ordering::Relaxed);
                let rights = netio.ask(cx, ListRights::default()).unwrap_or_default().rights;
                theirs.rights.store(rights.len(), Ordering::Relaxed);
                let ports = udp.ask(cx, ListSessions::first(usize::MAX)).unwrap_or_default();
                let now: u64 = ports.here().map(|port| port.head().sent()).sum();
                let datagrams = udp.head().received() + udp.head().folded().0 + now;
                theirs.datagrams.store(datagrams as usize, Ordering::Relaxed);
                theirs.looks.fetch_add(1, Ordering::Release);
            }
            drop(runner);
            kernel.stop();
        });
        is_ready.recv().unwrap();
        Self { path, seen, thread: Some(thread), ends }
    }

    /// Path at which programs attach.
    #[allow(dead_code, reason = "for tests with programs that are processes")]
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// A program's sockets.
    pub(crate) fn setup(&self) -> Setup {
        Setup::library(&self.path, ENTRIES)
    }

    /// The peer, with sockets on a stack of its own.
    pub(crate) fn peer(&self) -> Stack<Thread> {
        let (theirs, ours) = self.ends;
        let graph = format!(
            r#"host peer {{
                host-eth local="127.0.0.1:{ours}" peer="127.0.0.1:{theirs}"
                eth host-eth
                arp eth
                ip arp {{ address "{THERE}/24"; }}
                icmp ip
                udp ip
                tcp ip
            }}"#
        );
        Setup::from_text(graph, ENTRIES).idle(Idle::Sleep).thread().expect("the peer runs")
    }

    /// Number of connections of the registry's own transport, without those that only wait for late
    /// segments, and number of rights of the programs.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let seen = self.seen();
        let at = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (at(&seen.connections), at(&seen.rights))
    }

    /// Number of datagrams that have gone by the registry's own transport, either way.
    pub(crate) fn datagrams(&self) -> usize {
        self.seen().datagrams.load(Ordering::Relaxed)
    }

    /// Returns what the thread sees from now on.
    fn seen(&self) -> &Seen {
        let looks = || self.seen.looks.load(Ordering::Acquire);
        let before = looks();
        // The next look may have begun.
        while looks().wrapping_sub(before) < 2 {
            let thread = self.thread.as_ref();
            assert!(thread.is_some_and(|thread| !thread.is_finished()), "it has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        &self.seen
    }
}

impl Drop for Trusted {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}
