//! Each user's share of the tables of all, and nothing left of programs that have gone.
//!
//! `XK_LONG=1` has 100,000 programs come and go, which send ten million datagrams.

use xk_attach::PROGRAMS_OF_A_USER_MAX;
use xk_core::object::OpenError;
use xk_core::{Part, Participant, Participants};
use xk_domains::Carrier as _;
use xk_testkit::conformance::{counts_allocations, octets_live};

use crate::rig::{HONEST, HOSTILE, Host, OWN, PEER, PORT, Program, SHARE, TABLE, end};

impl Host {
    /// All that its transports hold of others.
    fn held(&self) -> [usize; 4] {
        let [udp, tcp] = &self.bottoms;
        [udp.held().len(), tcp.held().len(), udp.enables(), tcp.enables()]
    }
}

#[test]
fn a_user_has_a_share_of_each_table_whatever_its_programs_do() {
    let host = Host::new();
    let hostile: Vec<Program> = (0..3).map(|_| host.program(HOSTILE).unwrap()).collect();
    let honest = host.program(HONEST).unwrap();
    for node in ["udp", "tcp"] {
        let count = |act: &dyn Fn(&Program, u16) -> bool| {
            let ports = PORT..PORT + 2 * TABLE as u16;
            ports.zip(hostile.iter().cycle()).filter(|(port, program)| act(program, *port)).count()
        };
        assert_eq!(count(&|program, port| program.open(node, port).is_ok()), SHARE, "{node}");
        assert_eq!(count(&|program, port| program.enable(node, port).is_ok()), SHARE, "{node}");
        let port = PORT + 900;
        assert!(honest.open(node, port).is_ok() && honest.enable(node, port).is_ok(), "{node}");
        // And the host itself.
        let top = host.top("top");
        let transport = host.transports.iter().find(|of| of.name() == node).unwrap();
        for port in 0..SHARE as u16 + 1 {
            let ends = Participants::pair(end(OWN, 7000 + port), end(PEER, 9));
            assert!(top.open(&host.cx, transport, ends).is_ok(), "{node}");
        }
    }
    // What has gone makes room for others of its user.
    let mut hostile = hostile.into_iter();
    hostile.next().unwrap().goes(&host);
    let left = hostile.next().unwrap();
    assert!(left.open("udp", PORT + 500).is_ok() && left.enable("udp", PORT + 500).is_ok());
}

#[test]
fn a_port_is_of_the_user_that_has_it_whatever_the_host() {
    let host = Host::new();
    let (first, other) = (host.program(HONEST).unwrap(), host.program(HOSTILE).unwrap());
    let again = host.program(HONEST).unwrap();
    let top = host.top("top");
    for node in ["udp", "tcp"] {
        first.enable(node, PORT).expect("it is free");
        assert_eq!(other.enable_of(node, end(OWN, PORT)), Err(OpenError::InUse), "{node}");
        assert_eq!(other.open(node, PORT).map(drop), Err(OpenError::InUse), "{node}");
        assert!(again.enable_of(node, end(OWN, PORT)).is_ok(), "{node}: of the same user");
        // The other way round.
        other.enable_of(node, end(OWN, PORT + 1)).expect("it is free");
        assert_eq!(first.enable(node, PORT + 1), Err(OpenError::InUse), "{node}");
        // A port of the host's own.
        let transport = host.transports.iter().find(|of| of.name() == node).unwrap();
        let local = Participants::local(Participant::of(Part::Any).with(Part::port(PORT + 2)));
        let _held = top.enable(&host.cx, transport, local).expect("it is free");
        assert_eq!(other.enable_of(node, end(OWN, PORT + 2)), Err(OpenError::InUse), "{node}");
        assert_eq!(other.open(node, PORT + 2).map(drop), Err(OpenError::InUse), "{node}");
    }
    first.goes(&host);
    again.goes(&host);
    for node in ["udp", "tcp"] {
        assert!(other.enable_of(node, end(OWN, PORT)).is_ok(), "{node}: nobody has it any more");
    }
}

#[test]
fn a_user_has_a_share_of_the_places_at_a_door() {
    let host = Host::new();
    let hostile = (0..2 * PROGRAMS_OF_A_USER_MAX).filter_map(|_| host.program(HOSTILE));
    let hostile: Vec<Program> = hostile.collect();
    assert_eq!(hostile.len(), PROGRAMS_OF_A_USER_MAX);
    assert!(host.program(HONEST).is_some());
    // What has gone takes no place from what comes, though the door has not looked since.
    for (gone, program) in hostile.iter().enumerate() {
        program.end.close();
        assert!(host.program(HOSTILE).is_some(), "{gone} have gone");
    }
}

#[test]
fn nothing_grows_with_the_programs_that_have_come_and_gone() {
    assert!(counts_allocations(), "octets are counted");
    let (programs, datagrams) = match std::env::var_os("XK_LONG") {
        Some(_) => (100_000, 100),
        None => (3000, 4),
    };
    let host = Host::new();
    host.bottoms.iter().for_each(|bottom| bottom.keep(false));
    // Of each quarter of the programs the most that lives at one time: a table keeps some sessions
    // that were closed in its middle, and releases them together.
    let (mut most, mut nothing) = ([0; 4], host.held());
    let protocols = host.cx.protocols().len();
    for number in 0..programs {
        if number == programs / 4 {
            nothing = host.held();
        }
        let program = host.program(1000 + number % 3).expect("it is let in");
        for node in ["udp", "tcp"] {
            // The one in the middle goes first.
            let sessions: Vec<_> = (0..3).map(|at| program.open(node, PORT + at)).collect();
            program.enable(node, PORT).expect("within its share");
            let sessions: Vec<_> = sessions.into_iter().map(Result::unwrap).collect();
            if node == "udp" {
                for _ in 0..datagrams {
                    let datagram = program.kernel().pool().copy_from(128, b"to a peer").unwrap();
                    sessions[0].push(program.kernel(), datagram).expect("it crosses");
                }
            }
            sessions[1].close(program.kernel());
        }
        program.goes(&host);
        let quarter = &mut most[(4 * number / programs) as usize];
        *quarter = octets_live().max(*quarter);
    }
    assert_eq!(host.held(), nothing, "as with the first quarter of them");
    assert_eq!(host.cx.protocols().len(), protocols);
    assert!(host.bottoms[0].sent() >= programs as u64 * datagrams, "datagrams are sent");
    let grown = most[3] - most[1];
    println!("{programs} programs, {} datagrams: {grown} octets more", host.bottoms[0].sent());
    // A clock of each program would be a quarter of a megabyte.
    assert!(grown < 16 << 10, "{grown} octets more than of the second quarter: {most:?}");
}
