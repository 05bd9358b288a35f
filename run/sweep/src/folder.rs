//! The folder of a sweep: what it is of, and a line for each run that has ended.

use crate::plan::{Plan, hash};
use crate::row::Row;
use rustix::fs::{FlockOperation, MemfdFlags, OFlags, fcntl_setfl, flock, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file that says which sweep the rows are of.
const HEADER: &str = "sweep.json";
/// The runs that have ended, in the order in which they did.
const ROWS: &str = "runs.jsonl";
/// The longest line that is read, in octets.
const LINE_OCTETS_MAX: u64 = 1 << 22;

/// The facts that all rows of a folder have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Plan of the runs.
    pub plan: Plan,
    /// The plan's name; see [`Plan::hash`].
    pub plan_hash: String,
    /// The name of the program that ran it.
    pub binary_hash: String,
    /// The words of a worker's command, of a [call](crate::Call) in a test; of others none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker: Vec<String>,
}

impl Header {
    /// The header of a plan that this program runs.
    ///
    /// # Errors
    /// The machine's, where the program cannot be read.
    pub fn own(plan: Plan) -> io::Result<Self> {
        let binary_hash = hash(File::open("/proc/self/exe")?)?;
        Ok(Self::new(plan, binary_hash))
    }

    /// The header of a plan that a program of this name runs.
    pub fn new(plan: Plan, binary_hash: String) -> Self {
        Self { plan_hash: plan.hash(), binary_hash, plan, worker: Vec::new() }
    }

    /// The header of the sweep in a folder.
    ///
    /// # Errors
    /// [`FolderError`]: there is none, or it does not read.
    pub fn read(folder: &Path) -> Result<Self, FolderError> {
        let path = folder.join(HEADER);
        match std::fs::read(&path) {
            Ok(text) => parse(&text, &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(FolderError::None(folder.into()))
            }
            Err(error) => Err(FolderError::Io(path, error)),
        }
    }

    /// Compares the plan and the program with those of the rows in a folder. Seeds may differ.
    ///
    /// # Errors
    /// [`FolderError::Other`].
    pub fn agrees(&self, other: &Self, folder: &Path) -> Result<(), FolderError> {
        if self.plan_hash != other.plan_hash {
            Err(FolderError::Other(folder.into(), "plan"))
        } else if self.binary_hash != other.binary_hash {
            Err(FolderError::Other(folder.into(), "program"))
        } else {
            Ok(())
        }
    }
}

/// Why a folder cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// The system's, at this file.
    Io(PathBuf, io::Error),
    /// Another sweep has it open.
    Busy(PathBuf),
    /// There is no sweep in it.
    None(PathBuf),
    /// The rows are of something else: what differs.
    Other(PathBuf, &'static str),
    /// A file does not read: the line, counted from one, and why.
    Bad(PathBuf, usize, String),
}

impl FolderError {
    /// Names the remedy.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Io(..) => {
                "what has ended is kept: the same command goes on once the cause is gone"
            }
            Self::Busy(_) => "wait for it, or name another folder by --out (a test: by XK_OUT)",
            Self::None(_) => "name the folder that a sweep was written to by --out",
            Self::Other(..) => {
                "rows of different things are not comparable: name another folder by --out (a test: \
                 by XK_OUT), or remove this one"
            }
            Self::Bad(..) => {
                "the file was changed by something else: remove the line, and the same command \
                 does that run again"
            }
        }
    }
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Busy(path) => write!(f, "{}: another sweep is writing to it", path.display()),
            Self::None(path) => write!(f, "{}: no sweep was written to it", path.display()),
            Self::Other(path, what) => {
                write!(f, "{}: it has the runs of another {what}", path.display())
            }
            Self::Bad(path, line, why) => write!(f, "{}:{line}: {why}", path.display()),
        }
    }
}

impl std::error::Error for FolderError {}

/// A folder with the rows of a sweep.
pub struct Folder {
    path: PathBuf,
    header: Header,
    rows: File,
    /// The places of rows in the file by their numbers, for those that have ended.
    places: Vec<Option<u64>>,
    end: u64,
    /// Held for as long as this exists.
    _lock: Option<File>,
}

