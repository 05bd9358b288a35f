//! Keys of names: what means the same in every address space, in four octets.

/// The key of an attribute, question or reason called `name`: its 32-bit FNV-1a hash.
pub const fn name_key(name: &str) -> u32 {
    let octets = name.as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < octets.len() {
        hash = (hash ^ octets[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::name_key;

    /// Vectors of the FNV reference code (draft-eastlake-fnv, section "FNV-1a").
    #[test]
    fn it_is_fnv_1a() {
        for (name, key) in [("", 0x811c_9dc5), ("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)] {
            assert_eq!(name_key(name), key);
        }
    }
}
