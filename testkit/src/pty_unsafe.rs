//! A pseudo-terminal: a serial line between this process and another.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// One end of a line whose other end is a terminal with a name. Both carry octets as they are.
#[derive(Debug)]
pub struct Line {
    near: File,
    // Kept open: a terminal that no process has open answers reads of the near end by errors.
    _far: File,
    name: PathBuf,
}

impl Line {
    /// A new line.
    ///
    /// # Errors
    /// The system has no further pseudo-terminals, or does not let this process open them.
    pub fn open() -> io::Result<Self> {
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let near = open(Path::new("/dev/ptmx"))?;
        let (mut locked, mut number): (libc::c_int, libc::c_uint) = (0, 0);
        // SAFETY: the descriptor is open for as long as `near` lives; TIOCSPTLCK reads an int and
        // TIOCGPTN writes an unsigned int (ioctl_tty(2)), which is where the pointers point.
        let result = unsafe {
            match libc::ioctl(near.as_raw_fd(), libc::TIOCSPTLCK, &raw mut locked) {
                0 => libc::ioctl(near.as_raw_fd(), libc::TIOCGPTN, &raw mut number),
                refused => refused,
            }
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let name = PathBuf::from(format!("/dev/pts/{number}"));
        let far = open(&name)?;
        let mut settings = tcgetattr(&far)?;
        settings.make_raw();
        tcsetattr(&far, OptionalActions::Now, &settings)?;
        Ok(Self { near, _far: far, name })
    }

    /// The near end, to read and write.
    #[must_use]
    pub fn near(&self) -> &File {
        &self.near
    }

    /// The name of the terminal at the far end.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }
}
