//! Messages that programs of others have sent, octet for octet.

/// The messages of `vectors/onc-rpc.txt`, which says what they are.
const ONC_RPC: &str = include_str!("../vectors/onc-rpc.txt");

/// An ONC RPC message of libtirpc or rpcbind: `onc_rpc("add", "call")`,
/// `onc_rpc("pmap-getport", "reply")`. The names are in `vectors/onc-rpc.txt`.
///
/// # Panics
/// If there is none of this name and kind.
#[must_use]
pub fn onc_rpc(name: &str, kind: &str) -> Vec<u8> {
    let is_wanted = |line: &&str| line.split(' ').take(2).eq([name, kind]);
    let line = ONC_RPC.lines().find(is_wanted);
    let octets = line.and_then(|line| line.rsplit(' ').next());
    let octets = octets.unwrap_or_else(|| panic!("no {kind} called {name}"));
    octets.as_bytes().chunks(2).map(octet).collect()
}

/// The octet of two hexadecimal digits.
fn octet(digits: &[u8]) -> u8 {
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let value = digits.iter().try_fold(0, |v, d| Some(16 * v + digit(d)?));
    u8::try_from(value.expect("hexadecimal digits")).expect("two digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_whole_words_and_of_its_kind() {
        let mut count = 0;
        for line in ONC_RPC.lines().filter(|l| !l.starts_with('#')) {
            let mut words = line.split(' ');
            let (Some(name), Some(kind)) = (words.next(), words.next()) else {
                continue;
            };
            let octets = onc_rpc(name, kind);
            // RFC 5531, section 9: the message type is the second word.
            let kind = ["call", "reply"].iter().position(|k| *k == kind);
            assert_eq!(octets.len() % 4, 0, "{name}");
            assert_eq!(Some(octets[7].into()), kind, "{name}");
            count += 1;
        }
        assert!(count > 50, "{count}");
    }
}
