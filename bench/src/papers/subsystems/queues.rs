//! Queueing in STREAMS, of which section 6.2 tells and that no figure of the paper measures: what a
//! message takes on its way down a stream to the driver, through put procedures alone, through a
//! module that queues, and to a driver that is full and takes messages again later.

use crate::case::Case;
use crate::record::Record;
use crate::stack::kernel;
use std::cell::Cell;
use std::rc::Rc;
use xk_core::Kernel;
use xk_streams::{
    Bounds, Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q, Services, Stream, Streams, Streamtab,
};

const SYSTEM: &str = "xk, STREAMS";
const OPERATIONS: u64 = 100_000;
/// Octets of a message.
const OCTETS: usize = 64;
/// Messages that are put before the scheduler has its turn.
const BATCH: u64 = 32;
/// Marks of the driver that queues: it is full when it holds half of a batch.
const HIGH: u32 = BATCH as u32 / 2 * OCTETS as u32;
const LOW: u32 = HIGH / 4;
const DRIVER: &str = "end";

/// A way of a message down a stream.
#[derive(Clone, Copy, Debug)]
struct Way {
    row: &'static str,
    /// The module that is pushed on the stream.
    module: Option<&'static str>,
    /// Messages that are put before the scheduler has its turn, if it is to have one.
    batch: Option<u64>,
    driver: Driver,
}

/// The driver's treatment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// Frees it in its put procedure.
    Frees,
    /// Frees it in its service procedure.
    Queues,
    /// Queues, and serves only what it holds once a batch has been put.
    Fills,
}

const ALONE: &str = "put procedures alone";
const QUEUES: &str = "through queue to a driver that queues, 32 at a time";
const WAYS: [Way; 6] = [
    Way { row: ALONE, module: None, batch: None, driver: Driver::Frees },
    Way { row: "through count", module: Some("count"), batch: None, driver: Driver::Frees },
    Way {
        row: "through queue, one at a time",
        module: Some("queue"),
        batch: Some(1),
        driver: Driver::Frees,
    },
    Way {
        row: "through queue, 32 at a time",
        module: Some("queue"),
        batch: Some(BATCH),
        driver: Driver::Frees,
    },
    Way { row: QUEUES, module: Some("queue"), batch: Some(BATCH), driver: Driver::Queues },
    Way {
        row: "through queue to a driver that is full, 32 at a time",
        module: Some("queue"),
        batch: Some(BATCH),
        driver: Driver::Fills,
    },
];

/// Computed rows: one row less another.
const ADDS: [(&str, &str, &str); 4] = [
    ("a module that counts adds", WAYS[1].row, ALONE),
    ("a module that queues adds, one at a time", WAYS[2].row, ALONE),
    ("a module that queues adds, 32 at a time", WAYS[3].row, ALONE),
    ("a full driver and its back-enabling add", WAYS[5].row, QUEUES),
];

pub(crate) fn cases() -> Vec<Case> {
    WAYS.map(case).into()
}

pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let of = |row| Record::find(records, row, SYSTEM);
    let adds = |(row, whole, part)| Some(of(whole)?.beyond(row, &[of(part)?], 1.0));
    ADDS.into_iter().filter_map(adds).collect()
}

fn case(way: Way) -> Case {
    let case = Case::new(way.row, OPERATIONS, move || {
        let rig = Rig::new(way);
        move |count| rig.put(count)
    });
    case.of(SYSTEM)
}

/// The driver as a line of streams, and what it has freed.
struct End {
    driver: Driver,
    freed: Rc<Cell<u64>>,
    is_stopped: Rc<Cell<bool>>,
}

impl Streamtab for End {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(9, DRIVER).marks(HIGH, LOW)
    }

    fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        let (freed, is_stopped) = (Rc::clone(&self.freed), Rc::clone(&self.is_stopped));
        Ok(Rc::new(End { driver: self.driver, freed, is_stopped }))
    }
}

impl Module for End {
    fn info(&self) -> ModuleInfo {
        Streamtab::info(self)
    }

    fn services(&self) -> Services {
        Services { read: false, write: self.driver != Driver::Frees }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match self.driver {
            Driver::Frees => self.free(mp),
            _ => q.putq(cx, mp),
        }
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        while !self.is_stopped.get()
            && let Some(mp) = q.getq(cx)
        {
            self.free(mp);
        }
    }
}

impl End {
    fn free(&self, mp: Mblk) {
        drop(mp);
        self.freed.set(self.freed.get() + 1);
    }
}

/// A stream on the driver.
struct Rig {
    cx: Rc<Kernel>,
    streams: Rc<Streams>,
    stream: Rc<Stream>,
    driver: Q,
    way: Way,
    freed: Rc<Cell<u64>>,
    is_stopped: Rc<Cell<bool>>,
}

impl Rig {
    fn new(way: Way) -> Self {
        let cx = kernel();
        let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
        let (freed, is_stopped) = (Rc::<Cell<u64>>::default(), Rc::<Cell<bool>>::default());
        let end = End {
            driver: way.driver,
            freed: Rc::clone(&freed),
            is_stopped: Rc::clone(&is_stopped),
        };
        streams.add_driver(DRIVER, Rc::new(end));
        let stream = streams.open(&cx, DRIVER).expect("a stream on the driver");
        let top = stream.head_q().write_side();
        let driver = top.next().expect("the driver's queue");
        if let Some(module) = way.module {
            stream.push(&cx, module).expect("the module is there");
        }
        Self { cx, streams, stream, driver, way, freed, is_stopped }
    }

    /// Puts so many messages, all of which the driver has freed in the end.
    fn put(&self, count: u64) {
        let (before, top) = (self.freed.get(), self.stream.head_q().write_side());
        let mut left = count;
        while left > 0 {
            let now = left.min(self.way.batch.unwrap_or(left));
            self.is_stopped.set(self.way.driver == Driver::Fills);
            for _ in 0..now {
                let mp = self.streams.blocks().copy(Kind::Data, 0, &[0x5a; OCTETS]);
                top.putnext(&self.cx, mp.expect("blocks are left"));
            }
            if self.way.batch.is_some() {
                self.cx.run_due();
            }
            if self.is_stopped.take() {
                self.driver.qenable(&self.cx);
                self.cx.run_due();
            }
            left -= now;
        }
        assert_eq!(self.freed.get() - before, count, "everything came to the driver");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows do what they say: services run where a queue is, and a batch fills the driver once.
    #[test]
    fn queues_fill_and_are_enabled_as_the_rows_say() {
        const BATCHES: u64 = 10;
        let told = WAYS.map(|way| {
            let rig = Rig::new(way);
            rig.put(BATCHES * BATCH);
            let counts = rig.streams.counts();
            (counts.services, counts.blocked, counts.back_enables)
        });
        let [alone, count, one, many, queues, full] = told;
        assert_eq!((alone, count), ((0, 0, 0), (0, 0, 0)));
        assert_eq!((one, many), ((BATCHES * BATCH, 0, 0), (BATCHES, 0, 0)));
        assert!(queues.0 > many.0, "the driver's own: {queues:?}");
        // Half of a batch waits above the driver until that has room.
        assert_eq!((full.1, full.2), (BATCHES, BATCHES), "{full:?}");
    }
}
