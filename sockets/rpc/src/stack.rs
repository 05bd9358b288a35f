//! One host of a graph, running.

use crate::client::{CallState, Client};
use crate::error::{Error, ErrorKind};
use crate::reactor::{CommandQueue, Reactor};
use crate::server::{Offer, Server, Service};
use crate::setup::Setup;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use xk_compose::OpenHost;
use xk_core::{Entry, Kernel, Participant};
use xk_run::Runner;

/// Shared state of all handles of a stack.
pub(crate) struct Shared {
    pub(crate) commands: Arc<CommandQueue>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.commands.bell().leave();
    }
}

/// A stack on the thread that turns its loop.
pub(crate) struct Local {
    kernel: Rc<Kernel>,
    reactor: Rc<Reactor>,
    runner: Rc<Runner>,
    /// The loop turns: a call now comes from one of its shepherds.
    turning: Cell<bool>,
}

thread_local! {
    /// The stacks of this thread, by the address of their entrances.
    static LOCAL: RefCell<HashMap<usize, Rc<Local>>> = RefCell::default();
}

impl Shared {
    fn key(&self) -> usize {
        Arc::as_ptr(&self.commands) as usize
    }

    fn local(&self) -> Option<Rc<Local>> {
        // A thread that ends may drop its handles after this.
        let find =
            |all: &RefCell<HashMap<usize, Rc<Local>>>| all.borrow().get(&self.key()).cloned();
        LOCAL.try_with(find).ok().flatten()
    }

    /// Whether this thread turns the stack's loop: it must not wait for the loop, then.
    pub(crate) fn is_here(&self) -> bool {
        self.local().is_some()
    }

    /// Waits for a call on the thread that turns the loop; false if this is another one.
    pub(crate) fn wait_here(&self, state: &Arc<CallState>) -> Result<bool, Error> {
        let Some(local) = self.local() else {
            return Ok(false);
        };
        if local.turning.get() {
            let waiter = local.reactor.new_waiter();
            if state.set_waiter(waiter) {
                local.reactor.wait(&local.kernel, waiter)?;
            }
            return Ok(true);
        }
        let state = Arc::clone(state);
        local.turn(None, move |_| state.is_done())?;
        Ok(true)
    }

    /// Has something done in the stack, and waits for it.
    fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Kernel, &Rc<Reactor>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        if let Some(local) = self.local() {
            let result = work(&local.kernel, &local.reactor);
            local.runner.flush();
            return Ok(result);
        }
        let answer = self.commands.ask(|answer| {
            Box::new(move |cx: &Kernel, reactor: &Rc<Reactor>| {
                // The thread that waits for it may be gone.
                let _ = answer.send(work(cx, reactor));
            })
        });
        answer.ok_or(ErrorKind::Ended.into())
    }
}

impl Local {
    /// Turns the loop until `finished`, at most `limit` long.
    fn turn(
        &self,
        limit: Option<Duration>,
        finished: impl Fn(&Kernel) -> bool + 'static,
    ) -> Result<(), Error> {
        let before = self.turning.replace(true);
        let result = self.runner.run(limit, Rc::new(finished));
        self.turning.set(before);
        result.map_err(|error| ErrorKind::Graph(error.to_string()).into())
    }
}

/// A handle of a running stack; clones are handles of the same one, and may go to other threads. A
/// stack with a thread of its own ends with its last handle, client and server; one that is driven
/// by [`Here`] ends with that.
#[derive(Clone)]
pub struct Stack {
    pub(crate) shared: Arc<Shared>,
}

impl Stack {
    /// Makes a client of this peer: the participant below the procedure, `10.0.0.2`, or
    /// `port2049@10.0.0.2` for programs over UDP. It is empty for a link with one other end.
    ///
    /// # Errors
    /// The text is no participant.
    pub fn client(&self, peer: &str) -> Result<Client, Error> {
        Ok(Client::new(self, participant(peer)?))
    }

    /// Offers a service: a generated server, or a closure. If it names a program, the stack offers
    /// that program, otherwise every procedure.
    ///
    /// # Errors
    /// Another service has it, or the stack does not take it.
    pub fn serve(&self, service: impl Service) -> Result<Server, Error> {
        self.serve_at("", service)
    }

    /// Offers a service at a local participant: `port2049`.
    ///
    /// # Errors
    /// As for [`Stack::serve`], or if the text is no participant.
    pub fn serve_at(&self, local: &str, service: impl Service) -> Result<Server, Error> {
        let local = participant(local)?;
        let commands = Arc::clone(&self.shared.commands);
        let offered = self.shared.within(move |cx, reactor| {
            Offer::stand(cx, reactor, &commands, local, Box::new(service))
        })??;
        Ok(Server::new(self.clone(), offered))
    }

