//! The protocol object: a layer of authentication whose credentials name a Unix user.

use crate::accept::Accept;
use crate::session::User;
use crate::wire::{Credential, GROUPS_MAX, MACHINE_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use xk_core::graph::{Build, BuildError, ParamKind, optional, text};
use xk_core::{Kernel, ProtocolRef};
use xk_kit::rpc::auth;

xk_core::settings! {
    /// The caller's names, and the callers that a server takes.
    #[derive(Clone, Debug)]
    pub struct Settings {
        user: u32 = int(0..=4_294_967_295, 65_534, "the number of the caller"),
        group: u32 = int(0..=4_294_967_295, 65_534, "the number of the caller's first group"),
        sessions_max: usize = int(1..=16_777_216, 16_384,
            "how many sessions it holds, for calls and for requests each; idle ones are evicted \
             for new ones"),
        ..
        /// The name of the caller's machine, cut to 255 octets.
        machine: String = "xk".into(),
        /// Numbers of the other groups; only 16 count.
        groups: Vec<u32> = Vec::new(),
        /// Whom a server takes; everybody if there is none.
        accept: Option<Accept> = None,
    }
    [
        text("machine", "a name of at most 255 octets", "xk", "the name of the caller's machine"),
        optional("groups", ParamKind::Text("at most 16 numbers with spaces between"),
            "the numbers of the caller's other groups"),
        optional("accept",
            ParamKind::Text("numbers and ranges with spaces between, such as 0 1000-1999"),
            "the users whom a server takes; all if not given"),
    ]
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or a parameter cannot be read.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::read(build)?);
    let machine = params.text("machine").unwrap_or(&usual.machine);
    if machine.len() > MACHINE_MAX {
        return Err(BuildError::param("machine", "a name of at most 255 octets"));
    }
    let texts = params.text("groups").unwrap_or_default().split_whitespace();
    let groups: Option<Vec<u32>> = texts.map(|text| text.parse().ok()).collect();
    let groups = groups
        .filter(|groups| groups.len() <= GROUPS_MAX)
        .ok_or_else(|| BuildError::param("groups", "at most 16 numbers with spaces between"))?;
    let accept =
        params.parse("accept", "numbers and ranges with spaces between, such as 0 1000-1999")?;
    let settings = Settings { machine: machine.into(), groups, accept, ..usual };
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let machine = settings.machine.as_bytes();
    let mut groups = [0; GROUPS_MAX];
    let group_count = settings.groups.len().min(GROUPS_MAX);
    for (to, from) in groups.iter_mut().zip(&settings.groups) {
        *to = *from;
    }
    let credential = Credential {
        stamp: cx.random().below(1 << 32) as u32,
        machine: machine.get(..MACHINE_MAX).unwrap_or(machine),
        user: settings.user,
        group: settings.group,
        group_count,
        groups,
    };
    let flavor = User { header: credential.emit(), accept: settings.accept };
    let layer = auth::layered(cx.secret(), lower, flavor, settings.sessions_max);
    cx.add_protocol(crate::ENTRY.kind, name, layer)
}
