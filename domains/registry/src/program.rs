//! A program's stack: its library, and what that stands on.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, OnceCell};
use xk_core::graph::{BuildError, Params, Value};
use xk_core::object::OpenError;
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_domains::Carrier;
use xk_kit::EthAddr;
use xk_kit::control::MyHost;
use xk_netio::{Ticket, channel};

use crate::datagrams::{self, Datagrams};
use crate::library::{Library, Parts};
use crate::membership::Membership;
use crate::stations::Stations;

/// Why a program has no stack of its own.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The registry has no place for it.
    #[error("the registry has no place for it: {0}")]
    Registry(OpenError),
    /// There is no channel to be had.
    #[error("there is no channel to the network to be had")]
    NoChannel,
    /// The registry's transport does not say which host this is.
    #[error("the registry does not say which host this is")]
    NoHost,
    /// The program does not know a protocol that the stack needs.
    #[error("the program does not know the protocol `{0}`")]
    Unknown(&'static str),
    /// A protocol of the stack cannot be built.
    #[error("its stack cannot be built: {0}")]
    Build(#[from] BuildError),
}

/// A program whose conversations a registry begins, and that carries them on itself.
pub struct Program {
    parts: Rc<Parts>,
    library: ProtocolRef,
    /// Whether the channel is no more.
    is_cut_off: OnceCell<Rc<Cell<bool>>>,
}

impl Program {
    /// Adds a library to a kernel, above what stands for the registry's transport `far` and for the
    /// registry: the protocol is what others stand on.
    pub fn add(cx: &Kernel, name: &str, far: ProtocolRef, registry: ProtocolRef) -> Self {
        let parts = Parts::new(far, &Membership::new(registry));
        let library = cx.add_protocol("library", name, Library(Rc::clone(&parts)));
        Self { parts, library, is_cut_off: OnceCell::new() }
    }

    /// Adds a protocol for datagrams, above what stands for the registry's transport of these: what
    /// others stand on. Those of each port that is opened or enabled go by the program's own
    /// channel.
    pub fn add_datagrams(&self, cx: &Kernel, name: &str, far: ProtocolRef) -> ProtocolRef {
        let parts = datagrams::Parts::new(cx, far, &self.parts.member, &self.library);
        drop(self.parts.beside.replace(Some(Rc::clone(&parts))));
        cx.add_protocol("datagrams", name, Datagrams(parts))
    }

    /// Returns the protocol on which others stand.
    pub fn library(&self) -> &ProtocolRef {
        &self.library
    }

    /// True once the network I/O module has gone, or has revoked the channel: nothing comes and
    /// goes any more.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.get().is_some_and(|is_cut_off| is_cut_off.get())
    }

    /// Has the registry end the conversations that have been closed and have not ended, those that
    /// wait for late segments included: how many are not there yet. A program that is about to end
    /// turns its loop and asks again until none is; of what is left the peers are reset.
    pub fn leave(&self, cx: &Kernel) -> usize {
        match self.parts.member.is_lost() || self.is_cut_off() {
            true => 0,
            false => self.parts.leave(cx, &self.library),
        }
    }

    /// Enters the program at the registry, which must know of the library by now, and builds the
    /// program's own stack of protocols of these entries: on a channel that `fetch` fetches from
    /// the network I/O module, by the ticket and at the door of the registry's answer.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn build(
        &self,
        cx: &Kernel,
        entries: &[&'static Entry],
        fetch: impl FnOnce(&Kernel, &Ticket, &str) -> Option<Box<dyn Carrier>>,
    ) -> Result<(), ProgramError> {
        let parts = &self.parts;
        parts.member.enter(cx, &self.library).map_err(ProgramError::Registry)?;
        let opened = parts.member.open_channel(cx).ok_or(ProgramError::NoChannel)?;
        let ticket = opened.ticket.ok_or(ProgramError::NoChannel)?;
        let host = parts.far.ask(cx, MyHost::default()).ok_or(ProgramError::NoHost)?.host;
        let address = host.to_v4().ok_or(ProgramError::NoHost)?;
        let carrier = fetch(cx, &ticket, &opened.door).ok_or(ProgramError::NoChannel)?;
        let frames = (EthAddr(opened.address), opened.frame_octets_max as usize);
        let (wire, is_cut_off) = channel(cx, "channel", carrier, frames);
        let _ = self.is_cut_off.set(is_cut_off);
        let find = |kind| {
            let entry = entries.iter().copied().find(|entry| entry.kind == kind);
            entry.ok_or(ProgramError::Unknown(kind))
        };
        let make = |kind, lower: ProtocolRef, params: &Params| {
            let entry = find(kind)?;
            for number in entry.type_numbers() {
                // Those of protocols that are there already are known.
                let _ = cx.numbers_mut().add(number);
            }
            let lowers = [lower];
            entry.add(cx, kind, &lowers, params).map_err(ProgramError::Build)
        };
        let link = make("eth", wire, &Params::default())?;
        let known = Rc::clone(&parts.member.known);
        let stations = cx.add_protocol("stations", "stations", Stations { link, known });
        let mut ip = Params::default();
        let block = |name, key, value: String| {
            let mut block = Params::default();
            block.set(key, Value::Text(value));
            (name, block)
        };
        let address = block("address", "address", alloc::format!("{address}/32"));
        // Whichever host it is, the registry has told by which station it is reached.
        let route = block("route", "network", "default".into());
        for (name, block) in [address, route] {
            ip.add_block(name, block);
        }
        let ip = make("ip", stations, &ip)?;
        let kind = parts.far.head().kind();
        let own = make(kind, ip.clone(), &Params::default())?;
        if let Some(datagrams) = &*parts.beside.borrow() {
            let kind = datagrams.far().head().kind();
            datagrams.stand_on((make(kind, ip.clone(), &Params::default())?, host));
        }
        parts.stand_on((own, ip));
        Ok(())
    }
}
