//! Modules of streams in a running host: pushed, popped and looked at from outside, pushed on what
//! is opened, and one that can be pushed anywhere.

use crate::block::Mblk;
use crate::module::{Module, ModuleInfo, Opening, Streamtab};
use crate::queue::Q;
use crate::streams::{Streams, Top, chain, is_same};
use crate::{Errno, Kind};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use xk_core::{Kernel, question};

/// Asked of the subsystem's node: the modules of all streams that are open on a line; before that
/// one is pushed on each, or the topmost of each is popped.
#[derive(Clone, Debug, Default)]
pub struct StreamModules {
    /// In: the line's name in the graph.
    pub line: String,
    /// In: the module to be pushed; empty for none.
    pub push: String,
    /// In: whether the topmost module is to be popped.
    pub pops: bool,
    /// Out: for each stream its modules and its driver, the topmost first.
    pub streams: Vec<String>,
    /// Out: what is wrong; empty if nothing is.
    pub error: String,
}

question!(StreamModules { line, push, pops, streams, error }, "stream-modules", Ask);

impl Streams {
    /// Answers [`StreamModules`].
    pub(crate) fn change_modules(&self, cx: &Kernel, asked: &mut StreamModules) {
        let Some(driver) = self.driver(&asked.line) else {
            asked.error = format!("`{}` is no line of this subsystem", asked.line);
            return;
        };
        if !asked.push.is_empty() && self.module(&asked.push).is_none() {
            let known = self.module_names().join(", ");
            asked.error = format!("there is no module `{}`: there are {known}", asked.push);
            return;
        }
        let tops = self.tops.borrow().clone();
        let tops: Vec<_> = tops.into_iter().filter(|top| is_same(&top.driver, &driver)).collect();
        for top in &tops {
            let changed = match (asked.push.as_str(), asked.pops) {
                ("", false) => Ok(()),
                ("", true) => self.pop(cx, &top.q),
                (module, _) => self.push(cx, &top.q, module),
            };
            if let Err(error) = changed {
                asked.error = match error {
                    Errno::EINVAL if asked.pops => "no module is on a stream there".to_string(),
                    // There is such a module: it was looked for.
                    Errno::EINVAL => {
                        format!("at most `push_max` ({}) modules", self.bounds.push_max)
                    }
                    error => error.to_string(),
                };
            }
        }
        asked.streams = tops.iter().map(|top| names(&top.q)).collect();
    }
}

/// Error of [`Streams::set_autopush`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AutopushError {
    /// There is no such module.
    #[error("there is no module `{0}`")]
    NoModule(String),
    /// More modules than `push_max`.
    #[error("more modules on `{0}` than `push_max`")]
    TooMany(String),
    /// The line is named twice.
    #[error("`{0}` is named twice")]
    Twice(String),
}

impl Streams {
    /// Sets what is pushed on each stream that is opened from now on, on lines that may come later
    /// (`autopush`): the line and its modules, the lowest first, a comma between lines.
    ///
    /// # Errors
    /// [`AutopushError`].
    pub fn set_autopush(&self, text: &str) -> Result<(), AutopushError> {
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for words in text.split(',') {
            let mut words = words.split_whitespace().map(String::from);
            let Some(line) = words.next() else { continue };
            let modules: Vec<_> = words.collect();
            if let Some(unknown) = modules.iter().find(|name| self.module(name).is_none()) {
                return Err(AutopushError::NoModule(unknown.clone()));
            }
            if modules.len() > self.bounds.push_max {
                return Err(AutopushError::TooMany(line));
            }
            if lines.insert(line.clone(), modules).is_some() {
                return Err(AutopushError::Twice(line));
            }
        }
        self.autopush.replace(lines);
        Ok(())
    }

    /// A line of `autopush` that there is not.
    pub(crate) fn missing_autopush(&self) -> Option<String> {
        let lines = self.autopush.borrow();
        lines.keys().find(|line| self.driver(line).is_none()).cloned()
    }

    /// Pushes on a stream that has just been opened what its line says.
    pub(crate) fn push_automatically(&self, cx: &Kernel, top: &Top) -> Result<(), Errno> {
        let lines = self.autopush.borrow().clone();
        let is_its = |line: &str| self.driver(line).is_some_and(|tab| is_same(&tab, &top.driver));
        let modules = lines.iter().filter(|(line, _)| is_its(line)).flat_map(|(_, names)| names);
        modules.into_iter().try_for_each(|name| self.push(cx, &top.q, name))
    }
}

/// The modules below a top and the driver, in words.
fn names(top: &Q) -> String {
    let words = chain(top).into_iter().map(|q| {
        let module = q.module();
        match module.counted() {
            Some(counted) => format!("{} ({counted})", module.info().name),
            None => module.info().name.to_string(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The module `count`: passes everything on, and counts messages each way.
pub(crate) struct CountTab;

#[derive(Default)]
struct Count {
    down: Cell<u64>,
    up: Cell<u64>,
}

const INFO: ModuleInfo = ModuleInfo::new(0x636f, "count");

impl Streamtab for CountTab {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn open(&self, _: &Kernel, _: &Q, opening: Opening) -> Result<Rc<dyn Module>, Errno> {
        if opening.is_module { Ok(Rc::new(Count::default())) } else { Err(Errno::ENXIO) }
    }
}

impl Count {
    fn count(counter: &Cell<u64>, mp: &Mblk) {
        counter.set(counter.get() + u64::from(mp.kind() != Kind::Flush));
    }
}

impl Module for Count {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        Self::count(&self.up, &mp);
        q.putnext(cx, mp);
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        Self::count(&self.down, &mp);
        q.putnext(cx, mp);
    }

    fn counted(&self) -> Option<String> {
        Some(format!("{} down, {} up", self.down.get(), self.up.get()))
    }
}
