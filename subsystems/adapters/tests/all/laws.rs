//! The laws: everything arrives unchanged, nothing is kept, faults are told, bounds hold.

use crate::rig::{Of, PAIRS, Rig, addr};
use xk_bsd::Bsd;
use xk_streams::Streams;
use xk_testkit::kernel::TestKernel;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn everything_arrives_unchanged_with_its_addresses() {
    for pair in PAIRS {
        let rig = Rig::new(pair);
        for len in (0..=130).chain([200, 255, 256, 511, 512, 585, 586]) {
            let octets = pattern(len);
            for cut in [0, len / 3, len] {
                let (from, to) = (addr(130, 3), addr(140, 4));
                let parts = [&octets[..cut], &octets[cut..]];
                let sent = rig.send(from, to, &parts);
                assert_eq!(sent, Ok(()), "{pair:?} {len}");
                let expected = vec![(from, to, octets.clone())];
                assert_eq!(rig.take(), expected, "{pair:?}: {len} octets, cut at {cut}");
            }
        }
        assert_eq!(rig.adapter.head().drops().total(), 0, "{pair:?}");
    }
}

#[test]
fn octets_are_copied_where_they_must_be_and_nowhere_else() {
    // Long parts are clusters in BSD, and blocks of the kernel's pool in STREAMS.
    let (long, short) = (pattern(400), pattern(60));
    for pair @ (upper, lower) in PAIRS {
        let rig = Rig::new(pair);
        let ends = (addr(130, 3), addr(140, 4));
        rig.send(ends.0, ends.1, &[&long]).unwrap();
        let seen = |name: &str| rig.report(name);
        let long_copied = seen("down, octets copied") + seen("up, octets copied");
        assert_eq!(long_copied, 0, "{pair:?}: a long message");
        assert!(seen("down, lent") >= 1, "{pair:?}");
        rig.send(ends.0, ends.1, &[&short]).unwrap();
        // Small mbufs lie outside of the x-kernel's pool; the loop gives the message back in the
        // form in which it came, so that what was lent to BSD comes home.
        let expected = match (upper, lower) {
            (Of::Bsd, Of::Xk) => (60, 0),
            _ => (0, 0),
        };
        let found = (seen("down, octets copied"), seen("up, octets copied"));
        assert_eq!(found, expected, "{pair:?}: a short message");
    }
}

#[test]
fn nothing_is_kept_when_the_graph_is_taken_down() {
    for pair in PAIRS {
        let rig = Rig::new(pair);
        let (bsd, streams) = (Bsd::of(&rig.cx), Streams::of(&rig.cx));
        for n in 0..50_u8 {
            rig.send(addr(130 + n % 7, 3), addr(140, n), &[&pattern(usize::from(n) * 9)]).unwrap();
        }
        assert_eq!(rig.take().len(), 50, "{pair:?}");
        let in_use = rig.in_use();
        assert_eq!(in_use, (0, 0, 0), "{pair:?}: mbufs, blocks, descriptors while it runs");
        *rig.log.send.borrow_mut() = None;
        rig.cx.stop();
        assert_eq!(rig.cx.live(), (0, 0), "{pair:?}");
        assert!(bsd.is_none_or(|bsd| bsd.mbufs().mbstat().in_use == 0), "{pair:?}");
        assert!(streams.is_none_or(|s| s.blocks().stats().messages == 0), "{pair:?}");
        assert_eq!(rig.cx.timers(), 0, "{pair:?}");
    }
}

#[test]
fn what_the_lower_refuses_is_told_in_the_words_of_the_upper() {
    for pair @ (upper, lower) in PAIRS {
        let rig = Rig::new(pair);
        let (from, to) = (addr(130, 3), addr(140, 4));
        let big = rig.send(from, to, &[&pattern(587)]);
        rig.log.fails.set(true);
        let failed = rig.send(from, to, &[b"x"]);
        let faults = rig.log.faults.take();
        match (upper, lower) {
            (Of::Xk, Of::Bsd) => {
                assert_eq!((big, failed), (Err("TooBig".into()), Err("Unreachable".into())));
            }
            (Of::Xk, _) => assert_eq!((big, failed), (Ok(()), Ok(())), "told later"),
            (Of::Bsd, Of::Xk) => {
                assert_eq!((big, failed), (Err("EMSGSIZE".into()), Err("EHOSTUNREACH".into())));
            }
            (Of::Bsd, _) => {
                assert_eq!((big, failed), (Ok(()), Ok(())), "told later");
                assert_eq!(faults, ["MsgSize", "UnreachHost"]);
            }
            (Of::Streams, _) => {
                assert_eq!((big, failed), (Ok(()), Ok(())), "told in the band of messages");
                assert!(faults.contains(&"EMSGSIZE".to_owned()), "{pair:?} {faults:?}");
                assert!(faults.contains(&"EHOSTUNREACH".to_owned()), "{pair:?} {faults:?}");
            }
        }
        assert_eq!(rig.take(), [], "{pair:?}");
        assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
        // It goes on.
        rig.log.fails.set(false);
        let _ = rig.send(from, to, &[b"y"]);
        let _ = rig.send(from, to, &[b"y"]);
        assert!(!rig.take().is_empty(), "{pair:?}");
    }
}

#[test]
fn exhausted_pools_are_counted_drops_and_it_goes_on() {
    for pair in PAIRS {
        // Sixteen mbufs, sixteen blocks: held until nothing is left.
        let (bsd, streams) = ("mbufs=16", "blocks_max=16");
        for bounds in [bsd, streams] {
            let of = if bounds == bsd { Of::Bsd } else { Of::Streams };
            if pair.0 != of && pair.1 != of {
                continue;
            }
            let rig = Rig::with(pair, bounds, TestKernel::new(3));
            let (from, to) = (addr(130, 3), addr(140, 4));
            let (mut mbufs, mut blocks) = (Vec::new(), Vec::new());
            if let Some(bsd) = Bsd::of(&rig.cx).filter(|_| of == Of::Bsd) {
                while let Ok(m) = bsd.mbufs().m_get(xk_bsd::Mt::Data) {
                    mbufs.push(m);
                }
            }
            if let Some(streams) = Streams::of(&rig.cx).filter(|_| of == Of::Streams) {
                while let Some(mp) = streams.blocks().copy(xk_streams::Kind::PcProto, 0, &[1; 4]) {
                    blocks.push(mp);
                }
            }
            let _ = rig.send(from, to, &[b"lost"]);
            assert_eq!(rig.take(), [], "{pair:?} {bounds}");
            drop((mbufs, blocks));
            let mut tries = 0;
            while rig.take().is_empty() {
                let _ = rig.send(from, to, &[b"after"]);
                tries += 1;
                assert!(tries < 4, "{pair:?} {bounds}: it does not go on");
            }
            assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
        }
    }
}

#[test]
fn a_neighbour_that_is_gone_is_a_clear_error() {
    for pair @ (upper, _) in PAIRS {
        let rig = Rig::new(pair);
        let (from, to) = (addr(130, 3), addr(140, 4));
        rig.adapter.stop(&rig.cx);
        let sent = rig.send(from, to, &[b"x"]);
        assert_eq!(rig.take(), [], "{pair:?}");
        match upper {
            Of::Xk => assert!(sent.is_err() || rig.take().is_empty(), "{pair:?} {sent:?}"),
            Of::Bsd => assert_eq!(sent, Err("ENETDOWN".into()), "{pair:?}"),
            Of::Streams => assert_eq!(sent, Ok(()), "{pair:?}"),
        }
        assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
    }
}
