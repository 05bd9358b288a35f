//! Echo.

use crate::rig::{Lan, receive, send};
use core::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_streams::Errno;

#[test]
fn what_is_sent_comes_back() {
    let lan = Lan::new(&[17, 18]);
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    let ping = a.bound("aep", &[]);
    for (n, size) in [(0_u8, 0), (1, 1), (2, 585)] {
        send(&a.cx, &ping, &AtAddr::new(10, 18, 4).to_sockaddr(), &[], &vec![n; size]);
        lan.run(Duration::from_millis(100));
        let (from, _, data) = receive(&a.cx, &ping).unwrap();
        assert_eq!(from, AtAddr::new(10, 18, 4).to_sockaddr());
        assert_eq!(data, vec![n; size]);
    }
    // To itself.
    send(&a.cx, &ping, &AtAddr::new(10, 17, 0).to_sockaddr(), &[], b"me");
    lan.run(Duration::from_millis(100));
    assert_eq!(receive(&a.cx, &ping).unwrap().2, b"me");
    // A reply that was not asked for.
    let stray = b.bound("ddp", &AtAddr::new(0, 0, 150).to_sockaddr());
    send(&b.cx, &stray, &AtAddr::new(10, 17, 4).to_sockaddr(), &[4], b"\x02stray");
    send(&b.cx, &stray, &AtAddr::new(10, 17, 4).to_sockaddr(), &[4], b"\x03bad");
    send(&b.cx, &stray, &AtAddr::new(10, 17, 4).to_sockaddr(), &[4], b"");
    lan.run(Duration::from_millis(100));
    assert_eq!(receive(&a.cx, &ping), Err(Errno::EAGAIN));
}
