//! The protocol object: a layer of authentication whose credentials name a Unix user.

use super::accept::Accept;
use super::session::User;
use super::wire::{Credential, GROUPS_MAX, MACHINE_MAX};
use super::{GROUPS, MACHINE, USERS};
use alloc::vec::Vec;
use xk_core::ProtocolRef;
use xk_core::graph::{Build, BuildError};
use xk_kit::rpc::auth;
use xk_kit::rpc::onc::SESSIONS_MAX;

/// Builds it from its place in a graph.
pub(super) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let machine = build.params.text("machine").unwrap_or_default();
    if machine.len() > MACHINE_MAX {
        return Err(BuildError::param("machine", MACHINE));
    }
    let texts = build.params.text("groups").unwrap_or_default().split_whitespace();
    let others: Option<Vec<u32>> = texts.map(|text| text.parse().ok()).collect();
    let others = others.filter(|others| others.len() <= GROUPS_MAX);
    let others = others.ok_or_else(|| BuildError::param("groups", GROUPS))?;
    let mut groups = [0; GROUPS_MAX];
    groups.iter_mut().zip(&others).for_each(|(to, from)| *to = *from);
    let accept: Option<Accept> = build.params.parse("accept", USERS)?;
    let credential = Credential {
        stamp: build.cx.random().below(1 << 32) as u32,
        machine: machine.as_bytes(),
        user: build.int("user")?,
        group: build.int("group")?,
        group_count: others.len(),
        groups,
    };
    let flavor = User { header: credential.emit(), accept };
    let sessions_max = build.int(SESSIONS_MAX.name)?;
    build.add(auth::layered(build.cx.secret(), build.lower(0)?, flavor, sessions_max))
}
