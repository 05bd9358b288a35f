//! Order of invocations: those that a process makes on one machine arrive in any order, and are
//! queued in the order in which they were made. An object without a kernel.

use alloc::collections::BTreeMap;

/// Order numbers ahead of the next one that are waited for.
pub const WINDOW: u32 = 256;
/// Invocations of all processes that wait for those before them.
pub const EARLY_MAX: usize = 512;
/// Invocations of one machine that do so.
pub const EARLY_SHARE: usize = EARLY_MAX / 4;

/// A process: its machine and its number there.
pub type Process = (u16, u8);

struct Stream<T> {
    next: u32,
    early: BTreeMap<u32, T>,
}

/// Next order number of each process, and the invocations that came early, each with a `T`.
pub struct Orders<T> {
    streams: BTreeMap<Process, Stream<T>>,
    early: usize,
}

impl<T> Default for Orders<T> {
    fn default() -> Self {
        Self { streams: BTreeMap::new(), early: 0 }
    }
}

impl<T> Orders<T> {
    /// An invocation arrives. It comes back if it is the next, as one behind the next is, too: its
    /// process has begun again, or those behind it did not wait for it any longer. Otherwise it
    /// waits here for those before it.
    ///
    /// # Errors
    /// The invocation, if it is too far ahead, or too many wait.
    pub fn arrive(&mut self, process: Process, order: u32, invocation: T) -> Result<Option<T>, T> {
        let has_room = self.early < EARLY_SHARE
            || self.early < EARLY_MAX && self.early_of(process.0) < EARLY_SHARE;
        // One that began before this machine goes on where it is.
        let next = if order < WINDOW { 1 } else { order };
        let new = || Stream { next, early: BTreeMap::new() };
        let stream = self.streams.entry(process).or_insert_with(new);
        match order.wrapping_sub(stream.next) {
            0 => Ok(Some(invocation)),
            1..WINDOW if has_room && !stream.early.contains_key(&order) => {
                stream.early.insert(order, invocation);
                self.early += 1;
                Ok(None)
            }
            1..WINDOW => Err(invocation),
            WINDOW..0x8000_0000 => {
                // This one is refused; those after it are in order again.
                stream.next = order.wrapping_add(1);
                Err(invocation)
            }
            _ => {
                stream.next = order;
                Ok(Some(invocation))
            }
        }
    }

    /// An invocation has been queued, in its turn or because it waited long enough. Gives the one
    /// whose turn it is now.
    pub fn done(&mut self, process: Process, order: u32) -> Option<T> {
        let stream = self.streams.get_mut(&process)?;
        if order.wrapping_sub(stream.next) < WINDOW {
            stream.next = order.wrapping_add(1);
        }
        let next = stream.early.remove(&stream.next)?;
        self.early -= 1;
        Some(next)
    }

    /// Takes an invocation out that does not wait any longer for those before it, as `is` says.
    pub fn give_up(&mut self, is: impl Fn(&T) -> bool) -> Option<T> {
        let taken = self.streams.values_mut().find_map(|stream| {
            let order = stream.early.iter().find(|(_, early)| is(early)).map(|(order, _)| *order);
            stream.early.remove(&order?)
        });
        self.early -= usize::from(taken.is_some());
        taken
    }

    /// Whether one of those that wait is such a one.
    pub fn waits(&self, is: impl Fn(&T) -> bool) -> bool {
        self.streams.values().flat_map(|stream| stream.early.values()).any(is)
    }

    /// Number of invocations that wait.
    pub fn early(&self) -> usize {
        self.early
    }

    /// Number of those of one machine.
    fn early_of(&self, vm: u16) -> usize {
        self.streams.range((vm, 0)..=(vm, u8::MAX)).map(|(_, stream)| stream.early.len()).sum()
    }
}

#[cfg(test)]
mod tests;
