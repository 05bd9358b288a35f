//! `write`, `putmsg`, flow control along a stream, and flushing.

use crate::rig::Rig;
use xk_streams::{Errno, Kind};

#[test]
fn write_cuts_at_the_largest_packet() {
    let rig = Rig::with_packets((0, 4));
    assert_eq!(rig.stream.write(&rig.cx, b"abcdefghij"), Ok(10));
    let got: Vec<_> = rig.got().into_iter().map(|(_, octets)| octets).collect();
    assert_eq!(got, [b"abcd".to_vec(), b"efgh".to_vec(), b"ij".to_vec()]);
    let rig = Rig::with_packets((2, 4));
    for (octets, answer) in
        [(&b"a"[..], Err(Errno::ERANGE)), (b"ab", Ok(2)), (b"abcde", Err(Errno::ERANGE))]
    {
        assert_eq!(rig.stream.write(&rig.cx, octets), answer);
    }
    assert_eq!(rig.stream.putmsg(&rig.cx, None, Some(b"abcde"), (false, 0)), Err(Errno::ERANGE));
    assert_eq!(rig.stream.putmsg(&rig.cx, Some(b"c"), Some(b"a"), (false, 0)), Err(Errno::ERANGE));
    assert_eq!(rig.stream.putmsg(&rig.cx, Some(b"c"), None, (false, 0)), Ok(()));
}

#[test]
fn a_write_of_nothing_sends_one_or_none() {
    let rig = Rig::new();
    assert_eq!(rig.stream.write(&rig.cx, b""), Ok(0));
    assert_eq!(rig.got(), [(Kind::Data, vec![])]);
    rig.stream.set_sends_zero(false).unwrap();
    assert_eq!(rig.stream.sends_zero(), Ok(false));
    assert_eq!(rig.stream.write(&rig.cx, b""), Ok(0));
    assert_eq!(rig.got(), []);
}

#[test]
fn putmsg_sends_parts() {
    let rig = Rig::new();
    let put = |control: Option<&[u8]>, data: Option<&[u8]>, how| {
        rig.stream.putmsg(&rig.cx, control, data, how)
    };
    assert_eq!(put(Some(b"c"), Some(b"d"), (false, 0)), Ok(()));
    assert_eq!(put(Some(b"c"), None, (true, 0)), Ok(()));
    assert_eq!(put(None, Some(b"d"), (false, 9)), Ok(()));
    assert_eq!(put(None, None, (false, 0)), Ok(()));
    assert_eq!(put(None, Some(b"d"), (true, 0)), Err(Errno::EINVAL));
    assert_eq!(put(Some(b"c"), None, (true, 1)), Err(Errno::EINVAL));
    // High priority, the band, then the rest.
    let all = [
        (Kind::PcProto, b"c".to_vec()),
        (Kind::Data, b"d".to_vec()),
        (Kind::Proto, b"cd".to_vec()),
    ];
    assert_eq!(rig.got(), all);
}

#[test]
fn writers_are_stopped_at_the_mark_and_go_on_below_the_other() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    rig.seen.is_stopped.set(true);
    let mut sent = 0;
    while stream.write(cx, &[0; 300]).is_ok() {
        sent += 1;
        cx.run_due();
    }
    assert_eq!(sent, 4);
    assert_eq!(stream.write(cx, b"x"), Err(Errno::EAGAIN));
    // High priority goes past, and another band has room.
    assert_eq!(stream.putmsg(cx, Some(b"c"), None, (true, 0)), Ok(()));
    assert_eq!(stream.putmsg(cx, None, Some(b"d"), (false, 1)), Ok(()));
    assert_eq!((stream.can_put(0), stream.can_put(1)), (Ok(false), Ok(true)));
    rig.seen.is_stopped.set(false);
    let q = rig.seen.up.borrow().as_ref().unwrap().upgrade().unwrap().write_side();
    q.qenable(cx);
    assert_eq!(rig.got().len(), 6);
    assert_eq!(stream.can_put(0), Ok(true));
    assert_eq!(stream.write(cx, b"x"), Ok(1));
}

