//! Datagrams and addresses.

use crate::rig::{Host, Lan, bind, receive, send};
use core::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_core::control::Report;
use xk_core::reason;
use xk_streams::Errno;

const SECOND: Duration = Duration::from_secs(1);

fn address(host: &Host) -> String {
    host.ddp.ask(&host.cx, Report::default()).unwrap().lines[0].1.clone()
}

#[test]
fn hosts_claim_addresses_and_exchange_datagrams() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    assert_eq!((address(a), address(b)), ("10.17".into(), "10.18".into()));
    let (one, other) = (
        a.bound("ddp", &AtAddr::new(0, 0, 130).to_sockaddr()),
        b.bound("ddp", &AtAddr::new(10, 18, 140).to_sockaddr()),
    );
    let to = AtAddr::new(10, 18, 140).to_sockaddr();
    for n in 0..3_u8 {
        send(&a.cx, &one, &to, &[99], &[n; 300]);
    }
    lan.run(SECOND);
    let from = AtAddr::new(10, 17, 130).to_sockaddr();
    for n in 0..3_u8 {
        let came = receive(&b.cx, &other).unwrap();
        assert_eq!(came, (from.to_vec(), vec![99], vec![n; 300]));
    }
    assert_eq!(receive(&b.cx, &other), Err(Errno::EAGAIN));
    // To itself.
    send(&a.cx, &one, &from, &[98], b"me");
    lan.run(SECOND);
    assert_eq!(receive(&a.cx, &one).unwrap(), (from.to_vec(), vec![98], b"me".to_vec()));
    // To all, which does not come back.
    send(&a.cx, &one, &AtAddr::new(0, 255, 140).to_sockaddr(), &[97], b"all");
    lan.run(SECOND);
    assert_eq!(receive(&b.cx, &other).unwrap().1, [97]);
    for host in &lan.hosts {
        assert_eq!(host.drops(), 0);
        assert_eq!(host.ether.head().drops().total(), 0);
    }
}

#[test]
fn two_hosts_of_one_number_do_not_both_get_it() {
    let lan = Lan::new(&[17, 17]);
    let got = lan.hosts.iter().filter(|host| address(host) == "10.17").count();
    assert!(got <= 1);
    lan.run(Duration::from_secs(60));
    let got = lan.hosts.iter().filter(|host| address(host) == "10.17").count();
    assert_eq!(got, 1);
}

#[test]
fn sockets_are_one_stream_s_each() {
    let lan = Lan::new(&[17]);
    let host = &lan.hosts[0];
    let at = |socket| AtAddr::new(0, 0, socket).to_sockaddr();
    let held = host.bound("ddp", &at(130));
    let second = host.streams.open(&host.cx, "ddp").unwrap();
    second.set_nonblocking(true);
    let refused = bind(&host.cx, &second, &at(130)).unwrap_err();
    assert!(refused.contains("EADDRINUSE"), "{refused}");
    assert!(bind(&host.cx, &second, &at(255)).unwrap_err().contains("TBADADDR"));
    assert!(bind(&host.cx, &second, &[1; 16]).unwrap_err().contains("TBADADDR"));
    held.close(&host.cx);
    assert_eq!(bind(&host.cx, &second, &at(130)), Ok(()));
    assert!(bind(&host.cx, &second, &at(131)).unwrap_err().contains("TOUTSTATE"));
}

#[test]
fn what_cannot_go_is_told_or_counted() {
    let lan = Lan::new(&[17, 18]);
    let a = &lan.hosts[0];
    let one = a.bound("ddp", &AtAddr::new(0, 0, 130).to_sockaddr());
    // Too long: the user is told, and it is counted.
    send(&a.cx, &one, &AtAddr::new(10, 18, 9).to_sockaddr(), &[9], &[0; 587]);
    let told = one.getp(&a.cx, xk_streams::head::Want::Any).unwrap();
    assert!(format!("{:?}", xk_streams::tpi::Primitive::of(&told)).contains("UderrorInd"));
    // A node that is not there.
    send(&a.cx, &one, &AtAddr::new(10, 99, 9).to_sockaddr(), &[9], b"x");
    // A network that nothing leads to.
    send(&a.cx, &one, &AtAddr::new(77, 1, 9).to_sockaddr(), &[9], b"x");
    // A socket that none has.
    send(&a.cx, &one, &AtAddr::new(10, 18, 9).to_sockaddr(), &[9], b"x");
    lan.run(Duration::from_secs(5));
    let drops = a.ddp.head().drops().list();
    // Before it had an address it heard what the other one asked routers for.
    let drops = drops.iter().filter(|(reason, _)| reason.name != "not mine");
    let dropped: Vec<_> = drops.map(|(reason, n)| (reason.name, *n)).collect();
    assert_eq!(dropped, [("too big", 1), ("no route", 1), ("address not resolved", 1)]);
    assert_eq!(lan.hosts[1].ddp.head().drops().of(&reason::NO_PORT), 1);
    assert_eq!(receive(&a.cx, &one), Err(Errno::EAGAIN));
}