    /// Has something done in the stack: at once on the thread that turns its loop, so that what
    /// comes next there finds it done.
    pub(crate) fn post(&self, work: impl FnOnce(&Kernel, &Rc<Reactor>) + Send + 'static) {
        if let Some(local) = self.shared.local() {
            work(&local.kernel, &local.reactor);
            return local.runner.flush();
        }
        // A stack that has ended needs nothing done.
        let _ = self.shared.commands.post(Box::new(work));
    }
}

fn participant(text: &str) -> Result<Participant, Error> {
    if text.is_empty() {
        return Ok(Participant::new());
    }
    text.parse().map_err(|_| {
        let what = format!("`{text}` is no participant, such as 10.0.0.2 or port2049@10.0.0.2");
        ErrorKind::Graph(what).into()
    })
}

/// A stack that the thread which made it drives: its loop runs while that thread waits for a call,
/// and in [`run`](Self::run). It ends when this is dropped.
pub struct Here {
    stack: Stack,
    local: Rc<Local>,
}

impl Deref for Here {
    type Target = Stack;

    fn deref(&self) -> &Stack {
        &self.stack
    }
}

impl Here {
    pub(crate) fn new(commands: Arc<CommandQueue>, made: OpenHost<Rc<Reactor>>) -> Self {
        let shared = Arc::new(Shared { commands });
        let local = Rc::new(Local {
            kernel: made.kernel,
            reactor: made.top,
            runner: made.runner,
            turning: Cell::new(false),
        });
        LOCAL.with_borrow_mut(|all| all.insert(shared.key(), Rc::clone(&local)));
        Self { stack: Stack { shared }, local }
    }

    /// Runs the loop for a while, and serves arriving calls. Do not call it from within a service.
    ///
    /// # Errors
    /// The loop cannot run, or turns already.
    pub fn run_for(&self, time: Duration) -> Result<(), Error> {
        self.run_until(Some(time), |_| false)
    }

    /// Runs the loop until the process is interrupted.
    pub fn run(&self) -> Result<(), Error> {
        self.run_until(None, |_| false)
    }

    fn run_until(
        &self,
        limit: Option<Duration>,
        finished: impl Fn(&Kernel) -> bool + 'static,
    ) -> Result<(), Error> {
        if self.local.turning.get() {
            return Err(ErrorKind::Graph("the loop turns already".into()).into());
        }
        self.local.turn(limit, finished)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        LOCAL.with_borrow_mut(|all| all.remove(&self.stack.shared.key()));
        self.stack.shared.commands.end();
        self.local.kernel.stop();
    }
}

impl Stack {
    /// Runs the only host of the graph in a file, with a thread of its own. `entries` are the
    /// protocols that the graph may name; [`Setup`] has more options.
    ///
    /// # Errors
    /// The file cannot be read, the mistakes of the graph, or what this machine lacks for it.
    pub fn from_file(path: impl AsRef<Path>, entries: &[&'static Entry]) -> Result<Self, Error> {
        Setup::from_file(path, entries)?.thread()
    }

    /// Runs the only host of the graph in a text.
    pub fn from_text(text: impl Into<String>, entries: &[&'static Entry]) -> Result<Self, Error> {
        Setup::from_text(text, entries).thread()
    }

    pub(crate) fn spawn(setup: Setup) -> Result<Self, Error> {
        let graph = |error: std::io::Error| Error::from(ErrorKind::Graph(error.to_string()));
        let commands = Arc::new(CommandQueue::new().map_err(graph)?);
        let (told, is_made) = sync_channel(1);
        let shared = Arc::new(Shared { commands: Arc::clone(&commands) });
        std::thread::Builder::new()
            .name("xk-rpc".into())
            .spawn(move || {
                let made = setup.make(&commands);
                let ended = Ended(Arc::clone(&commands));
                match made {
                    Err(error) => drop(told.send(Err(error))),
                    Ok(made) => {
                        let here = Here::new(Arc::clone(&commands), made);
                        // If no thread waits for it any more, none has a handle either.
                        let _ = told.send(Ok(()));
                        let leaving = Arc::clone(&commands);
                        // An interrupt of the process ends it, too.
                        let _ = here.run_until(None, move |_| leaving.bell().is_leaving());
                    }
                }
                drop(ended);
            })
            .map_err(graph)?;
        match is_made.recv() {
            Ok(result) => result.map(|()| Self { shared }),
            Err(_) => Err(ErrorKind::Ended.into()),
        }
    }
}

/// Tells the threads that wait that the stack has ended, however it did.
struct Ended(Arc<CommandQueue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests;