#[test]
fn a_module_stops_what_is_behind_it() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    stream.push(cx, "pass").unwrap();
    rig.seen.is_stopped.set(true);
    let mut sent = 0;
    while stream.write(cx, &[0; 300]).is_ok() {
        sent += 1;
        cx.run_due();
    }
    // The driver's queue and the module's are full.
    assert_eq!(sent, 8);
    // Popped with messages queued: they are freed, and writers go on against the driver alone.
    stream.pop(cx).unwrap();
    assert_eq!(rig.streams.counts().lost, 4);
    assert_eq!(stream.write(cx, b"x"), Err(Errno::EAGAIN));
    rig.seen.is_stopped.set(false);
    let q = rig.seen.up.borrow().as_ref().unwrap().upgrade().unwrap().write_side();
    q.qenable(cx);
    assert_eq!(rig.got().len(), 4);
    assert_eq!(stream.write(cx, b"x"), Ok(1));
    stream.close(cx);
    cx.stop();
    rig.seen.got.borrow_mut().clear();
    assert_eq!(rig.streams.blocks().stats().messages, 0);
}

#[test]
fn what_comes_up_is_stopped_by_a_full_head() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    stream.push(cx, "pass").unwrap();
    for _ in 0..30 {
        rig.up(Kind::Data, &[0; 300]);
        cx.run_due();
    }
    let at_head = stream.head_q().count();
    assert!((5120..5120 + 300).contains(&at_head), "{at_head}");
    let mut got = 0;
    while let Ok(octets) = rig.read(300) {
        got += octets.len();
        cx.run_due();
    }
    assert_eq!(got, 9000);
}

#[test]
fn a_flush_goes_round_once() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    rig.seen.is_stopped.set(true);
    stream.push(cx, "pass").unwrap();
    stream.write(cx, b"down").unwrap();
    rig.up(Kind::Data, b"up");
    cx.run_due();
    assert_eq!(stream.flush(cx, 3), Ok(()));
    assert_eq!(*rig.seen.flushes.borrow(), [3]);
    assert_eq!((rig.read(9), rig.got()), (Err(Errno::EAGAIN), vec![]));
    assert_eq!(rig.streams.counts().flushed, 2);
    // From the driver: the head sends it back once, for the write side alone.
    rig.up(Kind::Data, b"up");
    cx.run_due();
    rig.up(Kind::Flush, &[3]);
    assert_eq!(*rig.seen.flushes.borrow(), [3, 2]);
    assert_eq!(rig.read(9), Err(Errno::EAGAIN));
    for bits in [0, 4, 8, 255] {
        assert_eq!(stream.flush(cx, bits), Err(Errno::EINVAL));
    }
    rig.up_in(Kind::Data, 3, b"3");
    rig.up(Kind::Data, b"0");
    cx.run_due();
    assert_eq!(stream.flush_band(cx, 1, 3), Ok(()));
    assert_eq!(rig.read(9).unwrap(), b"0");
    // A flush that says nothing.
    rig.up(Kind::Flush, &[]);
}

#[test]
fn an_exhausted_pool_is_told() {
    let cx = xk_testkit::kernel::TestKernel::new(1);
    let bounds = xk_streams::Bounds { blocks_max: 32, ..xk_streams::Bounds::default() };
    let (streams, _) = xk_streams::add(&cx, "streams", bounds);
    crate::tic::add(&streams);
    let stream = streams.open(&cx, "ticlts").unwrap();
    stream.set_nonblocking(true);
    let held: Vec<_> =
        core::iter::from_fn(|| streams.blocks().allocb(1, xk_streams::Priority::High)).collect();
    assert_eq!(stream.write(&cx, b"x"), Err(Errno::ENOSR));
    assert_eq!(stream.putmsg(&cx, Some(b"x"), None, (true, 0)), Err(Errno::ENOSR));
    assert_eq!(stream.flush(&cx, 3), Err(Errno::ENOSR));
    let turn = stream.str_ioctl(&cx, crate::rig::TURN, b"x", Default::default());
    assert_eq!(turn, Err(Errno::ENOSR));
    // A queue that waits for blocks is served when some are freed.
    let q = stream.head_q().write_side();
    let before = q.runs().1;
    for _ in 0..9 {
        q.bufcall(&cx, (1, 1));
    }
    cx.advance(core::time::Duration::from_millis(50));
    assert_eq!(q.runs().1, before);
    drop(held);
    cx.advance(core::time::Duration::from_millis(50));
    assert_eq!(q.runs().1, before + 1);
    assert_eq!(streams.counts().bufcalls, 1);
}
