//! Errors of every call of the head when the stream is in error, hung up, linked below a
//! multiplexor, or closed; and errors that pass.

use crate::rig::{Driver, Rig, Seen, TURN};
use core::time::Duration;
use std::rc::Rc;
use xk_streams::head::{Signals, Want};
use xk_streams::{Errno, Kind};

type Call = fn(&Rig) -> Result<(), Errno>;

/// Errors of a call in the four conditions; none where it succeeds.
type Answers = [Option<Errno>; 4];

const P: Option<Errno> = Some(Errno::EPROTO);
const X: Option<Errno> = Some(Errno::ENXIO);
const I: Option<Errno> = Some(Errno::EINVAL);
const B: Option<Errno> = Some(Errno::EBADF);

/// For each call what it answers: after an M_ERROR for both sides, hung up, linked below a
/// multiplexor, closed.
const CALLS: &[(&str, Call, Answers)] = &[
    ("I_NREAD", |r| r.stream.nread().map(drop), [P, None, I, B]),
    ("I_PUSH", |r| r.stream.push(&r.cx, "pass"), [P, X, I, B]),
    ("I_POP", |r| r.stream.pop(&r.cx), [P, X, I, B]),
    ("I_LOOK", |r| r.stream.look().map(drop), [P, None, I, B]),
    ("I_FLUSH", |r| r.stream.flush(&r.cx, 3), [P, X, I, B]),
    ("I_FLUSHBAND", |r| r.stream.flush_band(&r.cx, 3, 1), [P, X, I, B]),
    (
        "I_STR",
        |r| r.stream.str_ioctl(&r.cx, TURN, b"x", Default::default()).map(drop),
        [P, X, I, B],
    ),
    ("TRANSPARENT", |r| r.stream.transparent(&r.cx, TURN, 0, &mut []).map(drop), [P, X, I, B]),
    ("I_SETSIG", |r| r.stream.set_signals(Signals::INPUT, None), [None, None, None, B]),
    ("I_FIND", |r| r.stream.find("pass").map(drop), [P, None, I, B]),
    ("I_LIST", |r| r.stream.list().map(drop), [P, None, I, B]),
    ("I_LINK", |r| r.stream.link(&r.cx, &r.stream).map(drop), [P, X, I, B]),
    ("I_UNLINK", |r| r.stream.unlink(&r.cx, None), [P, X, I, B]),
    ("I_PLINK", |r| r.stream.plink(&r.cx, &r.stream).map(drop), [P, X, I, B]),
    ("I_PUNLINK", |r| r.stream.punlink(&r.cx, None), [P, X, I, B]),
    ("I_SENDFD", |r| r.stream.sendfd(&r.cx, &r.stream), [P, X, I, B]),
    ("I_RECVFD", |r| r.stream.recvfd(&r.cx).map(drop), [P, X, I, B]),
    ("I_PEEK", |r| r.stream.peek(None, None, Want::Any).map(drop), [P, None, I, B]),
    ("I_FDINSERT", |r| r.stream.fdinsert(&r.cx, &[0; 4], 0, None, &r.stream), [P, X, I, B]),
    ("I_SWROPT", |r| r.stream.set_sends_zero(true), [P, None, I, B]),
    ("I_GWROPT", |r| r.stream.sends_zero().map(drop), [P, None, I, B]),
    ("I_CKBAND", |r| r.stream.has_band(0).map(drop), [P, None, I, B]),
    ("I_GETBAND", |r| r.stream.first_band().map(drop), [P, Some(Errno::ENODATA), I, B]),
    ("I_ATMARK", |r| r.stream.at_mark().map(drop), [P, None, I, B]),
    ("I_SETCLTIME", |r| r.stream.set_close_wait(Duration::ZERO).map(drop), [P, None, I, B]),
    ("I_GETCLTIME", |r| r.stream.close_wait().map(drop), [P, None, I, B]),
    ("I_CANPUT", |r| r.stream.can_put(0).map(drop), [P, None, I, B]),
    ("I_CANPUT ANYBAND", |r| r.stream.can_put_any().map(drop), [P, None, I, B]),
    ("I_SERROPT", |r| r.stream.set_errors_pass(false, false), [None, None, I, B]),
    ("I_GERROPT", |r| r.stream.errors_pass().map(drop), [None, None, I, B]),
    ("read", |r| r.read(1).map(drop), [P, None, I, B]),
    ("write", |r| r.stream.write(&r.cx, b"x").map(drop), [P, X, I, B]),
    ("getmsg", |r| r.stream.getmsg(&r.cx, None, None, Want::Any).map(drop), [P, None, I, B]),
    ("getpmsg", |r| r.stream.getmsg(&r.cx, None, None, Want::Band(1)).map(drop), [P, None, I, B]),
    ("putmsg", |r| r.stream.putmsg(&r.cx, None, Some(b"x"), (false, 0)), [P, X, I, B]),
    ("putpmsg", |r| r.stream.putmsg(&r.cx, None, Some(b"x"), (false, 1)), [P, X, I, B]),
    ("open again", |r| r.stream.reopen(&r.cx), [None, X, None, B]),
];

