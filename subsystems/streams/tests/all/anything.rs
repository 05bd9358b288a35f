//! Any operations in any order on pipes, drivers and multiplexors: nothing panics, all is bounded,
//! and at the end nothing is left.

use crate::rig::{Driver, Rig, Seen};
use proptest::prelude::*;
use std::rc::Rc;
use xk_streams::head::{Command, Want};
use xk_streams::{Kind, Stream};

/// An act: what is done, to which stream, and with which other or how much.
#[derive(Clone, Debug)]
struct Act {
    what: u8,
    one: usize,
    other: usize,
    much: usize,
}

fn act() -> impl Strategy<Value = Act> {
    (0..24_u8, 0..32_usize, 0..32_usize, 0..2000_usize).prop_map(|(what, one, other, much)| Act {
        what,
        one,
        other,
        much,
    })
}

/// Opens one more stream, of three drivers or a pipe.
fn open(rig: &Rig, all: &mut Vec<Rc<Stream>>, which: usize) {
    let opened = match which % 4 {
        0 => rig.streams.pipe(&rig.cx).map(|(one, other)| vec![one, other]),
        1 => rig.streams.open(&rig.cx, "mux").map(|one| vec![one]),
        2 => rig.streams.open(&rig.cx, "mux2").map(|one| vec![one]),
        _ => rig.streams.open(&rig.cx, "dev").map(|one| vec![one]),
    };
    for stream in opened.unwrap_or_default() {
        stream.set_nonblocking(true);
        all.push(stream);
    }
}

fn act_on(rig: &Rig, all: &mut Vec<Rc<Stream>>, links: &mut Vec<u32>, act: &Act) {
    if all.is_empty() || act.what == 0 {
        return open(rig, all, act.other);
    }
    let cx = &rig.cx;
    let (one, other) = (Rc::clone(&all[act.one % all.len()]), &all[act.other % all.len()]);
    match act.what {
        1 => drop(one.push(cx, ["pass", "other", "count", "bad"][act.other % 4])),
        2 => drop(one.pop(cx)),
        3 | 4 => drop(one.write(cx, &vec![7; act.much])),
        5 | 6 => drop(one.read(cx, &mut vec![0; act.much])),
        7 => drop(one.getmsg(cx, Some(act.much), Some(act.much / 2), Want::Any)),
        8 => {
            let band = act.other as u8 % 3;
            let _ = one.putmsg(cx, Some(b"c"), Some(&vec![1; act.much]), (false, band));
        }
        9 => drop(one.putmsg(cx, Some(b"high"), None, (true, 0))),
        10 => drop(one.flush(cx, 1 + act.other as u8 % 3)),
        11 => drop(one.flush_band(cx, 1 + act.other as u8 % 3, act.much as u8 % 3)),
        12 => drop(one.sendfd(cx, other)),
        13 => drop(one.recvfd(cx).map(|got| all.push(got))),
        14 => links.extend(one.link(cx, other)),
        15 => links.extend(one.plink(cx, other)),
        16 => {
            let index = links.get(act.other % links.len().max(1)).copied();
            let _ = (one.unlink(cx, index), one.punlink(cx, index));
        }
        17 => drop(one.reopen(cx)),
        18 => {
            one.close(cx);
            all.remove(act.one % all.len());
        }
        19 => {
            // From the driver that was opened last: data, control, an error, a hang-up, a flush.
            let kinds = [Kind::Data, Kind::PcProto, Kind::Error, Kind::Hangup, Kind::Flush];
            let octets = [act.much as u8, act.other as u8];
            let q = rig.seen.up.borrow().as_ref().and_then(xk_streams::WeakQ::upgrade);
            let mp = rig.streams.blocks().copy(kinds[act.other % 5], 0, &octets);
            if let (Some(q), Some(mp)) = (q, mp) {
                q.putnext(cx, mp);
            }
        }
        20 => rig.seen.is_stopped.set(act.other.is_multiple_of(2)),
        21 => {
            let command = Command(0x5401 + act.other as u32 % 2);
            drop(one.str_ioctl(cx, command, &vec![3; act.much], Default::default()));
        }
        22 => drop(one.set_read_options(act.much as u32 % 32)),
        _ => drop(cx.run_due()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_operations_leave_nothing_behind(acts in prop::collection::vec(act(), 1..120)) {
        let rig = Rig::new();
        for name in ["mux", "mux2"] {
            let seen = Rc::<Seen>::default();
            let packets = (0, u32::MAX);
            let driver = Driver { name, seen, is_multiplexor: true, packets };
            rig.streams.add_driver(name, Rc::new(driver));
        }
        let mut all = vec![Rc::clone(&rig.stream)];
        let mut links = Vec::new();
        for act in &acts {
            act_on(&rig, &mut all, &mut links, act);
            rig.cx.run_due();
            // What the driver has taken is not the subsystem's any more.
            rig.seen.got.borrow_mut().clear();
        }
        for stream in &all {
            stream.close(&rig.cx);
        }
        drop(all);
        rig.cx.stop();
        rig.seen.got.borrow_mut().clear();
        prop_assert_eq!(rig.streams.opens().1, 0);
        prop_assert_eq!(rig.streams.link_count(), 0);
        prop_assert_eq!(rig.streams.blocks().stats().messages, 0);
    }
}
