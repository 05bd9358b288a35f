//! The user of a command: root until devices are open, and then an ordinary user.

use crate::failure::Failure;
use crate::user_unsafe;
use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;

/// The user without rights (Debian's base-passwd).
const NOBODY: (u32, u32) = (65_534, 65_534);
/// The users of the system.
const PASSWD: &str = "/etc/passwd";

/// On the command line.
#[derive(clap::Args)]
pub(crate) struct UserArgs {
    /// The user to become once devices are open, a name or a number; the default for root is the
    /// user that called sudo, or `nobody`
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

/// The user that a process becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

impl UserArgs {
    /// The user that is meant.
    pub(crate) fn find(&self) -> Result<User, Failure> {
        let own = User { uid: geteuid(), gid: getegid() };
        let wanted = match &self.user {
            Some(name) => named(name)?,
            None if own.uid.is_root() => by_default(),
            None => own,
        };
        if !own.uid.is_root() && wanted.uid != own.uid {
            return Err(Failure::usage("only root can become another user"));
        }
        Ok(wanted)
    }
}

fn user(uid: u32, gid: u32) -> User {
    User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) }
}

/// The user that has called sudo(8), or `nobody`.
fn by_default() -> User {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    match (number("SUDO_UID"), number("SUDO_GID")) {
        (Some(uid), Some(gid)) if uid != 0 => user(uid, gid),
        _ => user(NOBODY.0, NOBODY.1),
    }
}

/// A user of passwd(5), by name or number; a number that is not there is its own group.
fn named(wanted: &str) -> Result<User, Failure> {
    let all = std::fs::read_to_string(PASSWD).unwrap_or_default();
    let found = all.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?;
        let gid = fields.next()?.parse().ok()?;
        (name == wanted || uid == wanted).then_some(user(uid.parse().ok()?, gid))
    });
    let number = || wanted.parse().ok().map(|number| user(number, number));
    found.or_else(number).ok_or_else(|| {
        Failure::usage(format!("there is no user `{wanted}` in {PASSWD}"))
            .help("give the user's number")
    })
}

/// No capability at all, for this thread.
pub(crate) fn shed() -> io::Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none)?)
}

impl User {
    /// The user of these numbers.
    pub(crate) fn of((uid, gid): (u32, u32)) -> Self {
        user(uid, gid)
    }

    /// Becomes the user as far as files and sockets are concerned; what devices take stays until
    /// [`User::give_up_root`]. Of what this process starts from now on, nothing gains a right
    /// (`PR_SET_NO_NEW_PRIVS`). To be called before there is another thread that opens devices.
    pub(crate) fn begin(self) -> Result<(), Failure> {
        self.half().map_err(|error| self.failed(&error))
    }

    fn half(self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        if !geteuid().is_root() {
            return Ok(());
        }
        user_unsafe::join(self.gid)?;
        let root = Uid::ROOT;
        user_unsafe::become_user(self.uid, self.uid, root)?;
        let mut sets = capabilities(None)?;
        sets.effective = sets.permitted;
        Ok(set_capabilities(None, sets)?)
    }

    /// Gives up all rights but the user's, in all threads.
    pub(crate) fn give_up_root(self) -> Result<(), Failure> {
        let become_user = || {
            user_unsafe::become_user(self.uid, self.uid, self.uid)?;
            shed()
        };
        become_user().map_err(|error| self.failed(&error))
    }

    fn failed(self, error: &io::Error) -> Failure {
        Failure::new(format!("cannot become user {}: {error}", self.uid.as_raw()))
            .help("choose another by --user")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        assert_eq!(named("root").ok(), Some(user(0, 0)));
        assert_eq!(named("0").ok(), Some(user(0, 0)));
        assert_eq!(named("4294900000").ok(), Some(user(4_294_900_000, 4_294_900_000)));
        assert!(named("no such user").is_err() && named("-1").is_err());
    }
}
