//! The table of a sweep, a row for each run, as CSV and as Parquet.

use crate::figures::figure;
use crate::folder::{Folder, FolderError};
use crate::row::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Why there is no table.
#[derive(Debug)]
pub enum TableError {
    /// The folder's.
    Folder(FolderError),
    /// The system's, at this file.
    Io(PathBuf, io::Error),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Io(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for TableError {}

impl From<FolderError> for TableError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

/// A column: where its cells come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    Parameter(String, bool),
    Seed,
    Verdict,
    Why,
    Ended,
    Digest,
    Fault(String),
    Figure(String),
    Replay,
}

/// A cell.
pub(crate) enum Cell<'a> {
    Text(&'a str),
    Number(f64),
    Whole(u64),
    Nothing,
}

impl Column {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Parameter(name, _) | Self::Figure(name) => name.clone(),
            Self::Seed => "seed".into(),
            Self::Verdict => "verdict".into(),
            Self::Why => "why".into(),
            Self::Ended => "ended".into(),
            Self::Digest => "digest".into(),
            Self::Fault(name) => format!("fault.{name}"),
            Self::Replay => "replay".into(),
        }
    }

    /// The cell of a row, but for figures: see [`cells`].
    fn cell<'a>(&self, row: &'a Row) -> Cell<'a> {
        match self {
            Self::Parameter(name, is_number) => match row.set.get(name) {
                Some(value) if *is_number => figure(value).map_or(Cell::Nothing, Cell::Number),
                Some(value) => Cell::Text(value),
                None => Cell::Text(""),
            },
            Self::Seed => Cell::Whole(row.seed),
            Self::Verdict => Cell::Text(row.verdict.word()),
            Self::Why => Cell::Text(&row.why),
            Self::Ended => Cell::Number(row.ended),
            Self::Digest => Cell::Text(&row.digest),
            Self::Fault(name) => row.faults.get(name).map_or(Cell::Nothing, |n| Cell::Whole(*n)),
            Self::Figure(_) => Cell::Nothing,
            Self::Replay => Cell::Text(&row.replay),
        }
    }
}

/// The cells of a row. Figures are in the order of their names, in columns as in rows: one walk
/// over both finds all.
pub(crate) fn cells<'a>(columns: &'a [Column], row: &'a Row) -> impl Iterator<Item = Cell<'a>> {
    let mut figures = row.figures.iter().peekable();
    columns.iter().map(move |column| {
        let Column::Figure(name) = column else { return column.cell(row) };
        match figures.next_if(|(known, _)| *known == name) {
            Some((_, number)) => Cell::Number(*number),
            None => Cell::Nothing,
        }
    })
}

/// The totals of all rows.
#[derive(Debug, Default)]
pub struct Summary {
    /// Rows by verdict: clean, exhausted, failed.
    pub verdicts: [u64; 3],
    /// Counts of each fault in all runs.
    pub faults: BTreeMap<String, u64>,
    /// The first failed and exhausted rows in the order of the table.
    pub worst: Vec<Row>,
    /// The files of the table.
    pub files: Vec<PathBuf>,
}

/// Rows of a [`Summary`] that are kept.
const WORST_MAX: usize = 10;

/// The name of the table as CSV.
pub const CSV: &str = "table.csv";

/// Writes `table.csv`, and `table.parquet` with the feature `formats`, into the folder: a row for
/// each run that has ended, the parameters and the seed first. The same runs make the same octets,
/// whatever did them, in whatever order. Times are in seconds, shares from 0 to 1; what a run has
/// no figure for is empty.
///
/// # Errors
/// [`TableError`]; tables that were there before stay then.
pub fn write(folder: &Folder) -> Result<Summary, TableError> {
    let mut summary = Summary::default();
    let mut figures = BTreeSet::new();
    let mut last: Vec<String> = Vec::new();
    let mut texts = BTreeSet::new();
    for row in folder.rows() {
        let row = row?;
        summary.verdicts[row.verdict as usize] += 1;
        for (name, count) in &row.faults {
            *summary.faults.entry(name.clone()).or_default() += count;
        }
        // Most rows have what the one before has.
        if !row.figures.keys().eq(&last) {
            last = row.figures.keys().cloned().collect();
            figures.extend(last.iter().cloned());
        }
        let no_numbers = row.set.iter().filter(|(_, value)| figure(value).is_none());
        texts.extend(no_numbers.map(|(name, _)| name.clone()));
        if row.verdict != crate::Verdict::Clean && summary.worst.len() < WORST_MAX {
            summary.worst.push(row);
        }
    }
    let plan = &folder.header().plan;
    let names = plan.axes.iter().map(|axis| &axis.name);
    let names = names.chain(plan.draws.iter().map(|draw| &draw.name));
    let mut columns: Vec<Column> =
        names.map(|name| Column::Parameter(name.clone(), !texts.contains(name))).collect();
    columns.extend([Column::Seed, Column::Verdict, Column::Why, Column::Ended]);
    columns.extend(summary.faults.keys().cloned().map(Column::Fault));
    columns.extend(figures.into_iter().map(Column::Figure));
    columns.extend([Column::Digest, Column::Replay]);
    #[allow(clippy::single_element_loop, reason = "there are two with `formats`")]
    for (name, write) in [
        (CSV, csv as fn(&Folder, &[Column], File) -> Result<(), Trouble>),
        #[cfg(feature = "formats")]
        ("table.parquet", crate::parquet::write),
    ] {
        let (part, whole) = (folder.path().join(format!("{name}.part")), folder.path().join(name));
        let failed = |error| TableError::Io(whole.clone(), error);
        let file = File::create(&part).map_err(failed)?;
        match write(folder, &columns, file) {
            Ok(()) => std::fs::rename(&part, &whole).map_err(failed)?,
            Err(trouble) => {
                let _ = std::fs::remove_file(&part);
                return Err(match trouble {
                    Trouble::Folder(error) => error.into(),
                    Trouble::Io(error) => failed(error),
                });
            }
        }
        summary.files.push(whole);
    }
    Ok(summary)
}

