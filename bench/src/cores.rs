//! The cores that this process may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// The processor cores of this process, as they were at the first call: a thread that is bound to
/// one core later would see only that one.
pub(crate) fn cores() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(|| {
        let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
    })
}

/// Puts the calling thread on a core, or on none more than on another.
///
/// # Errors
/// It may not.
pub(crate) fn place(core: Option<usize>) -> rustix::io::Result<()> {
    let all = cores();
    core.map_or_else(
        || {
            let mut set = CpuSet::new();
            all.iter().for_each(|core| set.set(*core));
            sched_setaffinity(None, &set)
        },
        stay_on,
    )
}

/// Puts the calling thread on a core.
///
/// # Errors
/// It may not.
pub(crate) fn stay_on(core: usize) -> rustix::io::Result<()> {
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one)
}
