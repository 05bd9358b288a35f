//! The nine configurations of ATP and DDP, each in one of three subsystems.

/// The paper's systems on its machine.
pub(super) const SPARC: &str = "SunOS, SPARCstation LX";

/// Framework that a protocol is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subsystem {
    Xk,
    Bsd,
    Streams,
}

/// A configuration of the paper's figures 2 and 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    /// As a system of a benchmark.
    pub(super) system: &'static str,
    pub(super) atp: Subsystem,
    pub(super) ddp: Subsystem,
}

const fn configuration(system: &'static str, atp: Subsystem, ddp: Subsystem) -> Configuration {
    Configuration { system, atp, ddp }
}

/// All nine, those of one subsystem first.
pub(super) const CONFIGURATIONS: [Configuration; 9] = [
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
    pub(super) fn pure(of: Subsystem) -> Self {
        match of {
            Subsystem::Xk => CONFIGURATIONS[0],
            Subsystem::Bsd => CONFIGURATIONS[1],
            Subsystem::Streams => CONFIGURATIONS[2],
        }
    }

    /// Lines of a graph file on a `cable`, for this node of network 10.
    pub(super) fn lines(self, node: u8) -> String {
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
    pub(super) fn block(self, lines: &str) -> String {
        match self {
            Self::Xk => lines.to_owned(),
            Self::Bsd => format!("subsystem bsd {{\n{lines}}}\n"),
            Self::Streams => format!("subsystem streams {{\n{lines}}}\n"),
        }
    }
}
