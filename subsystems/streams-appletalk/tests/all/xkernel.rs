//! With the x-kernel's DDP and ATP on one link.

use crate::rig::{Host, receive, send};
use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::atp::{OptionKind, Options, ReleaseTimer, Want};
use xk_core::graph::{Params, Value};
use xk_core::participant::Label;
use xk_core::{Entry, Message, Part, Participant, Participants, ProtocolRef};
use xk_streams::Errno;
use xk_testkit::kernel::{Bottom, HEADROOM, Lower, TestKernel, Top, octets};

/// A host of the x-kernel's protocols.
struct Xk {
    cx: TestKernel,
    wire: Rc<Bottom>,
    ddp: ProtocolRef,
    atp: ProtocolRef,
    top: Top,
}

fn number(label: &str, value: u64) -> Part {
    Part::Number(Label::parse(label).unwrap(), value)
}

fn socket(at: AtAddr) -> Participant {
    let net = Participant::of(number("net", at.net.into())).with(number("node", at.node.into()));
    net.with(number("socket", at.socket.into()))
}

impl Xk {
    fn new(node: i64) -> Self {
        let cx = TestKernel::with_stacks(99);
        let wire = Rc::new(Bottom::add(&cx, "wire", Lower::wire([2, 0, 0, 0, 1, 1])));
        let entries: [&'static Entry; 4] =
            [&xk_eth::ENTRY, &xk_aarp::ENTRY, &xk_ddp::ENTRY, &xk_atp::ENTRY];
        let mut lower = wire.protocol().clone();
        let mut made = Vec::new();
        for entry in entries {
            for number in entry.type_numbers() {
                cx.numbers_mut().add(number).unwrap();
            }
            let mut params = Params::default();
            if entry.kind == "ddp" {
                params.set("net", Value::Text("10-19".into()));
                params.set("node", Value::Integer(node));
            }
            if entry.kind == "atp" {
                params.set("tries", Value::Integer(100));
            }
            lower = entry.add(&cx, entry.kind, &[lower], &params).unwrap();
            made.push(lower.clone());
        }
        let test = xk_core::numbers::Number { upper: "test", lower: "ddp", number: 99 };
        cx.numbers_mut().add(test).unwrap();
        let top = Top::add_kind(&cx, "test", "test");
        let [.., ddp, atp] = &made[..] else { panic!("four") };
        let (ddp, atp) = (ddp.clone(), atp.clone());
        cx.start().unwrap();
        Self { cx, wire, ddp, atp, top }
    }
}

/// Carries frames both ways, and time from the one to the other; loses one of so many.
fn carry(
    xk: (&xk_core::Kernel, &Bottom),
    host: &Host,
    (frames, loses): (&Cell<u64>, u64),
) -> usize {
    let mut moved = 0;
    let keeps = || {
        frames.set(frames.get() + 1);
        loses == 0 || !frames.get().is_multiple_of(loses)
    };
    let behind = xk.0.now().since(host.cx.now());
    host.cx.advance(behind);
    for sent in xk.1.take_sent() {
        moved += 1;
        if keeps() {
            host.wire.inject(&host.cx, None, host.cx.message(&octets(&sent.message)));
        }
    }
    host.cx.run_due();
    for sent in host.wire.take_sent() {
        moved += 1;
        if keeps() {
            let frame = xk.0.pool().copy_from(HEADROOM, &octets(&sent.message)).unwrap();
            xk.1.inject(xk.0, None, frame);
        }
    }
    moved
}

fn pair() -> (Xk, Host) {
    let xk = Xk::new(18);
    let host = Host::new(7, 17);
    host.cx.start().unwrap();
    host.cx.advance(Duration::from_secs(4));
    xk.cx.advance(Duration::from_secs(4));
    drop(host.wire.take_sent());
    drop(xk.wire.take_sent());
    (xk, host)
}

/// Lets both go on for a while.
fn run(xk: &Xk, host: &Host, time: Duration) {
    let (end, frames) = (xk.cx.now().after(time), Cell::new(0));
    host.cx.advance(xk.cx.now().since(host.cx.now()));
    while xk.cx.now() < end {
        xk.cx.advance(Duration::from_millis(1));
        while carry((&xk.cx, &xk.wire), host, (&frames, 0)) > 0 {
            xk.cx.run_due();
        }
    }
}

#[test]
fn datagrams_go_both_ways() {
    let (xk, host) = pair();
    let user = host.bound("ddp", &AtAddr::new(0, 0, 130).to_sockaddr());
    let here = Participants::local(Participant::of(number("socket", 140)));
    let _ = xk.top.enable(&xk.cx, &xk.ddp, here).unwrap();
    send(&host.cx, &user, &AtAddr::new(10, 18, 140).to_sockaddr(), &[99], &[7; 500]);
    run(&xk, &host, Duration::from_secs(1));
    let received = xk.top.take_received();
    assert_eq!(received.len(), 1);
    let (session, _) = xk.top.take_opened().remove(0);
    session.push(&xk.cx, xk.cx.message(&[8; 586])).unwrap();
    run(&xk, &host, Duration::from_secs(1));
    let (from, opt, data) = receive(&host.cx, &user).unwrap();
    assert_eq!((AtAddr::from_sockaddr(&from), opt), (Some(AtAddr::new(10, 18, 140)), vec![99]));
    assert_eq!(data, vec![8; 586]);
    assert_eq!(receive(&host.cx, &user), Err(Errno::EAGAIN));
}

#[test]
fn the_x_kernel_calls_a_server_in_streams() {
    for loses in [0, 4, 5] {
        let (xk, host) = pair();
        let server = host.bound("atp", &AtAddr::new(0, 0, 200).to_sockaddr());
        let to = Participants::pair(Part::Any, socket(AtAddr::new(10, 17, 200)));
        let session = xk.top.open(&xk.cx, &xk.atp, to).unwrap();
        let calls = (0..5_u8).map(|n| (session.clone(), xk.cx.message(&[n; 45]))).collect();
        let (wire, frames) = (Rc::clone(&xk.wire), Cell::new(0));
        let executed = Rc::new(Cell::new(0));
        let count = Rc::clone(&executed);
        let ends = xk.cx.call_all_carried(calls, move |cx| {
            let moved = carry((cx, &wire), &host, (&frames, loses));
            while let Ok((from, opt, data)) = receive(&host.cx, &server) {
                count.set(count.get() + 1);
                let request = Options::parse(&opt).unwrap();
                let reply = request.response([0; 4]).emit();
                send(&host.cx, &server, &from, &reply, &data.repeat(100));
            }
            moved
        });
        for (n, end) in (0..5_u8).zip(ends) {
            assert_eq!(octets(&end.unwrap()), vec![n; 4500]);
        }
        assert!(executed.get() == 5 || loses != 0);
    }
}

#[test]
fn a_client_in_streams_calls_the_x_kernel() {
    for loses in [0, 4] {
        let (xk, host) = pair();
        let client = host.bound("atp", &[]);
        let times = |_: &xk_core::Kernel, _: &xk_core::SessionRef, request: Message| {
            Ok::<_, &'static xk_core::Reason>(request)
        };
        xk.top.on_serve(Some(Rc::new(times)));
        let here = Participants::local(Participant::of(number("socket", 144)));
        let _ = xk.top.enable(&xk.cx, &xk.atp, here).unwrap();
        let want = Want {
            once: Some(ReleaseTimer::HalfMinute),
            tries: None,
            interval: Duration::from_millis(500),
            ..Want::DEFAULT
        };
        let options = Options::request(&want, 77).emit();
        let to = AtAddr::new(10, 18, 144).to_sockaddr();
        send(&host.cx, &client, &to, &options, &[5; 578]);
        let (wire, frames) = (Rc::clone(&xk.wire), Cell::new(0));
        let came = Rc::new(RefCell::new(None));
        let seen = Rc::clone(&came);
        let wait: xk_testkit::kernel::Task = Box::new(|cx| {
            let never = xk_core::shepherd::Semaphore::new(0);
            for _ in 0..200 {
                let _ = cx.wait(&never, Some(Duration::from_millis(50)));
            }
        });
        let ended = xk.cx.run_tasks(Duration::from_secs(60), vec![wait], move |cx| {
            let moved = carry((cx, &wire), &host, (&frames, loses));
            if let Ok(one) = receive(&host.cx, &client) {
                seen.replace(Some(one));
            }
            moved
        });
        assert!(ended);
        let (_, opt, data) = came.take().expect("a reply");
        let options = Options::parse(&opt).unwrap();
        assert_eq!((options.kind, options.number), (OptionKind::Response, 77));
        assert_eq!(data, vec![5; 578]);
        assert_eq!(xk.top.served(), 1);
    }
}
