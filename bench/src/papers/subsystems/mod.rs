//! The figures of the fifth paper: protocols of AppleTalk in three subsystems, and what joins them.
//! Its machine was a SPARCstation LX with SunOS 4.1.3C.

mod ends;
mod figure_3;
mod figure_4;
mod figure_7;
mod figure_8;
mod pair;
mod queues;

use crate::case::Benchmark;

/// The paper's systems on its machine.
const SPARC: &str = "SunOS, SPARCstation LX";

/// Where a protocol is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subsystem {
    Xk,
    Bsd,
    Streams,
}

/// A configuration of the paper's figures 2 and 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Configuration {
    /// As a system of a benchmark.
    system: &'static str,
    atp: Subsystem,
    ddp: Subsystem,
}

const fn configuration(system: &'static str, atp: Subsystem, ddp: Subsystem) -> Configuration {
    Configuration { system, atp, ddp }
}

/// All nine, those of one subsystem first.
const CONFIGURATIONS: [Configuration; 9] = [
    configuration("xk, XKATALK", Subsystem::Xk, Subsystem::Xk),
    configuration("xk, BSDATALK", Subsystem::Bsd, Subsystem::Bsd),
    configuration("xk, STRATALK", Subsystem::Streams, Subsystem::Streams),
    configuration("xk, BSDSTR", Subsystem::Bsd, Subsystem::Streams),
    configuration("xk, STRBSD", Subsystem::Streams, Subsystem::Bsd),
    configuration("xk, XKSTR", Subsystem::Xk, Subsystem::Streams),
    configuration("xk, XKBSD", Subsystem::Xk, Subsystem::Bsd),
    configuration("xk, STRXK", Subsystem::Streams, Subsystem::Xk),
    configuration("xk, BSDXK", Subsystem::Bsd, Subsystem::Xk),
];

impl Configuration {
    /// The one that has both protocols in this subsystem.
    fn pure(of: Subsystem) -> Self {
        match of {
            Subsystem::Xk => CONFIGURATIONS[0],
            Subsystem::Bsd => CONFIGURATIONS[1],
            Subsystem::Streams => CONFIGURATIONS[2],
        }
    }

    /// Lines of a graph file on a `cable`, for this node of network 10.
    fn lines(self, node: u8) -> String {
        let ddp = match self.ddp {
            Subsystem::Xk => format!("eth cable\naarp eth\nddp aarp net=\"10-19\" node={node}\n"),
            _ => format!("ether cable\nddp ether net=\"10-19\" node={node}\n"),
        };
        // As the paper's: at least once.
        let atp = "atp ddp xo=#false\n";
        if self.atp == self.ddp {
            return self.atp.block(&(ddp + atp));
        }
        self.ddp.block(&ddp) + &self.atp.block(atp)
    }
}

impl Subsystem {
    fn block(self, lines: &str) -> String {
        match self {
            Self::Xk => lines.to_owned(),
            Self::Bsd => format!("subsystem bsd {{\n{lines}}}\n"),
            Self::Streams => format!("subsystem streams {{\n{lines}}}\n"),
        }
    }
}

pub(super) fn benchmarks() -> Vec<Benchmark> {
    vec![
        figure_3::benchmark(),
        figure_4::benchmark(),
        figure_7::benchmark(),
        figure_8::benchmark(),
        queues::benchmark(),
    ]
}
