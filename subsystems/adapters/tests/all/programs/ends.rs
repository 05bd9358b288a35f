//! Programs' ends of streams: BSD's sockets and the transport interface, as one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{
    Bsd, How, Mbuf, Mt, Sink, Sock, Sockaddr, Socket, Uio, soaccept, sobind, soclose, soconnect,
    socreate, solisten, soreceive, sosend, soshutdown,
};
use xk_core::Kernel;
use xk_core::shepherd::Semaphore;
use xk_streams::Streams;
use xk_streams::tli::{Call, Endpoint};
use xk_streams::tpi::TliError;

/// Interface that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Sockets,
    Tli,
}

pub(crate) const BOTH: [Api; 2] = [Api::Sockets, Api::Tli];

pub(crate) fn sleep(cx: &Kernel, time: Duration) {
    let _ = cx.wait(&Semaphore::new(0), Some(time));
}

pub(crate) fn bsd(cx: &Kernel) -> Rc<Bsd> {
    Bsd::of(cx).expect("the host has BSD")
}

pub(crate) fn streams(cx: &Kernel) -> Rc<Streams> {
    Streams::of(cx).expect("the host has STREAMS")
}

pub(crate) fn sockaddr(cx: &Kernel, host: u8, port: u16) -> Sockaddr {
    Sockaddr::inet(bsd(cx).mbufs().release(), [10, 0, 0, host].into(), port)
}

pub(crate) fn nam(cx: &Kernel, host: u8, port: u16) -> Mbuf {
    sockaddr(cx, host, port).to_mbuf(bsd(cx).mbufs()).expect("an mbuf")
}

pub(crate) fn any(cx: &Kernel, port: u16) -> Mbuf {
    let sa = Sockaddr::inet(bsd(cx).mbufs().release(), [0; 4].into(), port);
    sa.to_mbuf(bsd(cx).mbufs()).expect("an mbuf")
}

/// An address of TPI.
pub(crate) fn inet(host: [u8; 4], port: u16) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[0] = AF_INET;
    octets[2..4].copy_from_slice(&port.to_be_bytes());
    octets[4..8].copy_from_slice(&host);
    octets
}

/// One end of a stream.
#[derive(Clone)]
pub(crate) enum End {
    Socket(Rc<Socket>),
    Tli(Rc<Endpoint>),
}

/// A listener for streams.
pub(crate) enum Listens {
    Socket(Rc<Socket>),
    Tli(Rc<Endpoint>, RefCell<VecDeque<Call>>),
}

type Done<T> = Result<T, String>;

fn text<E: std::fmt::Debug>(error: E) -> String {
    format!("{error:?}")
}

pub(crate) fn listen(cx: &Kernel, api: Api, port: u16, backlog: u16) -> Done<Listens> {
    Ok(match api {
        Api::Sockets => {
            let so = socreate(cx, &bsd(cx), AF_INET, Sock::Stream, 0).map_err(text)?;
            sobind(cx, &so, &mut any(cx, port)).map_err(text)?;
            solisten(cx, &so, backlog).map_err(text)?;
            Listens::Socket(so)
        }
        Api::Tli => {
            let (end, _) = Endpoint::open(cx, &streams(cx), "tli/tcp").map_err(text)?;
            end.bind(cx, Some(&inet([0; 4], port)), backlog.into()).map_err(text)?;
            Listens::Tli(Rc::new(end), RefCell::default())
        }
    })
}

impl Listens {
    pub(crate) fn accept(&self, cx: &Kernel) -> Done<End> {
        match self {
            Self::Socket(so) => {
                let mut nam = bsd(cx).mbufs().m_get(Mt::Soname).map_err(text)?;
                let accepted = soaccept(cx, so, &mut nam).map_err(text)?;
                assert_eq!(Sockaddr::of(&nam).expect("a name").addr().octets()[0], 10);
                Ok(End::Socket(accepted))
            }
            Self::Tli(end, calls) => {
                let first = calls.borrow_mut().pop_front();
                let call = first.map_or_else(|| end.listen(cx).map_err(text), Ok)?;
                assert_eq!(call.addr[4], 10, "the peer's address");
                let (on, _) = Endpoint::open(cx, &streams(cx), "tli/tcp").map_err(text)?;
                // Others that ask are heard first.
                while let Err(refusal) = end.accept(cx, &on, &call) {
                    assert_eq!(refusal.tli, TliError::TLOOK);
                    calls.borrow_mut().push_back(end.listen(cx).map_err(text)?);
                }
                Ok(End::Tli(Rc::new(on)))
            }
        }
    }