#[test]
fn each_call_says_what_is_wrong_with_the_stream() {
    for (name, call, answers) in CALLS {
        for (condition, answer) in answers.iter().enumerate() {
            let rig = Rig::new();
            match condition {
                0 => rig.up(Kind::Error, &[71]),
                1 => rig.up(Kind::Hangup, b""),
                2 => {
                    let packets = (0, u32::MAX);
                    let seen = Rc::<Seen>::default();
                    let mux = Driver { name: "mux", seen, is_multiplexor: true, packets };
                    rig.streams.add_driver("mux", Rc::new(mux));
                    let upper = rig.streams.open(&rig.cx, "mux").unwrap();
                    upper.link(&rig.cx, &rig.stream).unwrap();
                }
                _ => rig.stream.close(&rig.cx),
            }
            // I_LOOK and I_POP find no module, where they look for one.
            let told = call(&rig).err();
            let is_empty = told == I && answer.is_none() && *name == "I_LOOK";
            assert!(told == *answer || is_empty, "{name} in {condition}: {told:?}, {answer:?}");
        }
    }
}

#[test]
fn an_error_for_one_side_fails_the_calls_of_that_side() {
    for (error, read, write) in [(&[71, 0xff], P, None), (&[0xff, 71], None, P)] {
        let rig = Rig::new();
        rig.up(Kind::Error, error);
        let again = Some(Errno::EAGAIN);
        assert_eq!(rig.read(1).err(), read.or(again));
        let got = rig.stream.getmsg(&rig.cx, None, None, Want::Any);
        assert_eq!(got.err(), read.or(again));
        assert_eq!(rig.stream.peek(None, None, Want::Any).err(), read);
        assert_eq!(rig.stream.recvfd(&rig.cx).err(), read.or(again));
        assert_eq!(rig.stream.write(&rig.cx, b"x").err(), write);
        assert_eq!(rig.stream.putmsg(&rig.cx, None, Some(b"x"), (false, 0)).err(), write);
        // An ioctl fails for either.
        assert_eq!(rig.stream.nread().err(), P);
        assert_eq!(rig.stream.push(&rig.cx, "pass").err(), P);
    }
}

#[test]
fn an_error_passes_where_it_is_to() {
    let rig = Rig::new();
    assert_eq!(rig.stream.errors_pass(), Ok((false, false)));
    for (read, write) in [(true, false), (false, true), (true, true), (false, false)] {
        rig.stream.set_errors_pass(read, write).unwrap();
        assert_eq!(rig.stream.errors_pass(), Ok((read, write)));
        rig.up(Kind::Error, &[71]);
        assert_eq!(rig.read(1), Err(Errno::EPROTO));
        assert_eq!(rig.stream.write(&rig.cx, b"x"), Err(Errno::EPROTO));
        let second = |passes: bool| if passes { None } else { P };
        assert_eq!(rig.read(1).err().filter(|error| *error != Errno::EAGAIN), second(read));
        assert_eq!(rig.stream.write(&rig.cx, b"x").err(), second(write));
        rig.up(Kind::Error, &[0]);
    }
}

#[test]
fn bands_say_whether_one_has_room() {
    let rig = Rig::new();
    rig.seen.is_stopped.set(true);
    let send = |band| rig.stream.putmsg(&rig.cx, None, Some(&[0; 1024]), (false, band));
    assert_eq!((rig.stream.can_put_any(), rig.stream.can_put(0)), (Ok(true), Ok(true)));
    send(0).unwrap();
    rig.cx.run_due();
    assert_eq!((rig.stream.can_put_any(), rig.stream.can_put(0)), (Ok(false), Ok(false)));
    // A band that is there and has room.
    rig.stream.putmsg(&rig.cx, None, Some(b"x"), (false, 2)).unwrap();
    assert_eq!((rig.stream.can_put_any(), rig.stream.can_put(2)), (Ok(true), Ok(true)));
    send(2).unwrap();
    rig.cx.run_due();
    assert_eq!((rig.stream.can_put_any(), rig.stream.can_put(2)), (Ok(false), Ok(false)));
}

#[test]
fn a_popped_module_frees_what_it_has_and_lets_others_go_on() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    stream.push(cx, "pass").unwrap();
    rig.seen.is_stopped.set(true);
    // The driver is full, then the module, then the head waits.
    while stream.write(cx, &[0; 600]).is_ok() {
        cx.run_due();
    }
    // And upwards: the head is full, the module holds what comes.
    for _ in 0..10 {
        rig.up(Kind::Data, &[0; 1024]);
        cx.run_due();
    }
    let before = rig.streams.blocks().stats().messages;
    let lost = rig.streams.counts().lost;
    stream.pop(cx).unwrap();
    cx.run_due();
    let freed = before - rig.streams.blocks().stats().messages;
    assert!(freed > 3, "{freed}");
    assert_eq!(rig.streams.counts().lost - lost, freed as u64);
    // What the head and the driver have stays; both ways go on.
    assert_eq!(rig.read(1024).unwrap().len(), 1024);
    rig.seen.is_stopped.set(false);
    let q = rig.seen.up.borrow().as_ref().and_then(xk_streams::WeakQ::upgrade).unwrap();
    q.write_side().qenable(cx);
    cx.run_due();
    assert_eq!(stream.write(cx, b"on"), Ok(2));
    assert_eq!(rig.got().pop().unwrap().1, b"on");
    cx.stop();
    rig.seen.got.borrow_mut().clear();
    assert_eq!(rig.streams.blocks().stats().messages, 0);
}
