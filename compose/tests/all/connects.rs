//! Connections that begin one behind the other: each stands as soon as its segments have come and
//! gone, wherever the domains of its host lie.

use crate::sim::{built, checked, config, start};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use xk_core::{Answer, Ask, Kernel, Protocol, ProtocolRef, SessionRef, Time, Upper, reason};
use xk_kit::net::stream::{StreamAbort, StreamEvent, StreamNotice};
use xk_testkit::seeds;

/// Each layer of the server is a domain.
const GRAPH: &str = r#"
host client {
    sim link=lan
    eth sim
    arp eth
    ip arp { address "10.0.0.1/24"; }
    tcp ip
}
host server {
    domain device { sim link=lan; }
    domain link { eth sim; arp eth; }
    domain net { ip arp { address "10.0.0.2/24"; }; icmp ip; }
    domain transport { tcp ip; }
    domain sink { discard tcp port=9; }
}
link lan delay="50us"
"#;
const CONNECTIONS: usize = 200;
/// Longer than all crossings of a handshake, and shorter than any timer of TCP.
const AT_ONCE: Duration = Duration::from_millis(20);

/// Opens connections, each when the one before was there, and resets that.
struct Opener {
    tcp: ProtocolRef,
    session: RefCell<Option<SessionRef>>,
    begun: Cell<Time>,
    /// Time that each took.
    taken: RefCell<Vec<Duration>>,
}

struct Opens(Rc<Opener>);

impl Protocol for Opens {
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        let opener = &self.0;
        if let Some(session) = opener.session.take() {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        }
        if opener.taken.borrow().len() < CONNECTIONS {
            opener.begun.set(cx.now());
            let ends = "*, port9@10.0.0.2".parse().unwrap();
            let opened = opener.tcp.open(cx, Upper::new(this), ends).unwrap();
            opener.session.replace(Some(opened));
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let notice = ask.get::<StreamNotice>();
        let is_there = notice.is_some_and(|notice| notice.event == StreamEvent::Connected);
        if is_there {
            let whole = cx.now().since(self.0.begun.get());
            self.0.taken.borrow_mut().push(whole);
            cx.schedule_protocol(this, Duration::ZERO, 0).unwrap();
        }
        Answer::Unknown
    }
}

#[test]
fn a_connection_behind_one_that_was_reset_does_not_wait() {
    let graph = checked(GRAPH);
    seeds::of(30).run(|seed| {
        let what = format!("XK_SEED={seed}");
        let mut world = built(&graph, config(seed));
        let client = world.find("client").unwrap();
        let cx = Rc::clone(world.kernel(client).unwrap());
        let opener = Rc::new(Opener {
            tcp: cx.find_protocol("tcp").unwrap(),
            session: RefCell::default(),
            begun: Cell::new(Time::ZERO),
            taken: RefCell::default(),
        });
        let this = cx.add_protocol("opener", "opener", Opens(Rc::clone(&opener)));
        start(&graph, &mut world, &what);
        // The server has enabled by then.
        cx.schedule_protocol(&this, Duration::from_millis(100), 0).unwrap();
        world.run_until(Time::ZERO + Duration::from_secs(30));
        let taken = opener.taken.take();
        let late: Vec<_> =
            taken.iter().enumerate().skip(1).filter(|(_, taken)| **taken > AT_ONCE).collect();
        let lost: u64 = ["link", "net", "transport"]
            .iter()
            .filter_map(|domain| {
                let kernel = world.kernel(world.find(&format!("server/{domain}"))?)?;
                let drops = |of: &ProtocolRef| of.head().drops().of(&reason::NO_ANSWER);
                Some(kernel.protocols().iter().map(drops).sum::<u64>())
            })
            .sum();
        assert!(late.is_empty() && lost == 0, "{what}: {late:?}, {lost} questions lost");
        assert_eq!(taken.len(), CONNECTIONS, "{what}");
    });
}