    pub(crate) fn close(&self, cx: &Kernel) {
        match self {
            Self::Socket(so) => drop(soclose(cx, so)),
            Self::Tli(end, _) => drop(end.close(cx)),
        }
    }
}

pub(crate) fn dial(cx: &Kernel, api: Api, host: u8, port: u16) -> Done<End> {
    match api {
        Api::Sockets => {
            let so = socreate(cx, &bsd(cx), AF_INET, Sock::Stream, 6).map_err(text)?;
            match soconnect(cx, &so, &mut nam(cx, host, port)) {
                Ok(()) => Ok(End::Socket(so)),
                Err(error) => {
                    let _ = soclose(cx, &so);
                    Err(text(error))
                }
            }
        }
        Api::Tli => {
            let (end, _) = Endpoint::open(cx, &streams(cx), "tli/tcp").map_err(text)?;
            end.bind(cx, None, 0).map_err(text)?;
            let connected = end.connect(cx, &inet([10, 0, 0, host], port), &[], &[]);
            let end = End::Tli(Rc::new(end));
            match connected {
                Ok(_) => Ok(end),
                Err(_) => {
                    let why = end.why(cx);
                    end.close(cx);
                    Err(why)
                }
            }
        }
    }
}

impl End {
    pub(crate) fn send(&self, cx: &Kernel, octets: &[u8]) -> Done<()> {
        match self {
            Self::Socket(so) => {
                let sent = sosend(cx, so, None, Uio::Octets(octets), None, 0).map_err(text)?;
                assert_eq!(sent, octets.len());
            }
            Self::Tli(end) => {
                let mut left = octets;
                while !left.is_empty() {
                    match end.snd(cx, left, 0) {
                        Ok(sent) => left = &left[sent..],
                        Err(refusal) if refusal.tli == TliError::TLOOK => return Err(self.why(cx)),
                        Err(refusal) => return Err(text(refusal)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Octets that have come, at most `max`; none at the end.
    pub(crate) fn receive(&self, cx: &Kernel, max: usize) -> Done<Vec<u8>> {
        match self {
            Self::Socket(so) => {
                let mut octets = vec![0; max];
                let got = soreceive(cx, so, Sink::Octets(&mut octets), 0).map_err(text)?;
                octets.truncate(got.len);
                Ok(octets)
            }
            Self::Tli(end) => match end.rcv(cx, max) {
                Ok((octets, _)) => Ok(octets),
                Err(refusal) if refusal.tli == TliError::TLOOK => match end.rcvrel(cx) {
                    Ok(()) => Ok(Vec::new()),
                    Err(_) => Err(self.why(cx)),
                },
                Err(refusal) => Err(text(refusal)),
            },
        }
    }

    /// Everything until the end.
    pub(crate) fn receive_all(&self, cx: &Kernel) -> Done<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let more = self.receive(cx, 8192)?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    /// Why a connection has ended, by its symbol.
    fn why(&self, cx: &Kernel) -> String {
        match self {
            Self::Socket(_) => String::new(),
            Self::Tli(end) => match end.rcvdis(cx) {
                Ok(gone) => text(xk_streams::Errno(gone.reason)),
                Err(refusal) => text(refusal),
            },
        }
    }

    /// Sends no more.
    pub(crate) fn shutdown(&self, cx: &Kernel) {
        match self {
            Self::Socket(so) => soshutdown(cx, so, How::Write).expect("it shuts"),
            Self::Tli(end) => end.sndrel(cx).expect("it is released"),
        }
    }

    /// Breaks it off.
    pub(crate) fn abort(&self, cx: &Kernel) {
        match self {
            Self::Socket(so) => {
                // As a process that ends with data unread does.
                soclose(cx, so).expect("it closes");
            }
            Self::Tli(end) => end.snddis(cx, None, &[]).expect("it ends"),
        }
    }

    pub(crate) fn close(&self, cx: &Kernel) {
        match self {
            Self::Socket(so) => drop(soclose(cx, so)),
            Self::Tli(end) => drop(end.close(cx)),
        }
    }

    /// Octets that wait for the program.
    pub(crate) fn unread(&self) -> usize {
        match self {
            Self::Socket(so) => so.so_rcv.cc(),
            Self::Tli(end) => end.stream().head_q().count(),
        }
    }
}
