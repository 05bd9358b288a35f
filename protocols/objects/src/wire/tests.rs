//! Headers and answers, on octets and by round trip.

use super::*;
use proptest::prelude::*;
use xk_kit::rpc::codes::{STATUSES, status_of};

fn host(last: u8) -> HostAddr {
    HostAddr::from([10, 0, 0, last])
}

#[test]
fn the_octets() {
    let request = Request { version: 1, zero: 0, operation: 2, count: 5, eid: 0x0102 };
    assert_eq!(request.emit(), [1, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 1, 2]);
    let moving = Moving::of(OFFER, (7, 6), 0xabcd);
    let octets = [1, 1, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0xab, 0xcd];
    assert_eq!((moving.emit(), Moving::parse(&octets)), (octets, moving));
    let question = Question { version: 1, kind: ASK, zero: 0, eid: 7 };
    assert_eq!(question.emit(), [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    let away = Told::of(Known::Away(Place { host: host(3), count: 6 })).emit();
    let octets = [1, 3, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3];
    assert_eq!(away, octets, "moved, now at 10.0.0.3");
}

#[test]
fn what_is_none_is_not_believed() {
    for octets in [[0, 0, 0, 0], [2, 0, 0, 0], [1, 0, 0, 1], [1, 0, 1, 0]] {
        assert_eq!(Front::kind_in(&octets), None);
    }
    let good = Told::of(Known::Away(Place { host: host(3), count: 6 })).emit();
    for (at, octet) in [(0, 0), (1, 4), (2, 1), (3, 1)] {
        let mut octets = good;
        octets[at] = octet;
        assert_eq!(Told::parse(&octets).known(host(1)), None, "octet {at}");
    }
    let mut nowhere = good;
    nowhere[8..].fill(0);
    assert_eq!(Told::parse(&nowhere).known(host(1)), None, "it is away at no host");
    let mut everywhere = good;
    everywhere[20..].fill(0xff);
    assert_eq!(Told::parse(&everywhere).known(host(1)), None, "nor at all of them");
}

#[test]
fn a_reason_goes_as_a_status_and_comes_back() {
    for (_, reason) in STATUSES {
        assert_eq!(*reason_of(status_of(reason)), *reason);
    }
    assert_eq!(*reason_of(status_of(&xk_core::reason::TABLE_FULL)), SYSTEM_ERROR);
    assert_eq!(*reason_of(255), SYSTEM_ERROR);
}

proptest! {
    #[test]
    fn what_is_an_answer_comes_out_again(octets: [u8; Told::OCTETS], state in 0_u8..5) {
        let mut octets = octets;
        octets[..4].copy_from_slice(&Front::of(state).emit());
        if let Some(known) = Told::parse(&octets).known(host(1)) {
            let own = match known {
                Known::Here(place) => Known::Here(Place { host: HostAddr::UNSPECIFIED, ..place }),
                other => other,
            };
            prop_assert_eq!(Told::of(own).known(host(1)), Some(known));
        }
    }

    #[test]
    fn headers_come_out_again(request: [u8; Request::OCTETS], moving: [u8; Moving::OCTETS]) {
        prop_assert_eq!(Request::parse(&request).emit(), request);
        prop_assert_eq!(Moving::parse(&moving).emit(), moving);
    }
}
