//! Packet scripts: what arrives, what must be sent, what the application does and is told, and
//! when, in virtual time.
//!
//! A script stands below and above the protocol under test: below as a lower protocol that takes
//! host participants and answers what such layers are asked, above as an application that speaks
//! `xk_kit::net::stream`. Sequence numbers are relative to the first ones of each side; every
//! checksum and every octet of data is checked without a word in the script. A folder's scripts go
//! twice: the second time segments that arrive right behind each other come as one burst.
//!
//! ```text
//! case RFC 9293 3.5, RFC 9293 3.10.7.2: a SYN is answered and the connection stands
//! 0     listen
//! +0    < S 0 win 1000 <mss 1000>
//! +0    > S. 0 ack 1 <mss 1460, ...>
//! +10   < . ack 1                      # `seq` left out: where the sender stands
//! +0    event accepted
//! +0    < . 1:501 ack 1
//! +0..500 > . ack 501                  # at any time within half a second
//! +0    read 500
//! +1000 quiet                          # and nothing more until then
//! ```
//!
//! A line begins with a time in milliseconds: from the beginning, or with `+` from the line before
//! (from when the segment was seen, behind an expectation), or a range for an expectation; without
//! one it happens at once. A file's `define NAME` ... is inserted by `use NAME`.
//!
//! | line | meaning |
//! | --- | --- |
//! | `param NAME VALUE`, `mtu N`, `isn N`, `tolerance MS` | before the first act: the protocol's parameters, the path's largest packet, the peer's first sequence number, how exact times are (1 ms) |
//! | `< FLAGS SEQ:END ack N win N urg N <OPTIONS> ecn ce` | a segment arrives; also `fill HEX`, `corrupt`, `offset WORDS`, `cut OCTETS`, `to PORT`, `from PORT` |
//! | `> FLAGS SEQ:END ack N win N <OPTIONS> hops N class N` | the next segment sent is this one, with these wishes for the header of its packet; `*` for a number left open, `> *` for any segment |
//! | `quiet`, `skip` | nothing was sent that no line spoke of; or it does not matter |
//! | `listen`, `unlisten`, `room on`, `room off`, `room N` (with segments of N octets at most), `room N B` (and a receive buffer of B octets at most), `connect`, `write N`, `write N fails`, `record` (what was written ends one), `shutdown`, `close`, `abort`, `consume N` | what the application does |
//! | `set NAME VALUE`, `set NAME VALUE fails` | a setting of the stream; before there is one, of the protocol |
//! | `next NAME VALUE` | a setting of the stream that the next `connect` opens |
//! | `read N`, `event E`, `state NAME`, `info FIGURE BOUND`, `soft ERROR`, `space BOUND`, `drops REASON BOUND` | what it must see |
//! | `flow N`, `new [N]` | from here on another connection; the same ports begin again, the peer's first number N further on |
//! | `mtu N`, `error KIND [seq N]` | the path changes; the network reports an error about a segment |
//!
//! Flags are `S F R P U E W A` and `.` for ACK; `P` counts only where it is written, or `p` for its
//! absence, and `~` says that ACK may be there or not. Options are `mss N`, `ws N`, `sack_ok`,
//! `sack A:B C:D`, `ts VALUE ECHO`, `uto N`, `fastopen`, `fastopen HEX`, `fastopen last` (the
//! cookie seen last), `accecn0 N N N`, `accecn1 N N N` (with fewer numbers, or none), `nop`, `eol`,
//! `raw HEX`; `!NAME` for one that must be absent, `...` for any others.
//! A bound is `5`, `>=5`, `<=5`, `5..9` or `*`. Timestamps of the protocol under test count from
//! its first one; once both sides have agreed on them, arriving segments carry them by
//! themselves, unless their options say `ts V E` or `!ts`.

mod acts;
mod app;
mod flow;
mod parse;
mod run;
mod segment;
mod spec;
mod suite;
pub mod wire;

pub use parse::{Definitions, ParseError, parse};
pub use run::{Failure, run};
pub use spec::{Act, Bound, Case, Number, OptionSpec, OptionsSpec, SegmentSpec, Step, Told, When};
pub use suite::{File, load, run_file};
