//! Streams linked below multiplexors: `I_LINK`, `I_PLINK` and their undoing.

use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::head::{Command, Stream};
use crate::module::{Opening, Streamtab};
use crate::queue::{Q, WeakQ};
use crate::streams::{Streams, Top};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Kernel;
use xk_core::object::ProtocolId;

/// Largest depth of multiplexors on one another.
const DEPTH_MAX: usize = 16;

/// A link: the stream of a multiplexor, and the stream below it (`linkblk`).
#[derive(Clone)]
pub struct Linkblk {
    /// The lowest write queue of the upper stream: the multiplexor's (`l_qtop`).
    pub top: WeakQ,
    /// The write queue of the pair that takes the place of the lower stream's head: messages go
    /// down by [`putnext`](Q::putnext) from it (`l_qbot`).
    pub bottom: WeakQ,
    /// The number of the link (`l_index`).
    pub index: u32,
    /// The protocol of the graph that the lower stream was opened on, if it is one.
    pub line: Option<ProtocolId>,
}

pub(crate) struct Link {
    block: Linkblk,
    /// None for a link that stays when the upper stream is closed.
    upper: Option<Rc<Top>>,
    upper_driver: Rc<dyn Streamtab>,
    lower: Rc<Top>,
    is_persistent: bool,
}

#[derive(Default)]
pub(crate) struct Links {
    list: RefCell<BTreeMap<u32, Link>>,
    last: Cell<u32>,
}

/// Octets of a `linkblk` in an M_IOCTL: the number of the link, four octets.
const LINKBLK_OCTETS: usize = 4;

impl Linkblk {
    /// Reads the link in the M_IOCTL of `I_LINK`, `I_UNLINK` and the persistent ones.
    pub fn of(cx: &Kernel, mp: &Mblk) -> Option<Self> {
        let index = mp.cont()?.octets().first_chunk::<LINKBLK_OCTETS>()?;
        let streams = Streams::of(cx)?;
        let list = streams.links.list.borrow();
        list.get(&u32::from_le_bytes(*index)).map(|link| link.block.clone())
    }
}

/// Whether two drivers are one.
fn is_same(one: &Rc<dyn Streamtab>, other: &Rc<dyn Streamtab>) -> bool {
    core::ptr::addr_eq(Rc::as_ptr(one), Rc::as_ptr(other))
}

impl Streams {
    /// Number of links.
    pub fn link_count(&self) -> usize {
        self.links.list.borrow().len()
    }

    /// The drivers below a multiplexor, with the numbers of the links.
    pub fn links_below(&self, driver: &Rc<dyn Streamtab>) -> Vec<(u32, Rc<dyn Streamtab>)> {
        let list = self.links.list.borrow();
        let below = list.iter().filter(|(_, link)| is_same(&link.upper_driver, driver));
        below.map(|(index, link)| (*index, Rc::clone(&link.lower.driver))).collect()
    }

    /// The protocol of the graph whose line this driver is.
    fn line_of(&self, driver: &Rc<dyn Streamtab>) -> Option<ProtocolId> {
        self.lines.borrow().iter().find(|(_, tab)| is_same(tab, driver)).map(|(id, _)| *id)
    }

    /// Whether `driver` is `sought` or stands on it, or too deep to tell.
    fn leads_to(&self, driver: &Rc<dyn Streamtab>, sought: &Rc<dyn Streamtab>) -> bool {
        let mut line = VecDeque::from([(Rc::clone(driver), 0)]);
        while let Some((driver, depth)) = line.pop_front() {
            if is_same(&driver, sought) || depth > DEPTH_MAX {
                return true;
            }
            line.extend(self.links_below(&driver).into_iter().map(|(_, lower)| (lower, depth + 1)));
        }
        false
    }

    /// Links the stream `lower` below the multiplexor that `upper` is a stream of; answers the
    /// number of the link.
    pub(crate) fn link(
        &self,
        cx: &Kernel,
        upper: &Rc<Stream>,
        lower: &Q,
        is_persistent: bool,
    ) -> Result<u32, Errno> {
        let above = self.find_top(&upper.head_q()).ok_or(Errno::ENXIO)?;
        let below = self.find_top(lower).ok_or(Errno::ENXIO)?;
        let procedures = above.driver.lower().ok_or(Errno::EINVAL)?;
        if below.link.get().is_some() || self.leads_to(&below.driver, &above.driver) {
            return Err(Errno::EINVAL);
        }
        let driver = crate::streams::chain(&above.q).pop().ok_or(Errno::ENXIO)?;
        let index = self.links.last.get() + 1;
        self.links.last.set(index);
        let block = Linkblk {
            top: driver.downgrade(),
            bottom: below.q.write_side().downgrade(),
            index,
            line: self.line_of(&below.driver),
        };
        let head = below.q.place(procedures);
        below.link.set(Some(index));
        if let Some(stream) = &below.stream {
            stream.set_linked();
        }
        let link = Link {
            block,
            upper: (!is_persistent).then(|| Rc::clone(&above)),
            upper_driver: Rc::clone(&above.driver),
            lower: Rc::clone(&below),
            is_persistent,
        };
        self.links.list.borrow_mut().insert(index, link);
        let command = if is_persistent { Command::PLINK } else { Command::LINK };
        if let Err(error) = upper.link_ioctl(cx, command, index) {
            self.links.list.borrow_mut().remove(&index);
            below.link.set(None);
            match &below.stream {
                Some(stream) => stream.take_head_back(),
                None => drop(below.q.place(head)),
            }
            return Err(error);
        }
        // Messages of the head that waited are for no user any more.
        if let Some(stream) = &below.stream {
            stream.drop_passed(cx);
        }
        below.q.flushq(cx, crate::queue::What::All);
        Ok(index)
    }

