//! A graph with an open domain, on a thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use xk_compose::{HostSetup, open_doors};
use xk_core::{Entry, Kernel};
use xk_lang::HostInstance;
use xk_net::Setup;

const ENTRIES: &[&Entry] = xk_catalog::PROTOCOLS;

/// A graph with a domain that is open, run by a thread of its own.
pub(crate) struct Domain {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Domain {
    pub(crate) fn open(name: &str, grants: &str) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let file = format!("xk-sockets-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let graph = format!(
            r#"host lab {{
                loopback
                ip loopback {{ address "10.0.0.1/24"; }}
                icmp ip
                udp ip
                tcp ip
                domain users open path={path:?} {{ {grants} }}
            }}"#
        );
        let stop = Arc::<AtomicBool>::default();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let stops = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let catalog = xk_catalog::standard();
            let checked = xk_compose::check(&graph, "lab", &catalog).expect("it is sound");
            let setup = HostSetup::from_text(graph, ENTRIES);
            let door = |kernel: &Kernel, host: &HostInstance<'_>, _: &_| {
                let names = host.nodes();
                let nodes = names.iter().map(|node| kernel.find_protocol(&node.name));
                let host = checked.host("lab").unwrap();
                let nodes: Vec<_> = nodes.collect();
                open_doors(&checked, &host, 0, kernel, &nodes)
                    .map_err(|error| std::io::Error::other(error.to_string()))
            };
            let host = setup.open(door, |_, _| Ok(())).expect("it runs");
            assert_eq!(host.top.len(), 1);
            ready.send(()).unwrap();
            while !stops.load(Ordering::Relaxed) {
                host.runner
                    .run(Some(Duration::from_millis(5)), std::rc::Rc::new(|_| false))
                    .unwrap();
            }
            drop(host.runner);
            host.kernel.stop();
        });
        is_ready.recv().unwrap();
        Self { path, stop, thread: Some(thread) }
    }

    pub(crate) fn setup(&self) -> Setup {
        Setup::attached(&self.path, ENTRIES)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}
