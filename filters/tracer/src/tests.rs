//! A tracer over a loopback.

use super::*;
use core::cell::RefCell;
use std::rc::Rc;
use xk_core::control::QuestionType;
use xk_core::graph::{Params, Value};
use xk_core::message::PoolConfig;
use xk_core::{Kernel, Participants, Pool, ProtocolRef, Time};
use xk_kit::net::moving::Nameless;
use xk_kit::passthrough::Direction;
use xk_testkit::kernel::{TestKernel, Top};

fn add(
    cx: &Kernel,
    entry: &'static Entry,
    lowers: &[ProtocolRef],
    values: &[(&'static str, Value)],
) -> ProtocolRef {
    let mut params = Params::default();
    for (name, value) in values {
        params.set(name, value.clone());
    }
    entry.add(cx, entry.kind, lowers, &params).unwrap()
}

#[test]
fn the_last_crossings_are_remembered_and_told() {
    let cx = TestKernel::new(1);
    let lines = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&lines);
    cx.surround(Rc::new(TraceLines(Box::new(move |line| told.borrow_mut().push(line.to_owned())))));
    let wire = add(&cx, &xk_loopback::ENTRY, &[], &[]);
    let values = [("ring", Value::Integer(3)), ("octets", Value::Integer(2))];
    let tracer = add(&cx, &ENTRY, core::slice::from_ref(&wire), &values);
    let sink = Top::add(&cx, "sink");
    cx.start().unwrap();
    let session = sink.open(&cx, &tracer, Participants::default()).unwrap();
    for n in 1..=2 {
        cx.set_now(Time::from_us(n));
        session.push(&cx, cx.pool().copy_from(0, &[n as u8; 3]).unwrap()).unwrap();
        wire.wire().unwrap().poll(&cx, &wire, 1);
    }
    let log = tracer.ask(&cx, TraceLog::default()).unwrap();
    assert_eq!((log.total, log.crossings.len()), (4, 3));
    let seen: Vec<_> =
        log.crossings.iter().map(|c| (c.time.as_us(), c.direction, c.len, c.first())).collect();
    assert_eq!(seen[0], (1, Direction::Up, 3, [1, 1].as_slice()));
    assert_eq!(seen[1], (2, Direction::Down, 3, [2, 2].as_slice()));
    assert_eq!(seen[2].1, Direction::Up);
    let two = session.ask(&cx, TraceLog { max: 2, ..TraceLog::default() }).unwrap();
    assert_eq!(two.crossings, log.crossings[1..]);
    assert_eq!(lines.borrow().len(), 4);
    let line = format!("tracer: 0.000001000s down {:?} 3 octets 0101...", session.id());
    assert_eq!(lines.borrow()[0], line);
}

/// A log that crosses a cut, octet by octet: truncated anywhere, it is no log.
#[test]
fn a_log_is_these_octets_and_no_fewer() {
    static TYPE: QuestionType = QuestionType::of::<TraceLog>();
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let names = Nameless(&pool);
    let number = |number: u8| [number, 0, 0, 0, 0, 0, 0, 0];
    // How many at most, one crossing: time, up, session, octets, the first 64, how many of them.
    let front = [&number(9)[..], &[1, 0], &number(5), &[1], &number(3), &number(60)].concat();
    let octets = |first_len| [&front[..], &[0xab; 64], &[first_len], &number(7)].concat();
    let read = |octets: &[u8]| {
        TYPE.read(octets, &names, Vec::new(), |ask| {
            let log = ask.get::<TraceLog>()?;
            Some((log.max, log.total, std::mem::take(&mut log.crossings)))
        })?
    };
    let whole = octets(2);
    let (max, total, crossings) = read(&whole).expect("a log");
    assert_eq!((max, total, crossings.len()), (9, 7, 1));
    let crossing = &crossings[0];
    let of_it = (crossing.time.as_ns(), crossing.direction, crossing.len, crossing.first());
    assert_eq!(of_it, (5, Direction::Up, 60, [0xab; 2].as_slice()));
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).is_none(), "{end} octets are no log");
    }
    assert!(read(&[&whole[..], &[0]].concat()).is_none(), "nor are more");
    // More octets than there are.
    let (.., wild) = read(&octets(255)).expect("a log");
    assert_eq!(wild[0].first(), [0; 0]);
    assert!(wild[0].to_string().ends_with("60 octets ..."));
}
