//! `read`, `getmsg`, `poll` and what comes up: errors, hang-ups, options, signals.

use crate::rig::Rig;
use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;
use xk_streams::head::{
    Got, MORECTL, MOREDATA, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND,
    POLLRDNORM, POLLWRBAND, Signals, Want,
};
use xk_streams::{Errno, Kind};

#[test]
fn read_takes_a_stream_of_octets() {
    let rig = Rig::new();
    assert_eq!(rig.read(4), Err(Errno::EAGAIN));
    rig.up(Kind::Data, b"abc");
    rig.up(Kind::Data, b"defgh");
    assert_eq!(rig.read(4).unwrap(), b"abcd");
    assert_eq!(rig.read(2).unwrap(), b"ef");
    assert_eq!(rig.read(9).unwrap(), b"gh");
    // A message of nothing ends a read, and is one itself.
    rig.up(Kind::Data, b"x");
    rig.up(Kind::Data, b"");
    rig.up(Kind::Data, b"y");
    assert_eq!(rig.read(9).unwrap(), b"x");
    assert_eq!(rig.read(9).unwrap(), b"");
    assert_eq!(rig.read(9).unwrap(), b"y");
}

#[test]
fn read_keeps_or_drops_the_rest_of_a_message() {
    let rig = Rig::new();
    rig.stream.set_read_options(1).unwrap();
    rig.up(Kind::Data, b"abcd");
    rig.up(Kind::Data, b"efgh");
    assert_eq!(rig.read(3).unwrap(), b"abc");
    assert_eq!(rig.read(9).unwrap(), b"efgh");
    rig.stream.set_read_options(2).unwrap();
    rig.up(Kind::Data, b"abcd");
    rig.up(Kind::Data, b"efgh");
    assert_eq!(rig.read(3).unwrap(), b"abc");
    assert_eq!(rig.read(9).unwrap(), b"d");
    assert_eq!(rig.read(9).unwrap(), b"efgh");
    for (options, answer) in [
        (3, Err(Errno::EINVAL)),
        (12, Err(Errno::EINVAL)),
        (32, Err(Errno::EINVAL)),
        (4, Ok(())),
        (8, Ok(())),
        (16, Ok(())),
    ] {
        assert_eq!(rig.stream.set_read_options(options), answer, "{options}");
    }
    assert_eq!(rig.stream.read_options(), 16);
}

#[test]
fn read_and_control_of_protocols() {
    let rig = Rig::new();
    rig.up(Kind::Proto, b"ctl");
    assert_eq!(rig.read(9), Err(Errno::EBADMSG));
    rig.stream.set_read_options(4).unwrap();
    assert_eq!(rig.read(2).unwrap(), b"ct");
    assert_eq!(rig.read(9).unwrap(), b"l");
    rig.stream.set_read_options(8).unwrap();
    let data = rig.streams.blocks().copy(Kind::Data, 0, b"data").unwrap();
    let mp = rig.streams.blocks().copy(Kind::Proto, 0, b"ctl").unwrap().linked(data);
    rig.up_message(mp);
    assert_eq!(rig.read(9).unwrap(), b"data");
    rig.stream.set_read_options(16).unwrap();
    rig.up(Kind::PassFp, b"");
    assert_eq!(rig.read(9), Err(Errno::EBADMSG));
    assert_eq!(rig.stream.getmsg(&rig.cx, None, None, Want::Any), Err(Errno::EBADMSG));
}

