//! Users that a server takes.

use alloc::vec::Vec;
use core::str::FromStr;

/// Users: numbers, and ranges of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accept(Vec<(u32, u32)>);

impl Accept {
    /// Whether this user is among them.
    #[must_use]
    pub(super) fn takes(&self, user: u32) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&user))
    }
}

/// The text names no users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected numbers and ranges with spaces between, such as 0 1000-1999")]
pub(super) struct NoUsers;

impl FromStr for Accept {
    type Err = NoUsers;

    fn from_str(text: &str) -> Result<Self, NoUsers> {
        let number = |text: &str| match text.bytes().all(|octet| octet.is_ascii_digit()) {
            true => text.parse::<u32>().map_err(|_| NoUsers),
            false => Err(NoUsers),
        };
        let ranges = text.split_whitespace().map(|part| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (number(low)?, number(high)?);
            if low > high {
                return Err(NoUsers);
            }
            Ok((low, high))
        });
        ranges.collect::<Result<Vec<_>, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges() {
        let accept: Accept = "0 1000-1999".parse().unwrap();
        for (user, takes) in [(0, true), (1, false), (1000, true), (1999, true), (2000, false)] {
            assert_eq!(accept.takes(user), takes, "{user}");
        }
        assert!(!"".parse::<Accept>().unwrap().takes(0));
        for wrong in ["x", "5-", "-5", "9-5", "+5", "4294967296"] {
            assert_eq!(wrong.parse::<Accept>(), Err(NoUsers), "{wrong}");
        }
    }
}
