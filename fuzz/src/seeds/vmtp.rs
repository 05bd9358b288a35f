//! Seeds of VMTP.

use super::{Seed, add};
use xk_vmtp::wire::{APG, Entity, Header, RESPONSE, SDA};

/// Packets, and scripts of what arrives, is called, and how time goes by.
pub(super) fn add_all(seeds: &mut Vec<Seed>) {
    let request = Header {
        client: Entity::new(1, 0x0a00_0002),
        domain: 1 << 16,
        transaction: 100,
        server: Entity::new(1, 0x0a00_0001),
        code: SDA | 1,
        user: [0, 0, 0, 0, 0, 0, 16],
        ..Header::default()
    };
    let named = [
        ("request", request.with_data(1, 16)),
        ("again", Header { control: APG, ..request }.with_data(1, 16).with_round(1)),
        ("response", Header { control: RESPONSE, ..request }.with_data(1, 16)),
    ];
    for (name, header) in named {
        let mut octets = header.emit().to_vec();
        octets.resize(octets.len() + 20, 9);
        add(seeds, "vmtp-wire", name, &octets);
    }
    // A request, which is asked about, the same again, a longer one in parts, time, a call.
    let script = [
        &[1, 0, 0, 0, 0, 0, 1, 7, 1][..],
        &[1, 0, 0, 0, 0, 0, 1, 7, 1],
        &[1, 0, 4, 1, 0x20, 0, 40, 7, 1, 1, 0, 4, 2, 0x20, 0, 40, 7, 1],
        &[5, 6, 6, 1, 1, 0],
        &[6, 30, 1, 2, 1, 0, 3, 0, 0],
    ];
    add(seeds, "vmtp", "server", &script.concat());
    add(seeds, "vmtp", "twice", &script.concat().repeat(3));
}