pub(crate) enum Trouble {
    Folder(FolderError),
    Io(io::Error),
}

impl From<FolderError> for Trouble {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn csv(folder: &Folder, columns: &[Column], file: File) -> Result<(), Trouble> {
    let mut out = BufWriter::new(file);
    let names = columns.iter().map(|column| quoted(&column.name())).collect::<Vec<_>>();
    writeln!(out, "{}", names.join(","))?;
    for row in folder.rows() {
        let row = row?;
        for (at, cell) in cells(columns, &row).enumerate() {
            let before = if at == 0 { "" } else { "," };
            match cell {
                Cell::Text(text) => write!(out, "{before}{}", quoted(text))?,
                Cell::Number(number) => write!(out, "{before}{number}")?,
                Cell::Whole(number) => write!(out, "{before}{number}")?,
                Cell::Nothing => write!(out, "{before}")?,
            }
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// A field of RFC 4180: in quotes where it has to be.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The names of all figures and parameters of a folder's rows.
///
/// # Errors
/// The folder's.
#[cfg(feature = "formats")]
pub(crate) fn names(folder: &Folder) -> Result<BTreeSet<String>, FolderError> {
    let mut names = BTreeSet::new();
    for row in folder.rows() {
        let row = row?;
        names.extend(row.set.into_keys().chain(row.figures.into_keys()));
    }
    Ok(names)
}

#[cfg(all(test, feature = "formats"))]
pub(crate) mod tests {
    use super::*;
    use crate::{Axis, Header, Plan, Verdict};

    pub(crate) fn filled(order: &[u64]) -> (tempfile::TempDir, Folder) {
        let plan = Plan {
            what: "x".into(),
            options: Vec::new(),
            axes: vec![Axis::parse("lan.loss=0%,5%").unwrap(), Axis::parse("kind=hub").unwrap()],
            draws: Vec::new(),
            seeds: (0, 2),
        };
        let at = tempfile::tempdir().unwrap();
        let header = Header::new(plan.clone(), "b".into());
        let mut folder = Folder::open(at.path(), header).unwrap();
        for number in order {
            let mut row = Row::silent(&plan.job(*number), Verdict::Clean, "");
            row.figures.insert("a.sent".into(), *number as f64 / 8.0);
            if *number == 3 {
                (row.verdict, row.why) = (Verdict::Failed, "a, \"b\"".into());
                row.figures.clear();
            }
            row.faults.insert("crash a".into(), *number);
            folder.add(&row).unwrap();
        }
        (at, folder)
    }

    #[test]
    fn a_table_is_the_same_whatever_the_order_of_the_runs() {
        let (one, other) = (filled(&[0, 1, 2, 3]), filled(&[3, 1, 0, 2]));
        let summary = write(&one.1).unwrap();
        write(&other.1).unwrap();
        assert_eq!((summary.verdicts, summary.faults["crash a"]), ([3, 0, 1], 6));
        assert_eq!(summary.worst.len(), 1);
        for name in ["table.csv", "table.parquet"] {
            let read = |at: &tempfile::TempDir| std::fs::read(at.path().join(name)).unwrap();
            assert!(read(&one.0) == read(&other.0), "{name}");
        }
        let text = std::fs::read_to_string(one.0.path().join("table.csv")).unwrap();
        assert_eq!(
            text,
            "lan.loss,kind,seed,verdict,why,ended,fault.crash a,a.sent,digest,replay\n\
             0,hub,0,clean,,0,0,0,,\n0,hub,1,clean,,0,1,0.125,,\n0.05,hub,0,clean,,0,2,0.25,,\n\
             0.05,hub,1,failed,\"a, \"\"b\"\"\",0,3,,,\n"
        );
    }
}
