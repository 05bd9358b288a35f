//! The questions that it answers, and the waiting for what they ask.

use crate::protocol::Nbp;
use crate::wire::{Entity, Tuple};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_appletalk::ddp::is_socket;
use xk_core::control::Report;
use xk_core::object::Payer;
use xk_core::shepherd::Semaphore;
use xk_core::{Answer, Ask, Kernel, ProtocolRef, question};
use xk_kit::net::appletalk::CableChanged;

pub use xk_kit::net::names::{NbpFound, NbpLookup, NbpRegister};

/// Takes a name away.
#[derive(Clone, Debug, Default)]
pub struct NbpRemove {
    /// In: the name.
    pub name: String,
    /// Out: whether it was there.
    pub was_there: bool,
}

question!(NbpRemove { name, was_there }, "nbp-remove", Ask);

/// The node's names, and what the searches of the graph found.
#[derive(Clone, Debug, Default)]
pub struct NbpTable {
    /// The names that the node's sockets have.
    pub names: Vec<NbpFound>,
    /// Names of this node that are being looked up, or were refused.
    pub pending: u32,
    /// Results of searches that have ended, of `lookup` and `nbp-lookup`.
    pub found: Vec<NbpFound>,
}

question!(NbpTable { names, pending, found }, "nbp-table", Ask);

/// A search for a name.
pub(crate) struct Search {
    pub(crate) entity: Entity,
    /// The socket that is to have the name; `None` of a search for others.
    pub(crate) socket: Option<u8>,
    /// The user that began it.
    pub(crate) payer: Option<Payer>,
    pub(crate) result: RefCell<Option<Vec<Tuple>>>,
    pub(crate) ended: Semaphore,
}

impl Search {
    pub(crate) fn new(entity: Entity, socket: Option<u8>, payer: Option<Payer>) -> Rc<Self> {
        let (result, ended) = (RefCell::default(), Semaphore::new(0));
        Rc::new(Self { entity, socket, payer, result, ended })
    }
}

/// A result as it is told.
pub(crate) fn found(tuple: &Tuple) -> NbpFound {
    let Tuple { at, entity, .. } = tuple;
    NbpFound { name: entity.to_string(), net: at.net, node: at.node, socket: at.socket }
}

impl Nbp {
    /// The search for an entity that was begun before, or a new one; `None` if there is no room.
    fn search(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        entity: Entity,
        socket: Option<u8>,
    ) -> Option<Rc<Search>> {
        let is_it = |search: &&Rc<Search>| search.entity == entity && search.socket == socket;
        let known = self.searches.borrow().iter().find(is_it).cloned();
        if let Some(search) = known {
            return Some(search);
        }
        let search = Search::new(entity, socket, cx.payer());
        self.begin(cx, this, &search).then_some(search)
    }

    /// Result of a search; waits for it where that can be.
    fn result(&self, cx: &Kernel, search: &Rc<Search>) -> Option<Vec<Tuple>> {
        if search.result.borrow().is_none() {
            let waited = cx.wait(&search.ended, None);
            if waited.is_ok() {
                // The next one that waits for it goes on, too.
                cx.signal(&search.ended);
            }
        }
        let result = search.result.borrow().clone();
        if result.is_some() {
            self.searches.borrow_mut().retain(|other| !Rc::ptr_eq(other, search));
        }
        result
    }

    pub(crate) fn answer(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if ask.get::<CableChanged>().is_some() {
            self.changed(cx, this);
        } else if let Some(question) = ask.get::<NbpLookup>() {
            let Ok(entity) = question.name.parse::<Entity>() else { return Answer::Unknown };
            let search = self.search(cx, this, entity, None);
            let Some(search) = search else { return Answer::Unknown };
            if let Some(tuples) = self.result(cx, &search) {
                question.is_done = true;
                question.found = tuples.iter().map(found).collect();
            }
        } else if let Some(question) = ask.get::<NbpRegister>() {
            let entity = question.name.parse::<Entity>().ok().filter(Entity::is_one);
            let Some(entity) = entity.filter(|_| is_socket(question.socket)) else {
                return Answer::Unknown;
            };
            let search = self.search(cx, this, entity, Some(question.socket));
            let Some(search) = search else { return Answer::Unknown };
            if self.result(cx, &search).is_some() {
                let names = self.names.borrow();
                question.is_done = true;
                question.is_taken = names.iter().any(|(name, socket)| {
                    socket == question.socket
                        && (&name.object, &name.kind) == (&entity.object, &entity.kind)
                });
            }
        } else if let Some(question) = ask.get::<NbpRemove>() {
            let Ok(entity) = question.name.parse::<Entity>() else { return Answer::Unknown };
            question.was_there = self.names.borrow_mut().remove(&entity);
        } else if let Some(question) = ask.get::<NbpTable>() {
            self.fill(cx, question);
        } else if let Some(report) = ask.get::<Report>() {
            let (names, found) = (self.names.borrow().len(), self.found.borrow().len());
            let lines = [("names", names), ("refused", self.refused.get()), ("found", found)];
            report.lines = lines.map(|(line, count)| (line.into(), count.to_string())).into();
            // Its names it serves without end.
            report.finished =
                self.wanted.iter().all(|(search, _)| search.result.borrow().is_some());
            report.failed = self.refused.get() > 0;
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn fill(&self, cx: &Kernel, table: &mut NbpTable) {
        let cable = self.cable(cx);
        let names = self.names.borrow();
        let named = |(entity, socket): (&Entity, u8)| NbpFound {
            name: entity.to_string(),
            net: cable.net,
            node: cable.node,
            socket,
        };
        table.names = names.iter().map(named).collect();
        let searches = self.searches.borrow();
        let is_pending = |s: &&Rc<Search>| s.socket.is_some() && !names.holds(&s.entity);
        table.pending = searches.iter().filter(is_pending).count() as u32;
        table.found = self.found.borrow().iter().map(found).collect();
    }
}
