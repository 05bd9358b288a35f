//! The protocol object: a layer of authentication whose credentials name a Unix user.

use crate::accept::Accept;
use crate::session::User;
use crate::wire::{Credential, GROUPS_MAX, MACHINE_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use xk_core::graph::{Build, BuildError};
use xk_core::{Kernel, ProtocolRef};
use xk_kit::rpc::auth;

/// The caller's names, and the callers that a server takes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the caller's machine, cut to 255 octets.
    pub machine: String,
    /// The caller's number.
    pub user: u32,
    /// That of the first group.
    pub group: u32,
    /// Those of the other groups; only 16 count.
    pub groups: Vec<u32>,
    /// Whom a server takes; everybody if there is none.
    pub accept: Option<Accept>,
    /// How many sessions it holds for either direction.
    pub sessions_max: usize,
}

impl Default for Settings {
    /// The numbers that Linux has for no user, 65534, and a server for all callers.
    fn default() -> Self {
        Self {
            machine: "xk".into(),
            user: 65_534,
            group: 65_534,
            groups: Vec::new(),
            accept: None,
            sessions_max: 16_384,
        }
    }
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or a parameter cannot be read.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::default());
    let wrong =
        |name, expected: &str| BuildError::Param { name, index: 0, expected: expected.into() };
    let machine = params.text("machine").unwrap_or(&usual.machine);
    if machine.len() > MACHINE_MAX {
        return Err(wrong("machine", "a name of at most 255 octets"));
    }
    let texts = params.text("groups").unwrap_or_default().split_whitespace();
    let groups: Option<Vec<u32>> = texts.map(|text| text.parse().ok()).collect();
    let groups = groups
        .filter(|groups| groups.len() <= GROUPS_MAX)
        .ok_or_else(|| wrong("groups", "at most 16 numbers with spaces between"))?;
    let accept =
        params.parse("accept", "numbers and ranges with spaces between, such as 0 1000-1999")?;
    let settings = Settings {
        machine: machine.into(),
        user: params.number("user", usual.user),
        group: params.number("group", usual.group),
        groups,
        accept,
        sessions_max: params.number("sessions_max", usual.sessions_max),
    };
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