#[test]
fn getmsg_takes_parts_and_leaves_the_rest() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    assert_eq!(stream.getmsg(cx, Some(9), Some(9), Want::Any), Err(Errno::EAGAIN));
    let message = || {
        let data = rig.streams.blocks().copy(Kind::Data, 0, b"data").unwrap();
        rig.up_message(rig.streams.blocks().copy(Kind::Proto, 0, b"control").unwrap().linked(data));
    };
    let get = |control, data| stream.getmsg(cx, control, data, Want::Any).unwrap();
    let is = |control: Option<&[u8]>, data: Option<&[u8]>, more| Got {
        control: control.map(<[u8]>::to_vec),
        data: data.map(<[u8]>::to_vec),
        more,
        ..Got::default()
    };
    message();
    assert_eq!(stream.peek(Some(3), None, Want::Any), Ok(Some(is(Some(b"con"), None, 3))));
    assert_eq!(stream.peek(None, None, Want::High), Ok(None));
    assert_eq!(get(Some(99), Some(99)), is(Some(b"control"), Some(b"data"), 0));
    message();
    assert_eq!(get(Some(3), Some(2)), is(Some(b"con"), Some(b"da"), MORECTL | MOREDATA));
    assert_eq!(get(Some(99), Some(0)), is(Some(b"trol"), Some(b""), MOREDATA));
    assert_eq!(get(Some(99), Some(99)), is(None, Some(b"ta"), 0));
    message();
    assert_eq!(get(None, Some(99)), is(None, Some(b"data"), MORECTL));
    assert_eq!(get(Some(99), None), is(Some(b"control"), None, 0));
}

#[test]
fn high_priority_and_bands_are_chosen() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    rig.up(Kind::Data, b"0");
    rig.up_in(Kind::Data, 5, b"5");
    assert_eq!(stream.getmsg(cx, None, Some(9), Want::High), Err(Errno::EAGAIN));
    assert_eq!(stream.getmsg(cx, None, Some(9), Want::Band(6)), Err(Errno::EAGAIN));
    assert_eq!((stream.has_band(5), stream.has_band(4)), (Ok(true), Ok(false)));
    assert_eq!(stream.first_band(), Ok(5));
    rig.up(Kind::PcProto, b"high");
    // A head keeps one of them.
    rig.up(Kind::PcProto, b"second");
    let got = stream.getmsg(cx, Some(9), None, Want::Band(9)).unwrap();
    assert_eq!((got.control, got.is_high), (Some(b"high".to_vec()), true));
    assert_eq!(stream.getmsg(cx, None, Some(9), Want::Band(5)).unwrap().band, 5);
    assert_eq!(stream.getmsg(cx, None, Some(9), Want::Any).unwrap().data, Some(b"0".to_vec()));
    assert_eq!(stream.first_band(), Err(Errno::ENODATA));
    assert_eq!(rig.streams.counts().lost, 1);
}

#[test]
fn a_hang_up_lets_what_came_be_read() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    rig.up(Kind::Data, b"last");
    rig.up(Kind::Hangup, b"");
    assert_eq!(stream.poll_now(cx, POLLIN | POLLOUT), POLLIN | POLLHUP);
    assert_eq!(stream.write(cx, b"x"), Err(Errno::ENXIO));
    assert_eq!(stream.putmsg(cx, None, Some(b"x"), (false, 0)), Err(Errno::ENXIO));
    assert_eq!(stream.push(cx, "pass"), Err(Errno::ENXIO));
    assert_eq!(stream.reopen(cx), Err(Errno::ENXIO));
    assert_eq!(rig.read(9).unwrap(), b"last");
    assert_eq!(rig.read(9).unwrap(), b"");
    let got = stream.getmsg(cx, Some(9), Some(9), Want::Any).unwrap();
    assert_eq!((got.control, got.data), (Some(vec![]), Some(vec![])));
}

#[test]
fn an_error_stays_until_it_is_taken_back() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    rig.up(Kind::Data, b"flushed");
    rig.up(Kind::Error, &[71]);
    assert_eq!(*rig.seen.flushes.borrow(), [3]);
    assert_eq!(stream.poll_now(cx, POLLIN), POLLERR);
    assert_eq!(rig.read(9), Err(Errno::EPROTO));
    assert_eq!(stream.write(cx, b"x"), Err(Errno::EPROTO));
    assert_eq!(stream.nread(), Err(Errno::EPROTO));
    rig.up(Kind::Error, &[0, 0xff]);
    assert_eq!(rig.read(9), Err(Errno::EAGAIN));
    assert_eq!(stream.write(cx, b"x"), Err(Errno::EPROTO));
    rig.up(Kind::Error, &[5, 0]);
    assert_eq!(rig.read(9), Err(Errno::EIO));
    assert_eq!(stream.write(cx, b"x"), Ok(1));
    rig.up(Kind::Error, &[]);
    assert_eq!(rig.read(9), Err(Errno::EIO));
}

