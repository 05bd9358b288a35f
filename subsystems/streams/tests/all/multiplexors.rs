//! Streams linked below multiplexors.

use crate::rig::{Driver, Rig, Seen};
use std::rc::Rc;
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Q, Stream};

/// Adds a multiplexor of this name; answers what it sees, and a stream of it.
fn mux(rig: &Rig, name: &'static str) -> (Rc<Seen>, Rc<Stream>) {
    let seen = Rc::<Seen>::default();
    let packets = (0, u32::MAX);
    let driver = Driver { name, seen: Rc::clone(&seen), is_multiplexor: true, packets };
    rig.streams.add_driver(name, Rc::new(driver));
    (seen, rig.streams.open(&rig.cx, name).unwrap())
}

#[test]
fn a_stream_is_linked_used_and_unlinked() {
    let rig = Rig::new();
    let (cx, lower) = (&rig.cx, &rig.stream);
    let (seen, upper) = mux(&rig, "mux");
    let index = upper.link(cx, lower).unwrap();
    assert_eq!((seen.links.borrow().len(), rig.streams.link_count()), (1, 1));
    // Its head is the multiplexor's now.
    assert_eq!(lower.write(cx, b"x"), Err(Errno::EINVAL));
    assert_eq!(rig.read(9), Err(Errno::EINVAL));
    assert_eq!(lower.nread(), Err(Errno::EINVAL));
    rig.up(Kind::Data, b"up");
    assert_eq!(seen.from_below.get(), 1);
    let bottom = seen.links.borrow()[0].bottom.upgrade().unwrap();
    bottom.putnext(cx, rig.streams.blocks().copy(Kind::Data, 0, b"down").unwrap());
    assert_eq!(rig.got(), [(Kind::Data, b"down".to_vec())]);
    drop(bottom);
    for wrong in [None, Some(index + 1)] {
        let is_all = wrong.is_none();
        let answer = upper.punlink(cx, wrong);
        assert_eq!(answer, if is_all { Ok(()) } else { Err(Errno::EINVAL) });
    }
    upper.unlink(cx, Some(index)).unwrap();
    assert_eq!(upper.unlink(cx, Some(index)), Err(Errno::EINVAL));
    assert_eq!((seen.links.borrow().len(), rig.streams.link_count()), (0, 0));
    rig.up(Kind::Data, b"up");
    assert_eq!(rig.read(9).unwrap(), b"up");
}

#[test]
fn what_cannot_be_linked_is_refused() {
    let rig = Rig::new();
    let (cx, lower) = (&rig.cx, &rig.stream);
    let (_, a) = mux(&rig, "a");
    let (_, b) = mux(&rig, "b");
    let (_, c) = mux(&rig, "c");
    // Not a multiplexor; itself; one that is linked already.
    assert_eq!(lower.link(cx, &a), Err(Errno::EINVAL));
    assert_eq!(a.link(cx, &a), Err(Errno::EINVAL));
    let another = rig.streams.open(cx, "a").unwrap();
    assert_eq!(a.link(cx, &another), Err(Errno::EINVAL));
    a.link(cx, lower).unwrap();
    assert_eq!(b.link(cx, lower), Err(Errno::EINVAL));
    // A cycle of three drivers.
    b.link(cx, &a).unwrap();
    c.plink(cx, &b).unwrap();
    let top = rig.streams.open(cx, "c").unwrap();
    assert_eq!(another.link(cx, &top), Err(Errno::EINVAL));
    assert_eq!(rig.streams.link_count(), 3);
}

#[test]
fn links_go_with_the_stream_unless_they_are_to_stay() {
    let rig = Rig::new();
    let (cx, lower) = (&rig.cx, &rig.stream);
    let (seen, upper) = mux(&rig, "mux");
    upper.link(cx, lower).unwrap();
    upper.close(cx);
    assert_eq!((rig.streams.link_count(), lower.is_linked()), (0, false));
    let upper = rig.streams.open(cx, "mux").unwrap();
    let index = upper.plink(cx, lower).unwrap();
    upper.close(cx);
    lower.close(cx);
    // The lower stream lives on without a user.
    rig.up(Kind::Data, b"up");
    assert_eq!((seen.from_below.get(), rig.seen.closes.get()), (1, 0));
    let again = rig.streams.open(cx, "mux").unwrap();
    assert_eq!(again.unlink(cx, Some(index)), Err(Errno::EINVAL));
    again.punlink(cx, Some(index)).unwrap();
    assert_eq!((rig.seen.closes.get(), rig.streams.link_count()), (1, 0));
}

#[test]
fn a_multiplexor_hears_that_its_lower_is_gone() {
    let rig = Rig::new();
    let (seen, upper) = mux(&rig, "mux");
    upper.link(&rig.cx, &rig.stream).unwrap();
    rig.up(Kind::Hangup, b"");
    assert_eq!(seen.from_below.get(), 1);
    rig.cx.stop();
    assert_eq!(rig.streams.opens().1, 0);
    let link = seen.links.borrow().first().cloned();
    assert!(link.is_none_or(|link| link.bottom.upgrade().is_none()));
    assert_eq!(rig.streams.blocks().stats().messages, 0);
}

/// Another subsystem's upper: it counts what comes.
struct Upper(Rc<Seen>);

impl Module for Upper {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(9, "adapter")
    }

    fn rput(&self, _: &xk_core::Kernel, _: &Q, mp: Mblk) {
        self.0.got.borrow_mut().push(mp);
    }

    fn close(&self, _: &xk_core::Kernel, _: &Q) {
        self.0.closes.set(1);
    }
}

#[test]
fn another_subsystem_has_the_place_of_a_head() {
    let rig = Rig::new();
    let cx = &rig.cx;
    let seen = Rc::<Seen>::default();
    let driver = rig.streams.driver("dev").unwrap();
    let q = rig.streams.attach(cx, driver, None, Rc::new(Upper(Rc::clone(&seen)))).unwrap();
    assert!(q.canputnext());
    q.putnext(cx, rig.streams.blocks().copy(Kind::Data, 0, b"down").unwrap());
    assert_eq!(rig.got().len(), 1);
    rig.up(Kind::Data, b"up");
    assert_eq!(seen.got.borrow().len(), 1);
    rig.streams.detach(cx, &q);
    assert_eq!((seen.closes.get(), rig.seen.closes.get()), (1, 1));
    q.putnext(cx, rig.streams.blocks().copy(Kind::Data, 0, b"lost").unwrap());
    assert_eq!(rig.streams.counts().lost, 1);
}