#[test]
fn a_full_stream_drops_and_the_others_go_on() {
    let lan = Lan::new(&[17]);
    let host = &lan.hosts[0];
    let me = AtAddr::new(10, 17, 130).to_sockaddr();
    let one = host.bound("ddp", &me);
    for _ in 0..40 {
        send(&host.cx, &one, &me, &[9], &[0; 500]);
        lan.run(Duration::from_millis(2));
    }
    let dropped = host.ddp.head().drops().of(&reason::QUEUE_FULL);
    let kept = core::iter::from_fn(|| receive(&host.cx, &one).ok()).count() as u64;
    assert!(dropped > 0 && kept + dropped == 40, "{kept} {dropped}");
    send(&host.cx, &one, &me, &[9], b"again");
    lan.run(Duration::from_millis(2));
    assert_eq!(receive(&host.cx, &one).unwrap().2, b"again");
}

#[test]
fn damaged_frames_are_dropped_at_every_length() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    let one = a.bound("ddp", &AtAddr::new(0, 0, 130).to_sockaddr());
    let other = b.bound("ddp", &AtAddr::new(0, 0, 131).to_sockaddr());
    send(&a.cx, &one, &AtAddr::new(10, 18, 131).to_sockaddr(), &[9], b"whole");
    lan.run(SECOND);
    receive(&b.cx, &other).unwrap();
    send(&a.cx, &one, &AtAddr::new(10, 18, 131).to_sockaddr(), &[9], b"whole");
    let frame: Vec<u8> = a.wire.take_sent()[0].message.octets().collect();
    for cut in 0..frame.len() {
        b.wire.inject(&b.cx, None, b.cx.message(&frame[..cut]));
    }
    for at in 0..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x55;
        b.wire.inject(&b.cx, None, b.cx.message(&damaged));
    }
    b.cx.run_due();
    while let Ok(came) = receive(&b.cx, &other) {
        // Damage to hops, source hardware, padding or the broadcast bit leaves the datagram whole.
        assert_eq!(came.2, b"whole");
    }
    assert!(b.ether.head().drops().total() + b.ddp.head().drops().total() > 60);
}

#[test]
fn a_multiplexor_whose_lower_is_gone_counts() {
    let lan = Lan::new(&[17]);
    let host = &lan.hosts[0];
    let one = host.bound("ddp", &AtAddr::new(0, 0, 130).to_sockaddr());
    let control = host.streams.open(&host.cx, "ddp").unwrap();
    control.punlink(&host.cx, None).unwrap();
    send(&host.cx, &one, &AtAddr::new(10, 99, 9).to_sockaddr(), &[9], b"x");
    send(&host.cx, &one, &AtAddr::new(10, 255, 9).to_sockaddr(), &[9], b"x");
    lan.run(Duration::from_secs(5));
    assert!(host.ddp.head().drops().total() > 0);
    host.cx.stop();
    assert_eq!(host.streams.blocks().stats().messages, 0);
}

#[test]
fn without_blocks_the_node_drops_and_goes_on() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    let one = a.bound("ddp", &AtAddr::new(0, 0, 130).to_sockaddr());
    let other = b.bound("ddp", &AtAddr::new(0, 0, 140).to_sockaddr());
    let to = AtAddr::new(10, 18, 140).to_sockaddr();
    let ask = || {
        send(&a.cx, &one, &to, &[99], b"x");
        lan.run(Duration::from_millis(20));
        receive(&b.cx, &other).is_ok()
    };
    assert!(ask());
    let blocks = b.streams.blocks();
    let before = blocks.stats().failures;
    let held: Vec<_> =
        core::iter::from_fn(|| blocks.allocb(1, xk_streams::Priority::High)).collect();
    assert!((0..20).all(|_| !ask()));
    // Frames are lent by the wire; what is short is the block in front of them.
    assert!(blocks.stats().failures > before);
    drop(held);
    assert!(ask());
    for host in &lan.hosts {
        host.cx.stop();
    }
    drop((one, other));
    assert_eq!(b.streams.blocks().stats().messages, 0);
}
