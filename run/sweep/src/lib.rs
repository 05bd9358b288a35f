//! Sweeps: one thing done for many seeds and many parameters, by a pool of processes.
//!
//! - [`Plan`] says which runs there are: every combination of its [`Axis`] values with every seed.
//! - [`Folder`] keeps a line of JSON for each run that has ended, so that a sweep goes on where it
//!   was killed.
//! - [`pool::run`] hands batches of runs to worker processes; [`worker::serve`] is what those do: a
//!   fork for each run, so that none sees what another has left.
//! - [`Call`] is for tests: workers are the test's program, started again for the one test.
//! - [`table`] makes one table of all lines, and `plot` draws a column of it over another. The
//!   feature
//!   `formats`, which is a default, has Parquet and plots.
//! - [`shrink::smallest`] leaves out of a failing run what the failure does not need.
//!
//! Nothing here knows what a run is. `xk sweep` simulates a graph file; a test of `xk-world` runs
//! programs.

mod call;
mod figures;
mod folder;
mod fork_unsafe;
#[cfg(feature = "formats")]
mod parquet;
mod plan;
#[cfg(feature = "formats")]
pub mod plot;
pub mod pool;
mod row;
pub mod shrink;
pub mod table;
pub mod worker;

pub use call::Call;
pub use figures::figure;
pub use folder::{Folder, FolderError, Header};
pub use plan::{Axis, Draw, Job, Plan, Scale, parse_seeds};
pub use row::{Row, Verdict};
