//! BSD's AppleTalk and the x-kernel's on one network.

use super::*;
use core::cell::Cell;
use xk_core::object::{OpenError, Served};
use xk_core::{Message, Participants, Protocol, SessionRef, Upper};

/// Above the x-kernel's ATP: serves socket 144 with so many octets, and makes calls.
struct Top {
    lower: ProtocolRef,
    size: usize,
    served: Rc<Cell<usize>>,
}

fn reply(first: u8, size: usize) -> Vec<u8> {
    (0..size).map(|i| first.wrapping_add(i as u8)).collect()
}

impl Protocol for Top {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(participant("socket144"));
        self.lower.open_enable(cx, Upper::new(this), local).map(drop)
    }

    fn call_demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Served {
        self.served.set(self.served.get() + 1);
        let first = message.octets().next().unwrap_or(0);
        Ok(cx.pool().copy_from(64, &reply(first, self.size)).unwrap())
    }
}

fn participant(text: &str) -> xk_core::Participant {
    text.parse().unwrap()
}

/// The x-kernel's node 10.18, whose ATP serves socket 144 and is exactly once or not.
fn xk_node(world: &mut World, size: usize, xo: bool) -> (HostId, Rc<Cell<usize>>, ProtocolRef) {
    let id = host(world, "b");
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let none = Params::default();
    let sim = add(&kernel, &xk_sim::ENTRY, &[], &Params::from([("link", text("lan"))]));
    let eth = add(&kernel, &xk_eth::ENTRY, &[&sim], &none);
    let aarp = add(&kernel, &xk_aarp::ENTRY, &[&eth], &none);
    let address = Params::from([("net", text("10-19")), ("node", Value::Integer(18))]);
    let ddp = add(&kernel, &xk_ddp::ENTRY, &[&aarp], &address);
    add(&kernel, &xk_aep::ENTRY, &[&ddp], &none);
    let settings = Params::from([
        ("xo", Value::Bool(xo)),
        ("tries", Value::Integer(20)),
        ("interval", Value::Duration(Duration::from_millis(400))),
    ]);
    let atp = add(&kernel, &xk_atp::ENTRY, &[&ddp], &settings);
    let served = Rc::new(Cell::new(0));
    let top = Top { lower: atp, size, served: Rc::clone(&served) };
    let top = kernel.add_protocol("top", "top", top);
    (id, served, top)
}

#[test]
fn the_x_kernel_answers_echoes_and_finds_this_node() {
    let mut world = world(1, |_| ());
    let a = node(&mut world, "a", 17, &[]);
    xk_node(&mut world, 1, false);
    world.start().unwrap();
    run(&mut world, CLAIM);
    let (cx, bsd) = at(&world, a);
    let so = ddp_socket(&cx, &bsd, 129);
    for size in [0, 1, 100, 585] {
        let request = [&[TYPE_AEP, 1][..], &reply(3, size)].concat();
        sendto(&cx, &so, &request, Some(sa(18, 4))).unwrap();
        run(&mut world, Duration::from_millis(20));
        let (from, _, octets) = receive(&cx, &so).unwrap();
        assert_eq!((from, &octets[..2]), (Some(sa(18, 4)), &[TYPE_AEP, 2][..]));
        assert_eq!(octets[2..], request[2..]);
    }
}

#[test]
fn one_address_is_not_given_to_a_node_of_each() {
    let mut world = world(1, |_| ());
    xk_node(&mut world, 1, false);
    world.start().unwrap();
    run(&mut world, CLAIM);
    let a = node(&mut world, "a", 18, &[]);
    world.start_host(a).unwrap();
    run(&mut world, Duration::from_secs(60));
    assert_eq!(figure(&at(&world, a).0, "ddp", "node"), 0, "the x-kernel's node defends it");
}

#[test]
fn bsd_requests_and_the_x_kernel_executes() {
    for once in [None, Some(ReleaseTimer::HalfMinute)] {
        for size in [1, 578, 2312, 4624] {
            let mut world = world(1, |link| (link.loss, link.duplicate) = (0.1, 0.1));
            let a = node(&mut world, "a", 17, &[]);
            let (_, served, _) = xk_node(&mut world, size, once.is_some());
            world.start().unwrap();
            run(&mut world, CLAIM * 2);
            let (cx, bsd) = at(&world, a);
            let so = atp_socket(&cx, &bsd, 0);
            for number in 0..10_u16 {
                let options = Options::request(&want(once), number);
                send(&cx, &so, sa(18, 144), &options, &[number as u8; 45]).unwrap();
                let mut got = None;
                for _ in 0..1000 {
                    run(&mut world, Duration::from_millis(10));
                    got = receive(&cx, &so).ok();
                    if got.is_some() {
                        break;
                    }
                }
                let (from, options, octets) = got.unwrap();
                let options = options.unwrap();
                assert_eq!((from, options.kind), (Some(sa(18, 144)), OptionKind::Response));
                assert_eq!((options.number, octets), (number, reply(number as u8, size)));
            }
            assert!(served.get() >= 10 && (once.is_none() || served.get() == 10));
        }
    }
}

#[test]
fn the_x_kernel_calls_and_bsd_executes() {
    for xo in [false, true] {
        for size in [0, 578, 579, 4624] {
            let mut world = world(2, |link| (link.loss, link.duplicate) = (0.1, 0.1));
            let a = node(&mut world, "a", 17, &[]);
            let (b, _, top) = xk_node(&mut world, 1, xo);
            world.start().unwrap();
            run(&mut world, CLAIM * 2);
            let (cx, bsd) = at(&world, a);
            let server = atp_socket(&cx, &bsd, 130);
            let atp = world.kernel(b).unwrap().find_protocol("atp").unwrap();
            let replies: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
            let kept = Rc::clone(&replies);
            world.spawn(b, move |cx| {
                let ends =
                    Participants::pair(participant("*"), participant("socket130@node17@net10"));
                let session = atp.open(cx, Upper::new(&top), ends).unwrap();
                for number in 0..10_u8 {
                    let request = cx.pool().copy_from(64, &[number; 45]).unwrap();
                    let answer = session.call(cx, request).unwrap();
                    kept.borrow_mut().push(answer.octets().collect());
                }
                session.close(cx);
            });
            let mut executed = 0;
            while replies.borrow().len() < 10 && world.now() < xk_core::Time::from_s(120) {
                run(&mut world, Duration::from_millis(10));
                executed += serve(&cx, &server, size);
            }
            let wanted: Vec<_> = (0..10_u8).map(|number| reply(number, size)).collect();
            assert_eq!(*replies.borrow(), wanted, "xo {xo}, {size}");
            assert!(executed >= 10 && (!xo || executed == 10), "xo {xo}, {size}: {executed}");
        }
    }
}