#[test]
fn poll_tells_what_is_there() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    let all = POLLIN | POLLPRI | POLLOUT | POLLRDNORM | POLLRDBAND | POLLWRBAND;
    assert_eq!(stream.poll_now(cx, all), POLLOUT | POLLWRBAND);
    assert_eq!(stream.poll(cx, POLLIN, Some(Duration::ZERO)), Ok(0));
    rig.up(Kind::Data, b"x");
    assert_eq!(stream.poll_now(cx, all), POLLIN | POLLRDNORM | POLLOUT | POLLWRBAND);
    rig.up_in(Kind::Data, 1, b"x");
    assert_eq!(stream.poll_now(cx, POLLIN | POLLRDBAND | POLLRDNORM), POLLIN | POLLRDBAND);
    rig.up(Kind::PcProto, b"x");
    assert_eq!(stream.poll(cx, all, None), Ok(POLLPRI | POLLOUT | POLLWRBAND));
    rig.seen.is_stopped.set(true);
    stream.write(cx, &[0; 1024]).unwrap();
    cx.run_due();
    assert_eq!(stream.poll_now(cx, POLLOUT | POLLWRBAND), POLLWRBAND);
    stream.close(cx);
    assert_eq!(stream.poll_now(cx, all), POLLNVAL);
}

#[test]
fn signals_are_told_of_what_is_asked_for() {
    let rig = Rig::new();
    let told = Rc::new(Cell::new(0));
    let handler = || {
        let told = Rc::clone(&told);
        Some(Rc::new(move |_: &xk_core::Kernel, events| told.set(events)) as _)
    };
    assert_eq!(rig.stream.signals(), Err(Errno::EINVAL));
    assert_eq!(rig.stream.set_signals(0, None), Err(Errno::EINVAL));
    assert_eq!(rig.stream.set_signals(1 << 12, handler()), Err(Errno::EINVAL));
    rig.stream.set_signals(Signals::INPUT | Signals::HIPRI | Signals::ERROR, handler()).unwrap();
    assert_eq!(rig.stream.signals(), Ok(0x13));
    for (kind, octets, events) in [
        (Kind::Data, &b"x"[..], Signals::INPUT),
        (Kind::PcProto, b"x", Signals::HIPRI),
        (Kind::Sig, b"x", 0),
        (Kind::Error, b"\x05", Signals::ERROR),
        (Kind::Hangup, b"", 0),
    ] {
        told.set(0);
        rig.up(kind, octets);
        assert_eq!(told.get(), events, "{kind:?}");
    }
    rig.stream.set_signals(0, None).unwrap();
}

#[test]
fn each_event_is_told() {
    let rig = Rig::new();
    let told = Rc::new(Cell::new(0));
    let seen = Rc::clone(&told);
    let all = 0x1ff;
    let handler = Rc::new(move |_: &xk_core::Kernel, events| seen.set(seen.get() | events));
    rig.stream.set_signals(all, Some(handler)).unwrap();
    let events = || told.replace(0);
    rig.up_in(Kind::Data, 0, b"x");
    assert_eq!(events(), Signals::INPUT | Signals::RDNORM);
    rig.up_in(Kind::Data, 3, b"x");
    assert_eq!(events(), Signals::INPUT | Signals::RDBAND);
    rig.up(Kind::PcProto, b"x");
    assert_eq!(events(), Signals::HIPRI);
    rig.up(Kind::Sig, b"\x02");
    assert_eq!(events(), Signals::MSG);
    rig.up(Kind::PcSig, b"\x02");
    assert_eq!(events(), Signals::MSG);
    // Room again: only after a writer has found none.
    rig.seen.is_stopped.set(true);
    rig.stream.write(&rig.cx, &[0; 2000]).unwrap();
    rig.cx.run_due();
    assert_eq!((events(), rig.stream.write(&rig.cx, b"x")), (0, Err(Errno::EAGAIN)));
    rig.seen.is_stopped.set(false);
    rig.seen.up.borrow().as_ref().unwrap().upgrade().unwrap().write_side().qenable(&rig.cx);
    rig.cx.run_due();
    assert_eq!(events(), Signals::OUTPUT | Signals::WRBAND);
    rig.up(Kind::Error, &[71]);
    assert_eq!(events(), Signals::ERROR);
    rig.up(Kind::Hangup, b"");
    assert_eq!(events(), Signals::HANGUP);
}