    /// Undoes a link; `index` none undoes all of that kind of the stream's multiplexor.
    pub(crate) fn unlink(
        &self,
        cx: &Kernel,
        upper: &Rc<Stream>,
        index: Option<u32>,
        is_persistent: bool,
    ) -> Result<(), Errno> {
        let above = self.find_top(&upper.head_q()).ok_or(Errno::ENXIO)?;
        let matching: Vec<u32> = {
            let list = self.links.list.borrow();
            let of_upper = |link: &Link| match &link.upper {
                Some(top) => Rc::ptr_eq(top, &above),
                None => is_same(&link.upper_driver, &above.driver),
            };
            let wanted = |(number, link): &(&u32, &Link)| {
                index.is_none_or(|index| index == **number)
                    && link.is_persistent == is_persistent
                    && of_upper(link)
            };
            list.iter().filter(wanted).map(|(number, _)| *number).collect()
        };
        if matching.is_empty() && index.is_some() {
            return Err(Errno::EINVAL);
        }
        let command = if is_persistent { Command::PUNLINK } else { Command::UNLINK };
        for index in matching {
            upper.link_ioctl(cx, command, index)?;
            self.drop_link(cx, index);
        }
        Ok(())
    }

    /// Forgets a link: the lower stream gets a head again, or is closed if no user holds it.
    fn drop_link(&self, cx: &Kernel, index: u32) {
        let link = self.links.list.borrow_mut().remove(&index);
        let Some(link) = link else { return };
        link.lower.link.set(None);
        match &link.lower.stream {
            Some(stream) if stream.is_open() => stream.take_head_back(),
            _ => self.close_top(cx, &link.lower),
        }
    }

    /// A stream is closed: what was linked below it, not to stay, comes off.
    pub(crate) fn unlink_all_of(&self, cx: &Kernel, top: &Rc<Top>) {
        let is_of = |link: &Link| link.upper.as_ref().is_some_and(|upper| Rc::ptr_eq(upper, top));
        let below: Vec<u32> = {
            let list = self.links.list.borrow();
            list.iter().filter(|(_, link)| is_of(link)).map(|(index, _)| *index).collect()
        };
        for index in below {
            if let Some(stream) = &top.stream {
                // The driver may refuse: the stream goes all the same.
                let _ = stream.link_ioctl(cx, Command::UNLINK, index);
            }
            self.drop_link(cx, index);
        }
        // The stream itself may be linked below another: its multiplexor hears of the end.
        if let Some(index) = top.link.take() {
            let link = self.links.list.borrow_mut().remove(&index);
            if let (Some(link), Some(hangup)) = (link, self.blocks().copy(Kind::Hangup, 0, &[])) {
                top.q.put(cx, hangup);
                drop(link);
            }
        }
    }

    /// Links the line of one protocol of the graph below that of another, to stay, as the graph
    /// says: opens a stream on each and links them by `I_PLINK`. Answers the number of the link.
    ///
    /// # Errors
    /// ENXIO if either is not of this subsystem; EINVAL for what is no multiplexor or would be a
    /// cycle; what the drivers say.
    pub fn link_lines(
        self: &Rc<Self>,
        cx: &Kernel,
        upper: ProtocolId,
        lower: ProtocolId,
    ) -> Result<u32, Errno> {
        let control = self.open_line(cx, upper)?;
        let linked = self.line(lower).ok_or(Errno::ENXIO).and_then(|driver| {
            let below = Stream::new(self);
            let opening = Opening { is_internal: true, upper: Some(upper), ..Opening::default() };
            self.build(cx, below.head_q(), driver, Some(Rc::clone(&below)), opening)?;
            let index = self.link(cx, &control, &below.head_q(), true);
            // Only the link holds the stream below.
            below.close(cx);
            index
        });
        control.close(cx);
        linked
    }
}
