//! AppleTalk at a door: sockets belong to the user that has them, as ports do.

use xk_core::object::{Enable, OpenError};
use xk_core::{
    Kernel, Part, Participant, Participants, Protocol, ProtocolRef, Session, SessionRef, Upper,
};
use xk_kit::net::appletalk::{NODE, SOCKET, socket};

use crate::rig::{HONEST, HOSTILE, Host};

/// Stands below `atp`: takes every participant.
pub(crate) struct Anything;

impl Protocol for Anything {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        struct Way;
        impl Session for Way {}
        let session = cx.new_session(this, upper.receiver, Way);
        session.head().set_peer(xk_core::HostAddr::LOCALHOST);
        Ok(session)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        Ok(Enable(1))
    }
}

fn local(socket: u64) -> Participant {
    Participant::of(Part::Any).with(Part::Number(SOCKET, socket))
}

/// A socket as [`local`] has it, by a name that says more.
fn of_node(socket: u64) -> Participant {
    Participant::of(Part::Number(NODE, 17)).with(Part::Number(SOCKET, socket))
}

#[test]
fn a_socket_is_of_the_user_that_has_it_whatever_the_node() {
    let host = Host::new();
    let (first, other) = (host.program(HONEST).unwrap(), host.program(HOSTILE).unwrap());
    let top = host.top("top");
    first.enable_of("atp", local(140)).expect("it is free");
    let open = |local| other.open_between("atp", local, socket(10, 18, 150)).map(drop);
    for alias in [local(140), of_node(140)] {
        assert_eq!(other.enable_of("atp", alias.clone()), Err(OpenError::InUse), "{alias}");
        assert_eq!(open(alias.clone()), Err(OpenError::InUse), "{alias}");
    }
    assert_eq!((open(local(141)), open(Participant::of(Part::Any))), (Ok(()), Ok(())));
    assert!(first.enable_of("atp", of_node(140)).is_ok(), "of the same user");
    // One of the host's own.
    let atp = host.cx.find_protocol("atp").unwrap();
    let _held = top.enable(&host.cx, &atp, Participants::local(local(150))).expect("it is free");
    assert_eq!(other.enable_of("atp", of_node(150)), Err(OpenError::InUse));
    first.goes(&host);
    assert!(other.enable_of("atp", of_node(140)).is_ok(), "nobody has it any more");
}

#[test]
fn sockets_of_protocols_and_all_that_are_left_are_no_programs() {
    let host = Host::new();
    let program = host.program(HOSTILE).unwrap();
    // Those of RTMP, NBP, AEP and ZIP, and the last that is given by name.
    for known in [1, 2, 4, 6, 127] {
        let enabled = program.enable_of("atp", local(known));
        assert_eq!(enabled, Err(OpenError::NotPermitted), "{known}");
        let opened = program.open_between("atp", local(known), socket(10, 18, 150)).map(drop);
        assert_eq!(opened, Err(OpenError::NotPermitted), "{known}");
    }
    let all = program.enable_of("atp", Participant::of(Part::Any));
    assert_eq!(all, Err(OpenError::NotPermitted));
    assert!(program.enable_of("atp", local(128)).is_ok());
}