impl Folder {
    /// Opens the folder of this sweep, which is made if need be. Rows that it has stay: a line that
    /// was cut off when the writer was killed is removed.
    ///
    /// # Errors
    /// [`FolderError`]: it has rows of another plan or another program, or another sweep has it
    /// open.
    pub fn open(path: &Path, header: Header) -> Result<Self, FolderError> {
        let at = |name: &str| path.join(name);
        std::fs::create_dir_all(path).map_err(|error| FolderError::Io(path.into(), error))?;
        let lock = lock(&at(HEADER), true)?;
        let text = read(&lock, &at(HEADER))?;
        let mut whole = header.clone();
        if !text.is_empty() {
            let found = parse(&text, &at(HEADER))?;
            header.agrees(&found, path)?;
            let (seeds, known) = (header.plan.seeds, found.plan.seeds);
            whole.plan.seeds = (seeds.0.min(known.0), seeds.1.max(known.1));
        }
        let octets = serde_json::to_vec_pretty(&whole).map_err(io::Error::other);
        let written = octets.and_then(|octets| {
            if octets == text {
                return Ok(());
            }
            lock.set_len(0)?;
            lock.write_all_at(&octets, 0)
        });
        written.map_err(|error| FolderError::Io(at(HEADER), error))?;
        let folder = Self::of(path, header, lock, true)?;
        let cut = folder.rows.set_len(folder.end);
        cut.map_err(|error| FolderError::Io(at(ROWS), error))?;
        Ok(folder)
    }

    /// A folder of this process's alone, whose rows go with it: in memory, under no name.
    ///
    /// # Errors
    /// The system's.
    pub fn unnamed(plan: Plan) -> Result<Self, FolderError> {
        let failed = |error: Errno| FolderError::Io("(memory)".into(), error.into());
        let rows = memfd_create(ROWS, MemfdFlags::CLOEXEC).map_err(failed)?;
        fcntl_setfl(&rows, OFlags::APPEND).map_err(failed)?;
        let header = Header::new(plan, String::new());
        Ok(Self::empty(Path::new(""), header, rows.into(), None))
    }

    /// Opens the folder of a sweep for reading its rows. Nothing in it changes: it may be another
    /// user's, and several may read it at once.
    ///
    /// # Errors
    /// [`FolderError`]: there is none, or another sweep has it open.
    pub fn existing(path: &Path) -> Result<Self, FolderError> {
        if !path.join(HEADER).exists() {
            return Err(FolderError::None(path.into()));
        }
        let lock = lock(&path.join(HEADER), false)?;
        let header = parse(&read(&lock, &path.join(HEADER))?, &path.join(HEADER))?;
        Self::of(path, header, lock, false)
    }

    fn of(path: &Path, header: Header, lock: File, grows: bool) -> Result<Self, FolderError> {
        let rows_at = path.join(ROWS);
        let rows = OpenOptions::new().create(grows).read(true).append(grows).open(&rows_at);
        let rows = rows.map_err(|error| FolderError::Io(rows_at, error))?;
        let mut folder = Self::empty(path, header, rows, Some(lock));
        folder.find()?;
        Ok(folder)
    }

    fn empty(path: &Path, header: Header, rows: File, lock: Option<File>) -> Self {
        let places = vec![None; usize::try_from(header.plan.runs()).unwrap_or(0)];
        Self { path: path.into(), places, header, rows, end: 0, _lock: lock }
    }

