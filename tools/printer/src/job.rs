//! Octets of a job.

use xk_appletalk::ddp::Sum;

/// The octet at a place of a job.
pub(crate) fn octet(number: u64, at: usize) -> u8 {
    (at as u64).wrapping_mul(31).wrapping_add(number.wrapping_mul(7)).wrapping_add(at as u64 >> 8)
        as u8
}

/// Beginning and end of a job of PostScript (Document Structuring Conventions, version 3): spoolers
/// print only a job that says what it is.
const HEAD: &[u8] = b"%!PS-Adobe-3.0\n%%Title: xk\n%%EndComments\n";
const TAIL: &[u8] = b"showpage\n%%Trailer\n%%EOF\n";
/// A line between these: a comment with its number.
const LINE: &[u8] = b"% line 00000000 of a job\n";
const NUMBER_AT: usize = 7;
const DIGITS: usize = 8;

/// The octet at a place of a job of PostScript with so many octets; what is shorter than its frame
/// is that, cut.
pub(crate) fn postscript_octet(size: usize, at: usize) -> u8 {
    if let Some(octet) = HEAD.get(at) {
        return *octet;
    }
    let tail = size.saturating_sub(TAIL.len()).max(HEAD.len());
    if let Some(octet) = at.checked_sub(tail).and_then(|at| TAIL.get(at)) {
        return *octet;
    }
    let (line, column) = ((at - HEAD.len()) / LINE.len(), (at - HEAD.len()) % LINE.len());
    // The last line may be cut: it ends all the same.
    if at + 1 == tail {
        return b'\n';
    }
    match column.checked_sub(NUMBER_AT).filter(|digit| *digit < DIGITS) {
        Some(digit) => {
            let power = 10usize.pow((DIGITS - 1 - digit) as u32);
            b'0' + (line / power % 10) as u8
        }
        None => LINE.get(column).copied().unwrap_or(b' '),
    }
}

/// Number of octets, and their sum.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) octets: u64,
    sum: Sum,
}

impl Tally {
    pub(crate) fn add(&mut self, octets: &[u8]) {
        self.octets += octets.len() as u64;
        self.sum.add(octets);
    }

    pub(crate) fn sum(&self) -> u16 {
        self.sum.checksum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn a_job_of_postscript_has_lines_of_its_own() {
        for size in [HEAD.len() + TAIL.len() + 1, 100, 1000, 20_000] {
            let octets: Vec<u8> = (0..size).map(|at| postscript_octet(size, at)).collect();
            let text = String::from_utf8(octets).unwrap();
            assert!(text.starts_with("%!PS-Adobe-3.0\n") && text.ends_with("\n%%EOF\n"), "{text}");
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("% line")).collect();
            for (at, line) in lines.iter().take(lines.len().saturating_sub(1)).enumerate() {
                assert_eq!(**line, std::format!("% line {at:08} of a job"));
            }
        }
        assert_eq!(postscript_octet(3, 2), b'P');
    }
}
