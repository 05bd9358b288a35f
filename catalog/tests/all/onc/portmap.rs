//! The port mapper in the stack: ports found at the first call, mappings as long as they are
//! served, calls on behalf of others.

use crate::onc::net::{Faults, Net, PORT, PROGRAM, classic, host, words};
use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{CallCause, Enable, OpenError, Served};
use xk_core::{Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::rpc::call::{CallOptions, CancelCall};
use xk_portmap::Mappings;
use xk_portmap::universal::Netid;
use xk_testkit::kernel::Lower;

/// Both ends stand on a port mapper; the server's calls for others.
fn mapped(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let prog = classic(cx, name, below);
    let settings = xk_portmap::Settings {
        serve: name == "server",
        indirect: true,
        ..xk_portmap::Settings::default()
    };
    xk_portmap::add(cx, &format!("portmap-{name}"), prog, settings)
}

fn net(seed: u64) -> Rc<Net> {
    Net::new(seed, &mapped)
}

/// A session to a procedure of the server whose port is to be found.
fn unknown(net: &Net, procedure: u32) -> SessionRef {
    net.open_as(&format!("*, procedure{procedure}@version1@program{PROGRAM}@port0@10.0.0.2"))
}

/// Port of a version of the program in the server's table.
fn port(net: &Net, version: u32) -> Option<u16> {
    let table = net.tops[1].ask(&net.cx, Mappings::default())?;
    let mut all = table.mappings.iter();
    let found = all.find(|m| (m.program, m.version, m.netid) == (PROGRAM, version, Netid::Udp));
    found.map(|m| m.at.port)
}

/// Serves nothing but what it is told to: gives the octets of its name back.
struct Names(&'static str);

impl Protocol for Names {
    fn call_demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, request: Message) -> Served {
        drop(request);
        Ok(cx.pool().copy_from(128, self.0.as_bytes()).unwrap())
    }
}

/// Has something above the server's port mapper serve this participant.
fn offer(net: &Net, name: &'static str, local: &str) -> Result<Enable, OpenError> {
    let upper = net.cx.add_protocol("names", name, Names(name));
    let local = Participants::local(local.parse::<xk_core::Participant>().unwrap());
    net.tops[1].open_enable(&net.cx, Upper::new(&upper), local)
}

#[test]
fn the_port_is_found_at_the_first_call() {
    let net = net(1);
    let session = unknown(&net, 1);
    assert_eq!(net.call(&session, b"x"), Ok(b"x".to_vec()));
    // Asked once: question, answer, call, reply, call, reply.
    assert_eq!(net.call(&session, b"y"), Ok(b"y".to_vec()));
    assert_eq!(net.wire.borrow().len(), 6);
    drop(session);
    net.finish();
}

#[test]
fn a_call_that_gives_up_early_ends_no_other() {
    let net = net(2);
    let session = unknown(&net, 1);
    assert!(net.call(&session, b"x").is_ok());
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    let ends = Rc::new(RefCell::new(Vec::new()));
    for patience_ms in [500, 20_000] {
        let (ends, session) = (Rc::clone(&ends), session.clone());
        net.then(move |net| {
            let mut request = net.cx.message(b"x");
            let deadline = net.cx.now().after(Duration::from_millis(patience_ms));
            let options = CallOptions { deadline, tag: 0 };
            request.set_attribute(options).unwrap();
            let end = session.call(&net.cx, request).map(drop);
            ends.borrow_mut().push(end.map_err(|error| error.cause));
            // The network is well again once the first has given up.
            net.faults.set(Faults::default());
        });
    }
    net.run();
    assert_eq!(*ends.borrow(), [Err(CallCause::TimedOut { tries: 1 }), Ok(())]);
    drop(session);
    net.finish();
}

#[test]
fn whoever_waits_for_a_port_can_be_called_back() {
    let net = net(3);
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    let session = unknown(&net, 1);
    let ends = Rc::new(RefCell::new(Vec::new()));
    for tag in [7, 8] {
        let (ends, session) = (Rc::clone(&ends), session.clone());
        net.then(move |net| {
            let mut request = net.cx.message(b"x");
            let deadline = xk_core::Time::MAX;
            request.set_attribute(CallOptions { deadline, tag }).unwrap();
            let end = session.call(&net.cx, request).map(drop);
            ends.borrow_mut().push((tag, end.map_err(|error| error.cause)));
        });
    }
    let other = session.clone();
    net.then(move |net| {
        for tag in [7, 8] {
            let never = xk_core::shepherd::Semaphore::new(0);
            let _ = net.cx.wait(&never, Some(Duration::from_millis(10)));
            assert!(other.ask(&net.cx, CancelCall { tag }).is_some(), "{tag}");
        }
    });
    net.run();
    let cancelled = Err(CallCause::Cancelled);
    assert_eq!(*ends.borrow(), [(7, cancelled), (8, cancelled)]);
    drop(session);
    net.finish();
}

#[test]
fn a_mapping_stays_as_long_as_anybody_serves_the_version() {
    let net = net(4);
    let at = |procedure: u32| format!("procedure{procedure}@version2@program{PROGRAM}@port{PORT}");
    let first = offer(&net, "first", &at(1)).unwrap();
    let second = offer(&net, "second", &at(2)).unwrap();
    assert_eq!(port(&net, 2), Some(PORT));
    net.tops[1].open_disable(&net.cx, first);
    assert_eq!(port(&net, 2), Some(PORT), "the second serves it");
    net.tops[1].open_disable(&net.cx, second);
    assert_eq!(port(&net, 2), None);
    net.finish();
}

/// A call of `procedure` in version 2 of the port mapper, with these words.
fn ask(net: &Rc<Net>, procedure: u32, arguments: &[u32]) -> Option<Vec<u8>> {
    let mut all = vec![7, 0, 2, 100_000, 2, procedure, 0, 0, 0, 0];
    all.extend(arguments);
    net.datagram_at(111, &words(&all))
}

#[test]
fn a_call_on_behalf_of_another_reaches_whoever_serves_the_procedure() {
    let net = net(5);
    let at = |procedure: u32| format!("procedure{procedure}@version2@program{PROGRAM}@port{PORT}");
    for (name, procedure) in [("one.", 1), ("two.", 2)] {
        let _for_good = offer(&net, name, &at(procedure)).unwrap();
    }
    for (procedure, name) in [(1, b"one."), (2, b"two.")] {
        let reply = ask(&net, 5, &[PROGRAM, 2, procedure, 0]).unwrap();
        let mut expected = words(&[7, 1, 0, 0, 0, 0, PORT.into(), 4]);
        expected.extend(name);
        assert_eq!(reply, expected);
    }
    // One without a server: silence.
    assert_eq!(ask(&net, 5, &[PROGRAM, 2, 3, 0]), None);
    net.finish();
}

#[test]
fn what_the_graph_serves_is_in_the_table_whoever_was_there_before() {
    let below = [1, 2].map(|n| Lower::host(host(n), 17));
    let net = Net::with(6, &mapped, below, &format!("version1@program{PROGRAM}@port{PORT}"));
    // From this very host: another takes the name before the graph's own server comes.
    let set = [PROGRAM, 2, 17, 9];
    let mut all = vec![7, 0, 2, 100_000, 2, 1, 0, 0, 0, 0];
    all.extend(set);
    let reply = net.datagram_of(Part::host(host(2)), (1023, 111), &words(&all));
    assert_eq!(reply, Some(words(&[7, 1, 0, 0, 0, 0, 1])));
    assert_eq!(port(&net, 2), Some(9));
    let _for_good = offer(&net, "own", &format!("version2@program{PROGRAM}@port{PORT}")).unwrap();
    assert_eq!(port(&net, 2), Some(PORT));
    // Nor any user of this host, whatever its credential says: only from a reserved port.
    let taken =
        [vec![8, 0, 2, 100_000, 2, 1, 1, 24, 0, 0, 0, 0, 0, 0, 0, 0], vec![PROGRAM, 3, 17, 9]];
    for port in [1024, 40_000] {
        let denied = net.datagram_of(Part::host(host(2)), (port, 111), &words(&taken.concat()));
        assert_eq!(denied, Some(words(&[8, 1, 1, 1, 5])), "port {port}");
    }
    assert_eq!(port(&net, 3), None);
    // And from elsewhere none may.
    let denied = net.datagram_of(Part::host(host(1)), (1023, 111), &words(&all));
    assert_eq!(denied, Some(words(&[7, 1, 1, 1, 5])));
    net.finish();
}
