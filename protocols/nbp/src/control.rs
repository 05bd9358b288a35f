//! The questions that it answers, and the waiting for what they ask.

use crate::protocol::{Nbp, first_cable};
use crate::wire::{Entity, Tuple};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use xk_appletalk::ddp::is_socket;
use xk_core::control::Report;
use xk_core::object::Payer;
use xk_core::{Answer, Ask, question};
use xk_kit::Pending;
use xk_kit::machine::At;
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
    pub(crate) result: Pending<Vec<Tuple>>,
}

impl Search {
    pub(crate) fn new(entity: Entity, socket: Option<u8>, payer: Option<Payer>) -> Rc<Self> {
        Rc::new(Self { entity, socket, payer, result: Pending::begun() })
    }
}

/// A result as it is told.
pub(crate) fn found(tuple: &Tuple) -> NbpFound {
    let Tuple { at, entity, .. } = tuple;
    NbpFound { name: entity.to_string(), net: at.net, node: at.node, socket: at.socket }
}

impl Nbp {
    /// Result of the search for an entity, begun now or before; waits for it where that can be. The
    /// outer `None`: there is no room for the search.
    fn search(&self, at: At<'_>, entity: Entity, socket: Option<u8>) -> Option<Option<Vec<Tuple>>> {
        let is_it = |search: &&Rc<Search>| search.entity == entity && search.socket == socket;
        let known = self.searches.borrow().iter().find(is_it).cloned();
        let search = match known {
            Some(search) => search,
            None => {
                let search = Search::new(entity, socket, at.cx.payer());
                self.begin(at, &search).then_some(search)?
            }
        };
        let result = search.result.get(at.cx);
        if result.is_some() {
            self.searches.borrow_mut().retain(|other| !Rc::ptr_eq(other, &search));
        }
        Some(result)
    }

    fn look_up(&self, at: At<'_>, question: &mut NbpLookup) -> Option<()> {
        let entity = question.name.parse::<Entity>().ok()?;
        if let Some(tuples) = self.search(at, entity, None)? {
            question.is_done = true;
            question.found = tuples.iter().map(found).collect();
        }
        Some(())
    }

    fn register(&self, at: At<'_>, question: &mut NbpRegister) -> Option<()> {
        let entity = question.name.parse::<Entity>().ok().filter(Entity::is_one)?;
        let socket = Some(question.socket).filter(|socket| is_socket(*socket))?;
        if self.search(at, entity, Some(socket))?.is_some() {
            let is_it = |(name, of): (&Entity, u8)| {
                of == socket && (&name.object, &name.kind) == (&entity.object, &entity.kind)
            };
            question.is_done = true;
            question.is_taken = self.names.borrow().iter().any(is_it);
        }
        Some(())
    }

    pub(crate) fn asked(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        let answered = if let Some(question) = ask.get::<NbpLookup>() {
            self.look_up(at, question)
        } else if let Some(question) = ask.get::<NbpRegister>() {
            self.register(at, question)
        } else if let Some(question) = ask.get::<NbpRemove>() {
            let entity = question.name.parse::<Entity>().ok();
            entity.map(|entity| question.was_there = self.names.borrow_mut().remove(&entity))
        } else {
            if ask.get::<CableChanged>().is_some() {
                self.changed(at);
            } else if let Some(question) = ask.get::<NbpTable>() {
                self.fill(at, question);
            } else {
                self.report(ask.get::<Report>()?);
            }
            Some(())
        };
        Some(answered.map_or(Answer::Unknown, |()| Answer::Answered))
    }

    fn report(&self, report: &mut Report) {
        let (names, found) = (self.names.borrow().len(), self.found.borrow().len());
        let lines = [("names", names), ("refused", self.refused.get()), ("found", found)];
        report.lines = lines.map(|(line, count)| (line.into(), count.to_string())).into();
        // Its names it serves without end.
        report.finished = self.wanted.iter().all(|(search, _)| !search.result.waits());
        report.failed = self.refused.get() > 0;
    }

    fn fill(&self, at: At<'_>, table: &mut NbpTable) {
        let cable = first_cable(at);
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
