//! The message that tells a process which domains of a host it has: over its standard input, a
//! socket, and never by its command line.

use crate::failure::Failure;
use crate::files;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The longest, in octets: a graph of the largest size, each octet of which JSON may write as six.
const OCTETS_MAX: u64 = 8 << 20;

/// One domain of a process, with what leads to it.
pub(super) struct Seat {
    /// Place of the domain among those of the host.
    pub(super) domain: usize,
    /// The socket to the process that has started this one.
    pub(super) control: OwnedFd,
    /// The socket through which that process later passes sockets of clients and of neighbours that
    /// have come back.
    pub(super) visits: OwnedFd,
    /// The ways to neighbours in other processes.
    pub(super) ways: Vec<NeighbourSocket>,
}

/// A socket to a neighbour, over which both ends agree on a ring.
pub(super) struct NeighbourSocket {
    pub(super) neighbour: usize,
    pub(super) socket: OwnedFd,
}

/// All that a process is told.
pub(super) struct Hello {
    /// The name of the graph's file, and its text.
    pub(super) file: String,
    pub(super) text: String,
    pub(super) host: String,
    /// The user and the group that it becomes.
    pub(super) user: (u32, u32),
    pub(super) idle: String,
    pub(super) verbose: u8,
    pub(super) seats: Vec<Seat>,
}

impl Hello {
    /// Sends it.
    pub(super) fn send(&self, stream: &mut UnixStream) -> io::Result<()> {
        let seats = self.seats.iter().map(|seat| {
            let ways: Vec<usize> = seat.ways.iter().map(|way| way.neighbour).collect();
            json!({"domain": seat.domain, "ways": ways})
        });
        let text = json!({
            "file": self.file,
            "text": self.text,
            "host": self.host,
            "user": [self.user.0, self.user.1],
            "idle": self.idle,
            "verbose": self.verbose,
            "seats": seats.collect::<Vec<_>>(),
        });
        let text = text.to_string();
        stream.write_all(&(text.len() as u64).to_le_bytes())?;
        stream.write_all(text.as_bytes())?;
        for seat in &self.seats {
            files::send(&*stream, 0, &seat.control)?;
            files::send(&*stream, 0, &seat.visits)?;
            for way in &seat.ways {
                files::send(&*stream, 0, &way.socket)?;
            }
        }
        Ok(())
    }

    /// Takes it.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn take(stream: &mut UnixStream) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let what = format!("only `xk run` starts this command, and reports the cause: {error}");
            Failure::usage(what)
        };
        let mut length = [0; 8];
        stream.read_exact(&mut length).map_err(failed)?;
        let length = u64::from_le_bytes(length).min(OCTETS_MAX);
        let mut octets = vec![0; length as usize];
        stream.read_exact(&mut octets).map_err(failed)?;
        let told: Value = serde_json::from_slice(&octets).map_err(|e| failed(e.into()))?;
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut seats = Vec::new();
        for seat in list(&told["seats"]) {
            let file = || files::take(&*stream).map(|(_, file)| file).map_err(failed);
            let (control, visits) = (file()?, file()?);
            let mut ways = Vec::new();
            for neighbour in list(&seat["ways"]) {
                ways.push(NeighbourSocket {
                    neighbour: number(&neighbour) as usize,
                    socket: file()?,
                });
            }
            seats.push(Seat { domain: number(&seat["domain"]) as usize, control, visits, ways });
        }
        Ok(Self {
            file: text("file"),
            text: text("text"),
            host: text("host"),
            user: (number(&told["user"][0]) as u32, number(&told["user"][1]) as u32),
            idle: text("idle"),
            verbose: number(&told["verbose"]) as u8,
            seats,
        })
    }
}
