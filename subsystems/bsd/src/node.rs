//! The nodes that a block makes in the kernel: its own, and one for each of its lines.

use crate::bsd::Bsd;
use crate::errno::Errno;
use crate::mbuf::{Mbufs, Mt, Release};
use crate::protosw::{ProtoFns, Protosw, Pru, PruArgs, SIOCGIFMTU, Switch};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError};
use xk_core::object::OpenError;
use xk_core::{Answer, Ask, Kernel, Protocol, ProtocolRef};
use xk_kit::control::{MaxPacket, OptPacket};

/// The node of a block: it owns the timers, and answers as netstat does.
struct Block {
    bsd: Rc<Bsd>,
}

/// Makes the subsystem of a kernel.
///
/// # Errors
/// [`BuildError::Param`] if the kernel has one already, or a parameter does not fit.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    if Bsd::of(build.cx).is_some() {
        return Err(BuildError::param("release", "one block `subsystem bsd` in a host"));
    }
    let release = match build.params.text("release") {
        Some("4.4") => Release::Bsd44,
        _ => Release::Bsd43,
    };
    let pool = build.cx.pool().clone();
    let mbufs = Mbufs::new(release, pool, build.int("mbufs")?, build.int("clusters")?);
    let bsd = Bsd::new(mbufs, build.int("sockets")?, build.octets("sb_max")?);
    build.cx.surround(Rc::clone(&bsd));
    let node = build.add(Block { bsd: Rc::clone(&bsd) })?;
    crate::unp::add(build.cx, &bsd, node.id()).map_err(environment)?;
    Ok(node)
}

fn line(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

impl Block {
    /// Figures of netstat -m, netstat -i and netstat -s.
    fn report(&self) -> Vec<(String, String)> {
        let stat = self.bsd.mbufs().mbstat();
        let mut lines = Vec::from([
            line("mbufs in use", format!("{} of {}", stat.in_use, stat.mbufs)),
            line("clusters in use", stat.clusters_in_use),
            line("requests denied", stat.drops),
            line("calls to drain", stat.drains),
            line("sockets", self.bsd.sockets.get()),
            line("software interrupts", self.bsd.softints()),
        ]);
        let kinds = [
            ("data", Mt::Data),
            ("packet headers", Mt::Header),
            ("protocol control blocks", Mt::Pcb),
            ("socket names", Mt::Soname),
            ("socket options", Mt::Soopts),
            ("fragments", Mt::Ftable),
            ("control", Mt::Control),
        ];
        for (name, kind) in kinds {
            let count = stat.kinds[kind as usize];
            if count > 0 {
                lines.push(line(&format!("mbufs of {name}"), count));
            }
        }
        for (bit, waiting, dropped) in self.bsd.netisrs() {
            lines.push(line(&format!("netisr {bit}"), format!("{waiting}, dropped {dropped}")));
        }
        for ifp in self.bsd.interfaces() {
            let data = &ifp.if_data;
            let text = format!(
                "mtu {} in {} errors {} out {} errors {} drops {}",
                ifp.if_mtu.get(),
                data.ipackets.get(),
                data.ierrors.get(),
                data.opackets.get(),
                data.oerrors.get(),
                ifp.if_snd.drops() + data.iqdrops.get(),
            );
            lines.push(line(&format!("{ifp:?}"), text));
        }
        lines
    }
}

impl Protocol for Block {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        self.bsd.start(cx, this)
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<Report>(|report| {
            report.lines = self.report();
            report.finished = true;
        })
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        self.bsd.expire(cx, this, token);
    }

    fn relieve(&self, cx: &Kernel, _: &ProtocolRef) {
        self.bsd.splnet(cx, || self.bsd.m_reclaim(cx));
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.bsd.stop();
    }
}

/// The node of a line: it has the line's name and counters in the kernel, and answers for it.
struct Line {
    bsd: Rc<Bsd>,
    functions: Rc<dyn ProtoFns>,
    lower: Option<ProtocolRef>,
}

/// Adds the node of a line to the kernel, and its entry to the protocol switch: what the `build`
/// of a line's `ENTRY` ends with. The entry is put on the line's first lower neighbour if that is
/// of the subsystem ([`Bsd::stack`]), or an adapter that stands in for one.
///
/// # Errors
/// [`BuildError`] if there is no block, or no number.
pub fn add_line(
    build: &Build<'_>,
    sw: Switch,
    functions: Rc<dyn ProtoFns>,
) -> Result<(ProtocolRef, Rc<Protosw>), BuildError> {
    let bsd = of(build.cx)?;
    let lower = build.lowers.first().cloned();
    let below = lower.as_ref().and_then(|lower| bsd.protocol(lower.id()));
    let node = Line { bsd: Rc::clone(&bsd), functions: Rc::clone(&functions), lower };
    let node = build.add(node)?;
    let registered = bsd.register(build.cx, node.id(), sw, functions).and_then(|pr| {
        if let Some(below) = below {
            bsd.stack_at_start(build.cx, below, &pr)?;
        }
        Ok(pr)
    });
    let pr = registered.map_err(environment)?;
    Ok((node, pr))
}

/// The subsystem of a kernel, for a line's `build`.
///
/// # Errors
/// [`BuildError::Environment`] if there is none.
pub fn of(cx: &Kernel) -> Result<Rc<Bsd>, BuildError> {
    Bsd::of(cx).ok_or_else(|| BuildError::Environment {
        param: None,
        what: "the host has no `subsystem bsd`".into(),
        help: "write the line within `subsystem bsd { }`".into(),
    })
}

/// An error of the subsystem as one of building.
pub fn environment(error: Errno) -> BuildError {
    BuildError::Environment {
        param: None,
        what: error.to_string(),
        help: "look at the line's place in the graph".into(),
    }
}

impl Line {
    fn pr(&self, this: &ProtocolRef) -> Option<Rc<Protosw>> {
        self.bsd.protocol(this.id())
    }

    fn mtu(&self, cx: &Kernel, this: &ProtocolRef) -> Option<u32> {
        let pr = self.pr(this)?;
        let mut nam = self.bsd.mbufs().m_copyin(Mt::Data, &[0; 4]).ok()?;
        let mut args = PruArgs { cmd: SIOCGIFMTU, ..PruArgs::nam(&mut nam) };
        self.bsd.splnet(cx, || pr.pr_usrreq(cx, None, Pru::Control, &mut args)).ok()?;
        nam.mtod().first_chunk().map(|octets| u32::from_be_bytes(*octets))
    }
}

impl Protocol for Line {
    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(report) = ask.get::<Report>() {
            let stats = self.functions.pr_stats();
            report.lines = stats.into_iter().map(|(name, value)| line(name, value)).collect();
            report.finished = true;
            return Answer::Answered;
        }
        if ask.get::<MaxPacket>().is_some() || ask.get::<OptPacket>().is_some() {
            let Some(octets) = self.mtu(cx, this) else { return Answer::Unknown };
            let _ = ask.answer::<MaxPacket>(|q| q.octets = octets);
            let _ = ask.answer::<OptPacket>(|q| q.octets = octets);
            return Answer::Answered;
        }
        if self.functions.pr_control(ask).is_answered() {
            return Answer::Answered;
        }
        self.lower.as_ref().map_or(Answer::Unknown, |lower| lower.control(cx, ask))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.lower.as_ref()
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.functions.pr_stop();
    }
}
