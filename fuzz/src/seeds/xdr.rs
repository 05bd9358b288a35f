//! Seeds of the RPC language and of the representation of its values.

use super::{Seed, add};
use crate::folder;
use std::{fs, io};

/// Files of the language, and values: an octet that says where they are cut, then octets.
pub(super) fn add_all(seeds: &mut Vec<Seed>) -> io::Result<()> {
    let root = folder().join("..");
    for (name, path) in [
        ("procedures", "graphs/procedures.x"),
        ("kinds", "sockets/rpcgen/tests/x/kinds.x"),
        ("portmap", "sockets/rpcgen/tests/x/portmap.x"),
    ] {
        let octets = fs::read(root.join(path))?;
        add(seeds, "rpcgen", name, &octets);
    }
    for (name, text) in [
        ("type", "typedef T T; struct s { s s; };"),
        ("number", "const A = 0xfffffffffffffffff; const B = A;"),
        ("comment", "/* no end\n% as it is\n"),
        ("union", "union u switch (int i) { case 1: case 1: void; default: int a<u>; };"),
        ("program", "program P { version V { int F(int, u) = 1; } = 1; } = 1;"),
    ] {
        add(seeds, "rpcgen", name, text.as_bytes());
    }
    let words = |words: &[u32]| -> Vec<u8> {
        let octets = words.iter().flat_map(|word| word.to_be_bytes());
        [6].into_iter().chain(octets).collect()
    };
    let letters = u32::from_be_bytes(*b"abc\0");
    add(seeds, "xdr", "texts", &words(&[2, 3, letters, 3, letters]));
    add(seeds, "xdr", "list", &words(&[1, 1, 1, 2, 1, 3, 0]));
    add(seeds, "xdr", "nested", &words(&[3, 1, 7, 0, 2, 8, 9]));
    add(seeds, "xdr", "long", &words(&[u32::MAX, 1, 2, 3]));
    add(seeds, "xdr", "zeros", &words(&[0; 12]));
    add(seeds, "xdr", "number", &words(&[0x7ff0_0000, 1, 0x8000_0000, 0]));
    Ok(())
}