    /// Finds the rows of the plan. What stands behind the last whole line was cut off.
    fn find(&mut self) -> Result<(), FolderError> {
        let rows_at = self.path.join(ROWS);
        let failed = |error| FolderError::Io(rows_at.clone(), error);
        let mut reader = BufReader::new(self.rows.try_clone().map_err(failed)?);
        reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            reader.by_ref().take(LINE_OCTETS_MAX).read_until(b'\n', &mut line).map_err(failed)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            let row: Row = serde_json::from_slice(&line)
                .map_err(|error| FolderError::Bad(rows_at.clone(), number, error.to_string()))?;
            let (place, end) = (self.end, self.end + line.len() as u64);
            self.end = end;
            // Those of seeds that are not asked for now stay where they are.
            if let Some(number) = self.number(&row)
                && let Some(known) = self.places.get_mut(number as usize)
            {
                known.get_or_insert(place);
            }
        }
        Ok(())
    }

    /// The place of a row in the table.
    fn number(&self, row: &Row) -> Option<u64> {
        self.header.plan.number(row.seed, |name| row.set.get(name).cloned())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The facts that all rows have in common.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the run of this number has ended.
    pub fn has(&self, number: u64) -> bool {
        self.places.get(number as usize).is_some_and(Option::is_some)
    }

    /// Counts the runs that have ended.
    pub fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// True if none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a row behind the others. One that is there already is not added again.
    ///
    /// # Errors
    /// [`FolderError::Io`], such as a full disk; then nothing of the row counts.
    pub fn add(&mut self, row: &Row) -> Result<(), FolderError> {
        let number = self.number(row);
        let Some(known) = number.and_then(|number| self.places.get_mut(number as usize)) else {
            return Ok(());
        };
        if known.is_some() {
            return Ok(());
        }
        let failed = |error| FolderError::Io(self.path.join(ROWS), error);
        let mut line = serde_json::to_vec(row).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        if let Err(error) = self.rows.write_all(&line) {
            let _ = self.rows.set_len(self.end);
            return Err(failed(error));
        }
        *known = Some(self.end);
        self.end += line.len() as u64;
        Ok(())
    }

    /// Has the disk keep what was added.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn sync(&self) -> Result<(), FolderError> {
        self.rows.sync_data().map_err(|error| FolderError::Io(self.path.join(ROWS), error))
    }

    /// Every row of the plan that has ended, in the order of the table: combinations first, then
    /// seeds. One is in memory at a time.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row, FolderError>> + '_ {
        let rows_at = self.path.join(ROWS);
        let mut reader = self.rows.try_clone().map(BufReader::new);
        // Another handle on the same file would share its place with this one's writes; appending
        // does not look at the place.
        let mut at = None;
        self.places.iter().flatten().map(move |place| {
            let failed = |error| FolderError::Io(rows_at.clone(), error);
            let reader = match &mut reader {
                Ok(reader) => reader,
                Err(error) => return Err(failed(io::Error::from(error.kind()))),
            };
            if at != Some(*place) {
                reader.seek(SeekFrom::Start(*place)).map_err(failed)?;
            }
            let mut line = Vec::new();
            reader.by_ref().take(LINE_OCTETS_MAX).read_until(b'\n', &mut line).map_err(failed)?;
            at = Some(place + line.len() as u64);
            let bad = |error: serde_json::Error| {
                FolderError::Bad(rows_at.clone(), 0, format!("octet {place}: {error}"))
            };
            serde_json::from_slice(&line).map_err(bad)
        })
    }
}

/// Opens a file that only one process has at a time, which makes it if need be, or that others may
/// read as well.
fn lock(path: &Path, writes: bool) -> Result<File, FolderError> {
    let mut options = OpenOptions::new();
    let file = options.create(writes).truncate(false).read(true).write(writes).open(path);
    let file = file.map_err(|error| FolderError::Io(path.into(), error))?;
    let operation = match writes {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match flock(&file, operation) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(FolderError::Busy(path.into())),
        Err(error) => Err(FolderError::Io(path.into(), error.into())),
    }
}

fn read(mut file: &File, path: &Path) -> Result<Vec<u8>, FolderError> {
    let mut octets = Vec::new();
    match file.read_to_end(&mut octets) {
        Ok(_) => Ok(octets),
        Err(error) => Err(FolderError::Io(path.into(), error)),
    }
}

