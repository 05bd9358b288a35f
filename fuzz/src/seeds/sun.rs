//! Seeds of the layers of Sun RPC.

use super::{Seed, add};
use xk_auth::authsys::wire::{Credential, GROUPS_MAX};
use xk_reqrep::wire::{Header, Kind};
use xk_rm::wire::Mark;

/// Transactions, credentials and records.
pub(super) fn add_all(seeds: &mut Vec<Seed>) {
    transactions(seeds);
    credentials(seeds);
    records(seeds);
}

fn transactions(seeds: &mut Vec<Seed>) {
    let message = |kind, xid, body: &[u8]| [&Header { xid, kind }.emit()[..], body].concat();
    let call = message(Kind::Call, 0x7b55_8aeb, b"request");
    let reply = message(Kind::Reply, 0x7b55_8aeb, b"reply");
    add(seeds, "reqrep-wire", "call", &call);
    add(seeds, "reqrep-wire", "reply", &reply);
    // Each arrives behind its length. More calls than the cache holds replies; the first again, and
    // one that is refused.
    let others = (0..8).map(|xid| message(Kind::Call, xid, b"x"));
    let refused = message(Kind::Call, 99, b"");
    let unknown = [&[0, 0, 0, 9, 0, 0, 0, 2][..], b"neither"].concat();
    let all = [&call, &call, &reply].map(Clone::clone).into_iter();
    let all = all.chain(others).chain([call, refused, unknown]);
    let script: Vec<u8> =
        all.flat_map(|message| [&[message.len() as u8][..], &message].concat()).collect();
    add(seeds, "reqrep", "calls", &script);
    // The number 0 is that of the client's request to many. More hosts than it takes, by the last
    // octet, and one that says it again.
    let hosts = [1, 2, 3, 3, 4, 5, 6].map(|host| message(Kind::Reply, 0, &[b'y', host]));
    let script: Vec<u8> =
        hosts.iter().flat_map(|message| [&[message.len() as u8][..], message].concat()).collect();
    add(seeds, "reqrep", "many", &script);
}

fn credentials(seeds: &mut Vec<Seed>) {
    let mut groups = [0; GROUPS_MAX];
    groups[..3].copy_from_slice(&[100, 27, 4]);
    for (name, machine, group_count) in
        [("groups", &b"machine"[..], 3), ("nobody", b"", 0), ("all-groups", b"four", GROUPS_MAX)]
    {
        let credential =
            Credential { stamp: 7, machine, user: 1000, group: 100, group_count, groups };
        add(seeds, "authsys-wire", name, &credential.body());
    }
}

/// Records of one fragment and of several, cut after so many octets as the first says.
fn records(seeds: &mut Vec<Seed>) {
    let fragment = |is_last: bool, data: &[u8]| {
        let word = u32::from(is_last) << 31 | data.len() as u32;
        let mark = Mark::parse(word.to_be_bytes());
        [&mark.emit()[..], data].concat()
    };
    let whole = fragment(true, b"a record");
    let pieces = [fragment(false, b"in "), fragment(false, b""), fragment(true, b"pieces")];
    let long = [fragment(false, &[b'l'; 1500]), fragment(true, &[b'l'; 600])].concat();
    let both = [&whole[..], &pieces.concat(), &whole].concat();
    for (name, piece, stream) in [("one", 255, &whole), ("cut", 3, &both), ("long", 100, &long)] {
        add(seeds, "rm", name, &[&[piece][..], stream].concat());
    }
}
