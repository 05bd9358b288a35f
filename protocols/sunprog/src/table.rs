//! The table of programs: their versions and servers.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::ProtocolRef;
use xk_core::object::OpenError;
use xk_core::participant::{AddressError, Wild};
use xk_kit::rpc::onc::{Offered, ProcedureName};

/// A protocol above that serves.
pub(crate) struct Served {
    pub(crate) number: u64,
    program: u32,
    version: Wild<u32>,
    procedure: Wild<u32>,
    pub(crate) upper: ProtocolRef,
}

/// The server of what a request names.
pub(crate) enum Found {
    /// This one.
    Served(Rc<Served>),
    /// The program has no server.
    NoProgram,
    /// The program is served in versions from the first to the second.
    Versions(u32, u32),
    /// This version is served, but not this procedure.
    NoProcedure,
}

/// Table of the served procedures.
pub(crate) struct Table {
    list: RefCell<Vec<Rc<Served>>>,
    made: Cell<u64>,
    max: usize,
}

fn takes(offered: Wild<u32>, number: u32) -> bool {
    offered.value().is_none_or(|own| own == number)
}

impl Table {
    pub(crate) fn new(max: usize) -> Self {
        Self { list: RefCell::default(), made: Cell::new(0), max }
    }

    /// Enters an offer; answers its number.
    pub(crate) fn enter(&self, offered: Offered, upper: &ProtocolRef) -> Result<u64, OpenError> {
        // A server of every program would leave none for the answer that there is no such program.
        let program = offered.program.definite().map_err(OpenError::Address)?;
        if offered.version == Wild::Any && offered.procedure != Wild::Any {
            return Err(AddressError::Wildcard.into());
        }
        let mut list = self.list.borrow_mut();
        if list.iter().any(|other| {
            other.program == program
                && other.version == offered.version
                && other.procedure == offered.procedure
        }) {
            return Err(OpenError::InUse);
        }
        if list.len() >= self.max {
            return Err(OpenError::Full);
        }
        let number = self.made.get();
        self.made.set(number + 1);
        list.push(Rc::new(Served {
            number,
            program,
            version: offered.version,
            procedure: offered.procedure,
            upper: upper.clone(),
        }));
        Ok(number)
    }

    /// Withdraws the offer with this number.
    pub(crate) fn withdraw(&self, number: u64) {
        let mut list = self.list.borrow_mut();
        if let Some(at) = list.iter().position(|served| served.number == number) {
            let gone = list.swap_remove(at);
            drop(list);
            drop(gone);
        }
    }

    /// The server of this: one that offers just this procedure before one that offers all of this
    /// version, before one that offers all versions.
    pub(crate) fn find(&self, name: ProcedureName) -> Found {
        let list = self.list.borrow();
        let program = |served: &&Rc<Served>| served.program == name.program;
        let of_version = |served: &&Rc<Served>| takes(served.version, name.version);
        // Procedure 0 is there wherever the version is.
        let of_procedure =
            |served: &&Rc<Served>| name.procedure == 0 || takes(served.procedure, name.procedure);
        let how_definite = |served: &&Rc<Served>| {
            (served.version != Wild::Any, served.procedure == Wild::Is(name.procedure))
        };
        let all = list.iter().filter(program).filter(of_version);
        if let Some(best) = all.clone().filter(of_procedure).max_by_key(how_definite) {
            return Found::Served(Rc::clone(best));
        }
        if all.clone().next().is_some() {
            return Found::NoProcedure;
        }
        drop(list);
        match self.versions(name.program) {
            Some((low, high)) => Found::Versions(low, high),
            None => Found::NoProgram,
        }
    }

    /// The lowest and the highest version in which a program is served; `None` if it is not, or in
    /// all.
    pub(crate) fn versions(&self, program: u32) -> Option<(u32, u32)> {
        let list = self.list.borrow();
        let all = list.iter().filter(|served| served.program == program);
        let versions = all.filter_map(|served| served.version.value());
        versions.clone().min().zip(versions.max())
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let list = self.list.take();
        drop(list);
    }
}
