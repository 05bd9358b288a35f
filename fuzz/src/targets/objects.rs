//! Objects: headers and answers, what a host knows of places and moves by itself.

use crate::harness::Script;
use core::time::Duration;
use xk_core::{HostAddr, Secret};
use xk_objects::moves::Moves;
use xk_objects::places::{Act, Known, NODES_MAX, Place, Places, Step};
use xk_objects::wire::{Moving, Request, Told};

fn host(last: u8) -> HostAddr {
    HostAddr::from([10, 0, 0, last])
}

/// Reads `data` as each header and as an answer; what is read is written as the same octets again.
pub(crate) fn wire(data: &[u8]) {
    if let Some(octets) = data.first_chunk() {
        assert_eq!(Request::parse(octets).emit(), *octets);
    }
    if let Some(octets) = data.first_chunk() {
        assert_eq!(Moving::parse(octets).emit(), *octets);
    }
    let Some(octets) = data.first_chunk() else { return };
    if let Some(known) = Told::parse(octets).known(host(1)) {
        assert_eq!(Told::of(known).known(host(1)), Some(known), "it reads differently");
    }
}

/// Objects, places of others and moves of each kind, at most.
const MOST: usize = 4;

/// Lets `data` act on what a host knows: changes, searches with any answers, moves. What is kept
/// stays within its bounds, an object is here or elsewhere, and a search has an end.
pub(crate) fn places(data: &[u8]) {
    let (mut places, mut moves) =
        (Places::new(Secret::known([1, 2]), MOST, MOST), Moves::new(1, MOST));
    let script = Script::new(data);
    let mut now = Duration::ZERO;
    let next = || script.octet_or_zero();
    while let Some(act) = script.octet() {
        let eid = u64::from(next() & 7);
        let place = Place { host: host(next() & 3), count: u32::from(next()) };
        let known = places.look(eid);
        match act % 20 {
            0 => _ = places.act(eid, Act::Create),
            1 => _ = places.act(eid, Act::Enter),
            2 => _ = places.act(eid, Act::Leave),
            3 => _ = places.act(eid, Act::Freeze),
            4 => _ = places.act(eid, Act::Thaw),
            5 => _ = places.act(eid, Act::Depart(place)),
            6 => _ = places.act(eid, Act::Expect(place)),
            7 if place.count & 1 == 0 => _ = places.act(eid, Act::Arrive),
            7 => _ = places.act(eid, Act::Adopt),
            8 => _ = places.act(eid, Act::Drop),
            9 => {
                let is_learned = places.act(eid, Act::Learn(place));
                let is_here = matches!(known, Known::Here(_) | Known::Coming(_));
                assert!(!(is_learned && is_here), "what is here is not elsewhere");
            }
            10 => _ = places.act(eid, Act::Forget),
            11 => places.meet(place.host),
            12 => {
                let mut search = places.search(eid, Some(place.host), &[host(9)]);
                let mut asked = 0;
                loop {
                    match search.step() {
                        Step::Done(_) => break,
                        Step::Broadcast(_) => {}
                        Step::Ask(_) => asked += 1,
                    }
                    let place = Place { host: host(next() & 3), count: u32::from(next()) };
                    search.hear(match next() & 3 {
                        0 => None,
                        1 => Some(Known::Here(place)),
                        2 => Some(Known::Coming(place)),
                        _ => Some(Known::Away(place)),
                    });
                    assert!(asked < 4 * 17 + 2 * (NODES_MAX + 1), "a search has an end");
                }
            }
            13 => _ = moves.offer((eid, place.count), place.host),
            14 => _ = moves.commit((eid, place.count), now),
            15 => _ = moves.abort(eid),
            16 => moves.confirmed((eid, place.count)),
            17 => {
                let from = (place.host, u32::from(act & 1));
                _ = moves.keep((eid, place.count), from, (act & 32 == 0).then_some(now), || ());
            }
            18 => _ = moves.release((eid, place.count), (place.host, u32::from(act & 1))),
            _ => {
                now += Duration::from_millis(100) * u32::from(next());
                drop(moves.due(now));
                assert!(moves.next().is_none_or(|next| next > now), "what was due is done");
            }
        }
        let ((own, hints), (leave, come)) = (places.len(), moves.len());
        assert!(own <= MOST && hints <= MOST && leave <= MOST && come <= MOST, "it is bounded");
    }
}
