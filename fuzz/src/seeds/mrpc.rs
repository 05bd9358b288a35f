//! Seeds of Sprite RPC.

use super::{Seed, add};
use xk_mrpc::wire::{ACK, Header, LASTFRAG, REPLY, REQUEST, SERVER};

/// Headers of Sprite RPC, and scripts of what arrives, is called, and how time goes by.
pub(super) fn add_all(seeds: &mut Vec<Seed>) {
    let call = Header {
        flags: REQUEST | SERVER,
        client_host: 0x0a00_0002,
        server_host: 0x0a00_0001,
        channel: 3,
        sequence: 7,
        command: 1,
        boot: 7,
        ..Header::default()
    };
    let fragment = Header {
        flags: call.flags | LASTFRAG,
        fragments: 3,
        mask: 4,
        sizes: [0, 20],
        offsets: [0, 2048],
        ..call
    };
    let ack = Header { flags: ACK | LASTFRAG, mask: 5, ..call };
    let reply = Header { flags: REPLY, ..call };
    let named = [("call", call), ("fragment", fragment), ("ack", ack), ("reply", reply)];
    for (name, header) in named {
        let mut octets = header.emit().to_vec();
        octets.resize(octets.len() + header.body_len(), 9);
        add(seeds, "mrpc-wire", name, &octets);
        octets.splice(0..0, [0, octets.len() as u8]);
        add(seeds, "mrpc", name, &octets.repeat(2));
    }
    // A challenge, the request under its ticket, the same again, the next in two fragments, a
    // minute later the third.
    let request = [1, 4, 0, 0, 0, 0, 10, 1];
    let known = [1, 0, 0, 0, 0, 0, 10, 1];
    let halves = [[1, 0, 4, 2, 0, 0, 10, 1], [1, 0, 4, 2, 1, 0, 10, 1]];
    let later = [5, 16];
    let script = [
        &request[..],
        &request,
        &known,
        &halves.concat(),
        &later,
        &[1, 8, 0, 0, 4, 0, 0, 1],
        &[1, 0, 8, 0, 0, 0, 10, 1],
    ];
    add(seeds, "mrpc", "server", &script.concat());
    // Calls whose replies come at once: whole, in fragments, as acknowledgements, as a challenge.
    let calls = [
        &[6, 0, 0, 1, 3, 0, 0, 0, 0, 0][..],
        &[6, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0],
        &[6, 30, 0, 3, 0, 2, 0, 0, 9, 0, 0, 2, 1, 0, 9, 0, 1, 0, 0, 2, 0, 0],
    ];
    add(seeds, "mrpc", "client", &calls.concat().repeat(3));
    let mut script = [0; 400];
    for seed in 0..4 {
        xk_core::random::Random::new(seed + 90).fill(&mut script);
        add(seeds, "mrpc", &format!("script{seed}"), &script);
    }
}
