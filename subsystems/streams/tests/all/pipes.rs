//! Stream pipes, and streams passed over them.

use crate::rig::Rig;
use std::rc::Rc;
use xk_streams::head::{POLLHUP, POLLIN, Signals, Want};
use xk_streams::{Bounds, Errno, Kind, Stream};

/// A pipe whose streams do not wait.
fn pipe(rig: &Rig) -> (Rc<Stream>, Rc<Stream>) {
    let (a, b) = rig.streams.pipe(&rig.cx).unwrap();
    a.set_nonblocking(true);
    b.set_nonblocking(true);
    (a, b)
}

fn read(rig: &Rig, stream: &Stream, max: usize) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0; max];
    let n = stream.read(&rig.cx, &mut room)?;
    Ok(room[..n].to_vec())
}

#[test]
fn what_is_written_to_one_end_comes_up_at_the_other() {
    let rig = Rig::new();
    let (a, b) = pipe(&rig);
    a.push(&rig.cx, "pass").unwrap();
    assert_eq!(a.write(&rig.cx, b"there"), Ok(5));
    assert_eq!(b.write(&rig.cx, b"back"), Ok(4));
    rig.cx.run_due();
    assert_eq!(read(&rig, &b, 9).unwrap(), b"there");
    assert_eq!(read(&rig, &a, 9).unwrap(), b"back");
    // Parts, bands and high priority pass as they are.
    a.putmsg(&rig.cx, Some(b"c"), Some(b"d"), (false, 3)).unwrap();
    a.putmsg(&rig.cx, Some(b"h"), None, (true, 0)).unwrap();
    rig.cx.run_due();
    assert!(b.getmsg(&rig.cx, Some(9), Some(9), Want::Any).unwrap().is_high);
    let got = b.getmsg(&rig.cx, Some(9), Some(9), Want::Band(3)).unwrap();
    assert_eq!((got.control, got.data, got.band), (Some(b"c".to_vec()), Some(b"d".to_vec()), 3));
    // An ioctl is refused as the head at the other end would.
    let asked = a.str_ioctl(&rig.cx, crate::rig::TURN, b"x", Default::default());
    assert_eq!(asked, Err(Errno::EINVAL));
}

#[test]
fn a_full_end_stops_the_writer_and_room_lets_it_go_on() {
    let rig = Rig::new();
    let (a, b) = pipe(&rig);
    let mut sent = 0;
    while let Ok(n) = a.write(&rig.cx, &[7; 1000]) {
        sent += n;
        rig.cx.run_due();
        assert!(sent < 100_000, "flow control holds");
    }
    // The head above and the driver's queue, 5120 octets each.
    assert_eq!(sent, 12_000);
    let mut got = 0;
    while let Ok(octets) = read(&rig, &b, 4000) {
        got += octets.len();
        rig.cx.run_due();
    }
    assert_eq!(got, sent);
    assert_eq!(a.write(&rig.cx, b"again"), Ok(5));
}

#[test]
fn a_flush_crosses_with_its_sides_exchanged() {
    let rig = Rig::new();
    let (a, b) = pipe(&rig);
    for (bits, at_a, at_b) in [(1_u8, false, true), (2, true, false), (3, false, false)] {
        a.write(&rig.cx, b"down").unwrap();
        b.write(&rig.cx, b"up").unwrap();
        rig.cx.run_due();
        a.flush(&rig.cx, bits).unwrap();
        rig.cx.run_due();
        assert_eq!(read(&rig, &a, 9).is_ok(), at_a, "{bits}");
        assert_eq!(read(&rig, &b, 9).is_ok(), at_b, "{bits}");
    }
}

#[test]
fn an_end_hears_that_the_other_is_closed() {
    let rig = Rig::new();
    let (a, b) = pipe(&rig);
    a.write(&rig.cx, b"last").unwrap();
    a.close(&rig.cx);
    assert_eq!(b.poll_now(&rig.cx, POLLIN), POLLIN | POLLHUP);
    assert_eq!(read(&rig, &b, 9).unwrap(), b"last");
    assert_eq!(read(&rig, &b, 9).unwrap(), b"");
    assert_eq!(b.write(&rig.cx, b"x"), Err(Errno::EPIPE));
    assert_eq!(b.sendfd(&rig.cx, &rig.stream), Err(Errno::ENXIO));
    b.close(&rig.cx);
    assert_eq!(rig.streams.opens().1, 1);
}