#[test]
fn marks_are_the_first_message_s_or_the_last() {
    let rig = Rig::new();
    let mark = |flag: u8| {
        let mut mp = rig.streams.blocks().copy(Kind::Data, 0, b"m").unwrap();
        mp.flag = flag;
        rig.up_message(mp);
    };
    assert_eq!((rig.stream.at_mark(), rig.stream.at_last_mark()), (Ok(false), Ok(false)));
    for flag in [0, xk_streams::block::MSGMARK, 0, xk_streams::block::MSGMARK, 0] {
        mark(flag);
    }
    for (any, last) in [(false, false), (true, false), (false, false), (true, true), (false, false)]
    {
        let told = (rig.stream.at_mark().unwrap(), rig.stream.at_last_mark().unwrap());
        assert_eq!(told, (any, last));
        rig.stream.getmsg(&rig.cx, None, Some(9), Want::Any).unwrap();
    }
}

#[test]
fn options_of_the_head_are_set_from_below() {
    let rig = Rig::new();
    let mut options = [0; 25];
    // Read options, write offset, marks, and that it waits for nothing.
    options[..4].copy_from_slice(&0x0133_u32.to_le_bytes());
    (options[4], options[6]) = (2, 20);
    options[16..20].copy_from_slice(&100_u32.to_le_bytes());
    options[20..24].copy_from_slice(&50_u32.to_le_bytes());
    for cut in 0..25 {
        rig.up(Kind::SetOpts, &options[..cut]);
    }
    assert_eq!(rig.stream.head_q().marks(), (5120, 1024));
    rig.up(Kind::SetOpts, &options);
    assert_eq!((rig.stream.head_q().marks(), rig.stream.read_options()), ((100, 50), 18));
    rig.stream.write(&rig.cx, b"x").unwrap();
    rig.cx.run_due();
    assert_eq!(rig.seen.got.borrow()[0].headroom(), 20);
}

#[test]
fn readers_wait_on_shepherds_and_others_go_on() {
    let cx = xk_testkit::kernel::TestKernel::with_stacks(1);
    let (streams, _) = xk_streams::add(&cx, "streams", xk_streams::Bounds::default());
    crate::tic::add(&streams);
    let seen = Rc::<crate::rig::Seen>::default();
    let packets = (0, u32::MAX);
    let driver =
        crate::rig::Driver { name: "dev", seen: Rc::clone(&seen), is_multiplexor: false, packets };
    streams.add_driver("dev", Rc::new(driver));
    let stream = streams.open(&cx, "dev").unwrap();
    let (reader, timed, closed) = (Rc::clone(&stream), Rc::clone(&stream), Rc::clone(&stream));
    let tasks: Vec<xk_testkit::kernel::Task> = vec![
        Box::new(move |cx| {
            let mut octets = [0; 9];
            assert_eq!(reader.read(cx, &mut octets), Ok(4));
            // The stream is closed while it waits.
            assert_eq!(reader.read(cx, &mut octets), Err(Errno::EBADF));
        }),
        Box::new(move |cx| {
            let before = cx.now();
            let waited = timed.poll(cx, POLLPRI, Some(Duration::from_secs(3)));
            assert_eq!((waited, cx.now().since(before)), (Ok(0), Duration::from_secs(3)));
            let q = seen.up.borrow().as_ref().unwrap().upgrade().unwrap();
            q.putnext(cx, timed.blocks().copy(Kind::Data, 0, b"data").unwrap());
            assert_eq!(timed.poll(cx, POLLPRI, Some(Duration::from_secs(1))), Ok(0));
            closed.close(cx);
        }),
    ];
    assert!(cx.run_tasks(Duration::from_secs(60), tasks, |_| 0));
}
