//! Names, and what is heard of routers.

use crate::rig::{Host, Lan, send};
use core::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_streams::head::{Command, Info};
use xk_streams::{Errno, Kind, Mblk};
use xk_streams_appletalk::nbp::{LOOKUP, REGISTER, REMOVE};

/// A command as `I_STR` sends it.
fn command(host: &Host, command: Command, data: &[u8]) -> Mblk {
    let streams = &host.streams;
    let octets = [command.0, 99, data.len() as u32, 0, 0].map(u32::to_le_bytes).concat();
    let data = streams.blocks().copy(Kind::Data, 0, data).unwrap();
    streams.blocks().copy(Kind::Ioctl, 0, &octets).unwrap().linked(data)
}

/// Does a command while time passes; answers its error, or its data.
fn ask(lan: &Lan, host: &Host, which: Command, data: &[u8]) -> Result<Vec<u8>, Errno> {
    use std::cell::RefCell;
    use std::rc::Rc;
    struct Top(Rc<RefCell<Vec<Mblk>>>);
    impl xk_streams::Module for Top {
        fn info(&self) -> xk_streams::ModuleInfo {
            xk_streams::ModuleInfo::new(1, "top")
        }
        fn rput(&self, _: &xk_core::Kernel, _: &xk_streams::Q, mp: Mblk) {
            self.0.borrow_mut().push(mp);
        }
    }
    let answers = Rc::<RefCell<Vec<Mblk>>>::default();
    let driver = host.streams.driver("nbp").unwrap();
    let top = Rc::new(Top(Rc::clone(&answers)));
    let q = host.streams.attach(&host.cx, driver, None, top).unwrap();
    q.putnext(&host.cx, command(host, which, data));
    lan.run(Duration::from_secs(4));
    host.streams.detach(&host.cx, &q);
    let mut answer = answers.borrow_mut().pop().expect("an answer");
    let info = Info::of(&answer).unwrap();
    match answer.kind() {
        Kind::IocAck => Ok(answer.unlinkb().map(|data| data.to_vec()).unwrap_or_default()),
        _ => Err(info.error),
    }
}

fn text(found: &[u8]) -> String {
    String::from_utf8_lossy(found).into_owned()
}

#[test]
fn names_are_registered_found_and_taken_away() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    assert!(ask(&lan, a, REGISTER, b"\x80echo:XKernel@*").is_ok());
    // Another node cannot have it, nor this one twice.
    assert_eq!(ask(&lan, b, REGISTER, b"\x81echo:XKernel@*"), Err(Errno::EADDRINUSE));
    assert_eq!(ask(&lan, a, REGISTER, b"\x81Echo:xkernel@*"), Err(Errno::EADDRINUSE));
    for wrong in [&b"\x00echo:XKernel"[..], b"\x80=:XKernel", b"\x80nothing", b"", b"\xff\xff"] {
        assert_eq!(ask(&lan, b, REGISTER, wrong), Err(Errno::EINVAL));
    }
    for host in [a, b] {
        for pattern in [&b"echo:XKernel"[..], b"=:XKernel@*", b"=:=", b"ECHO:="] {
            let found = ask(&lan, host, LOOKUP, pattern).unwrap();
            let at = AtAddr::new(10, 17, 0x80).to_sockaddr();
            assert!(found.starts_with(&at), "{found:?}");
            assert!(text(&found).contains("echo:XKernel"));
        }
        assert_eq!(ask(&lan, host, LOOKUP, b"other:XKernel"), Ok(vec![]));
    }
    assert_eq!(ask(&lan, a, REMOVE, b"none:XKernel"), Err(Errno::EINVAL));
    assert!(ask(&lan, a, REMOVE, b"echo:XKernel").is_ok());
    assert_eq!(ask(&lan, b, LOOKUP, b"=:="), Ok(vec![]));
}

#[test]
fn vectors_of_names_are_answered() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    ask(&lan, a, REGISTER, b"\x80guest:XKernel").unwrap();
    // As nbplkup asks and atalkd answers, but for the addresses and the zone.
    let asking = b.bound("ddp", &AtAddr::new(0, 0, 0x81).to_sockaddr());
    let request = b"\x21\x01\x00\x0a\x12\x81\x00\x05guest\x07XKernel\x01*";
    send(&b.cx, &asking, &AtAddr::new(0, 255, 2).to_sockaddr(), &[2], request);
    for cut in 0..request.len() {
        send(&b.cx, &asking, &AtAddr::new(10, 17, 2).to_sockaddr(), &[2], &request[..cut]);
    }
    lan.run(Duration::from_secs(1));
    let (_, opt, data) = crate::rig::receive(&b.cx, &asking).unwrap();
    assert_eq!(opt, [2]);
    assert!(data.starts_with(b"\x31\x01\x00\x0a\x11\x80\x00\x05guest\x07XKernel"), "{data:?}");
    assert_eq!(crate::rig::receive(&b.cx, &asking), Err(Errno::EAGAIN));
}

/// Each packet that answers a node is counted, and none goes to all: a request names the address.
#[test]
fn names_answer_so_much_and_no_more() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    ask(&lan, a, REGISTER, b"\x80guest:XKernel").unwrap();
    let asking = b.bound("ddp", &AtAddr::new(0, 0, 0x81).to_sockaddr());
    let to = AtAddr::new(10, 17, 2).to_sockaddr();
    // One is for the question of AARP.
    for (node, times, least, most) in [(255, 1, 0, 1), (18, 4, 40, 52)] {
        let before = a.wire.sent();
        let request = [b"\x21\x01\x00\x0a", &[node][..], b"\x81\x00\x05guest\x07XKernel\x01*"];
        for _ in 0..times {
            (0..40).for_each(|_| send(&b.cx, &asking, &to, &[2], &request.concat()));
            lan.run(Duration::from_millis(1));
        }
        let sent = a.wire.sent() - before;
        assert!((least..=most).contains(&sent), "{sent} to node {node}");
    }
}

#[test]
fn a_router_is_heard_and_forgotten() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    let one = a.bound("ddp", &AtAddr::new(0, 0, 130).to_sockaddr());
    let far = AtAddr::new(77, 1, 9).to_sockaddr();
    let frames = |host: &Host| host.wire.sent();
    send(&a.cx, &one, &far, &[9], b"x");
    assert_eq!(a.drops(), 1);
    // The second host speaks as a router does.
    let router = b.bound("ddp", &AtAddr::new(0, 0, 131).to_sockaddr());
    let data = b"\x00\x0a\x08\x12\x00\x0a\x80\x00\x13\x82\x00\x0a\x80\x00\x13\x82";
    send(&b.cx, &router, &AtAddr::new(10, 17, 1).to_sockaddr(), &[1], data);
    lan.run(Duration::from_secs(1));
    let before = frames(a);
    send(&a.cx, &one, &far, &[9], b"x");
    assert!(frames(a) > before);
    assert_eq!(a.drops(), 1);
    lan.run(Duration::from_secs(60));
    send(&a.cx, &one, &far, &[9], b"x");
    assert_eq!(a.drops(), 2);
    for cut in 0..data.len() {
        send(&b.cx, &router, &AtAddr::new(10, 17, 1).to_sockaddr(), &[1], &data[..cut]);
    }
    lan.run(Duration::from_secs(1));
}