#[test]
fn a_stream_is_passed_and_lives_until_both_let_go() {
    let rig = Rig::new();
    let (cx, dev) = (&rig.cx, &rig.stream);
    let (a, b) = pipe(&rig);
    assert_eq!(b.recvfd(cx).err(), Some(Errno::EAGAIN));
    assert_eq!(dev.sendfd(cx, &a), Err(Errno::EINVAL));
    let told = Rc::new(std::cell::Cell::new(0));
    let seen = Rc::clone(&told);
    let handler = Rc::new(move |_: &xk_core::Kernel, events| seen.set(events));
    b.set_signals(Signals::INPUT, Some(handler)).unwrap();
    a.sendfd(cx, dev).unwrap();
    assert_eq!(told.get(), Signals::INPUT);
    // Neither data nor anything else is taken for it.
    assert_eq!(read(&rig, &b, 9), Err(Errno::EBADMSG));
    assert_eq!(b.getmsg(cx, None, None, Want::Any), Err(Errno::EBADMSG));
    dev.close(cx);
    assert!(dev.is_open());
    let got = b.recvfd(cx).unwrap();
    assert!(Rc::ptr_eq(&got, dev));
    rig.up(Kind::Data, b"still");
    assert_eq!(read(&rig, &got, 9).unwrap(), b"still");
    got.close(cx);
    assert_eq!((dev.is_open(), rig.seen.closes.get()), (false, 1));
    assert_eq!(a.sendfd(cx, dev), Err(Errno::EBADF));
    a.write(cx, b"data").unwrap();
    assert_eq!(b.recvfd(cx).err(), Some(Errno::EBADMSG));
    assert_eq!(read(&rig, &b, 9).unwrap(), b"data");
}

#[test]
fn a_stream_that_none_takes_is_closed() {
    let rig = Rig::new();
    let cx = &rig.cx;
    let (a, b) = pipe(&rig);
    for ending in 0..3 {
        let passed = rig.streams.open(cx, "dev").unwrap();
        a.sendfd(cx, &passed).unwrap();
        passed.close(cx);
        assert!(passed.is_open());
        match ending {
            0 => b.flush(cx, 1).unwrap(),
            1 => a.flush(cx, 2).unwrap(),
            _ => b.close(cx),
        }
        assert!(!passed.is_open(), "{ending}");
    }
    assert_eq!(rig.seen.closes.get(), 3);
    // A pipe in itself, and one in the other: the bound on streams holds them, the end frees them.
    let (c, d) = pipe(&rig);
    c.sendfd(cx, &d).unwrap();
    c.sendfd(cx, &c).unwrap();
    d.sendfd(cx, &d).unwrap();
    c.close(cx);
    d.close(cx);
    cx.stop();
    assert_eq!((rig.streams.opens().1, rig.streams.blocks().stats().messages), (0, 0));
}

#[test]
fn pipes_and_what_is_passed_are_bounded() {
    let cx = xk_testkit::kernel::TestKernel::new(1);
    let bounds = Bounds { streams_max: 3, ..Bounds::default() };
    let (streams, _) = xk_streams::add(&cx, "streams", bounds);
    let (a, b) = streams.pipe(&cx).unwrap();
    assert_eq!(streams.pipe(&cx).err(), Some(Errno::ENOSR));
    assert_eq!(streams.opens().1, 2);
    let mut passed = 0_u32;
    while a.sendfd(&cx, &a).is_ok() {
        passed += 1;
        assert!(passed < 10_000);
    }
    // The head is full at 5120 octets, four for each.
    assert_eq!((passed, a.sendfd(&cx, &a)), (1280, Err(Errno::EAGAIN)));
    b.close(&cx);
    assert!(a.is_open());
    a.close(&cx);
    assert_eq!(streams.opens().1, 0);
}