fn parse(text: &[u8], path: &Path) -> Result<Header, FolderError> {
    let bad = |error: serde_json::Error| {
        FolderError::Bad(path.into(), error.line(), format!("no header of a sweep: {error}"))
    };
    serde_json::from_slice(text).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Verdict};

    fn header() -> Header {
        let plan = Plan {
            what: "x".into(),
            options: Vec::new(),
            axes: vec![Axis::parse("a=1,2").unwrap()],
            draws: Vec::new(),
            seeds: (0, 3),
        };
        Header::new(plan, "b".into())
    }

    fn row(plan: &Plan, number: u64) -> Row {
        Row::silent(&plan.job(number), Verdict::Clean, "")
    }

    fn added(folder: &mut Folder, numbers: &[u64]) {
        let plan = folder.header().plan.clone();
        for number in numbers {
            folder.add(&row(&plan, *number)).unwrap();
        }
    }

    #[test]
    fn rows_come_back_in_the_order_of_the_table() {
        let at = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(at.path(), header()).unwrap();
        added(&mut folder, &[4, 0, 5, 2, 0]);
        assert!(folder.has(4) && !folder.has(1));
        let numbers = |folder: &Folder| -> Vec<u64> {
            let rows = folder.rows().map(|row| folder.number(&row.unwrap()).unwrap());
            rows.collect()
        };
        assert_eq!(numbers(&folder), [0, 2, 4, 5]);
        drop(folder);
        let folder = Folder::open(at.path(), header()).unwrap();
        assert_eq!((numbers(&folder), folder.len()), (vec![0, 2, 4, 5], 4));
    }

    /// Whatever octet a writer was killed at, rows before it stay and that one is done again.
    #[test]
    fn a_line_that_was_cut_off_is_done_again() {
        let whole = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(whole.path(), header()).unwrap();
        added(&mut folder, &[0, 1]);
        drop(folder);
        let octets = std::fs::read(whole.path().join(ROWS)).unwrap();
        let first = octets.iter().position(|octet| *octet == b'\n').unwrap() + 1;
        for cut in first..octets.len() {
            std::fs::write(whole.path().join(ROWS), &octets[..cut]).unwrap();
            let mut folder = Folder::open(whole.path(), header()).unwrap();
            assert_eq!((folder.len(), folder.has(0), folder.has(1)), (1, true, false), "{cut}");
            added(&mut folder, &[1]);
            drop(folder);
            assert_eq!(std::fs::read(whole.path().join(ROWS)).unwrap(), octets, "{cut}");
        }
        // Reading changes nothing, and several may.
        let cut = &octets[..octets.len() - 1];
        std::fs::write(whole.path().join(ROWS), cut).unwrap();
        let readers = [(); 2].map(|()| Folder::existing(whole.path()).unwrap());
        assert_eq!(readers.map(|folder| folder.len()), [1, 1]);
        assert_eq!(std::fs::read(whole.path().join(ROWS)).unwrap(), cut);
    }

    #[test]
    fn rows_of_something_else_are_refused() {
        let at = tempfile::tempdir().unwrap();
        drop(Folder::open(at.path(), header()).unwrap());
        let (mut program, mut plan) = (header(), header());
        program.binary_hash = "c".into();
        plan.plan.what = "y".into();
        plan.plan_hash = plan.plan.hash();
        let why = |header| match Folder::open(at.path(), header) {
            Err(FolderError::Other(_, what)) => what,
            _ => "taken",
        };
        assert_eq!([why(program), why(plan)], ["program", "plan"]);
        let mut more = header();
        more.plan.seeds = (0, 9);
        let folder = Folder::open(at.path(), more).unwrap();
        assert_eq!((folder.len(), folder.header().plan.runs()), (0, 18));
        drop(folder);
        // Fewer seeds leave the others where they are.
        drop(Folder::open(at.path(), header()).unwrap());
        assert_eq!(Folder::existing(at.path()).unwrap().header().plan.seeds, (0, 9));
    }

    #[test]
    fn one_sweep_writes_at_a_time() {
        let at = tempfile::tempdir().unwrap();
        let held = Folder::open(at.path(), header()).unwrap();
        assert!(matches!(Folder::open(at.path(), header()), Err(FolderError::Busy(_))));
        drop(held);
        assert!(Folder::open(at.path(), header()).is_ok());
    }

    #[test]
    fn a_line_that_something_else_wrote_is_named() {
        let at = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(at.path(), header()).unwrap();
        added(&mut folder, &[0]);
        drop(folder);
        let mut file = OpenOptions::new().append(true).open(at.path().join(ROWS)).unwrap();
        file.write_all(b"{\n").unwrap();
        let found = Folder::open(at.path(), header());
        assert!(matches!(found, Err(FolderError::Bad(_, 2, _))));
        assert!(matches!(Folder::existing(&at.path().join("none")), Err(FolderError::None(_))));
    }
}
