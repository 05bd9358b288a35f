//! Least size of a value of each type, computed once for each type: a few lines of structures
//! within structures may mean more than any message holds, and more than can be counted in time.

use super::Checker;
use crate::model::Size;

/// Octets of a value at least: what a length counts (RFC 4506, section 4.10).
const OCTETS_MAX: u64 = u32::MAX as u64;
/// Values within a value that takes no octets for them, or a few.
const CELLS_MAX: u64 = 1 << 28;

impl Checker<'_> {
    /// The sizes of all types, in the order in which each needs but those before it.
    pub(super) fn measure(&mut self) {
        self.model.sizes = vec![Size::default(); self.model.types.len()];
        for at in std::mem::take(&mut self.order) {
            let def = &self.model.types[at];
            let size = self.model.size_of_kind(&def.kind);
            self.model.sizes[at] = size;
            if size.octets > OCTETS_MAX || size.cells > CELLS_MAX {
                let what = format!("no message holds a value of `{}`", def.name);
                self.found
                    .error(self.places[at], what)
                    .help("make it smaller, or its arrays of any length: `T x<>`");
                return;
            }
        }
    }
}
