//! UDP over a driver that carries packets of one host to itself.

mod strangers;

use std::cell::RefCell;
use std::rc::Rc;
use xk_core::Kernel;
use xk_core::reason;
use xk_streams::tpi::{
    Datagrams, Endpoint, Info, Primitive, Refusal, SendError, inet, inet_parts, unitdata_ind,
};
use xk_streams::{Bounds, Errno, Mblk, Module, ModuleInfo, Opening, Q, Streamtab, WeakQ, tli};
use xk_streams_inet::udp;
use xk_testkit::kernel::TestKernel;

const ME: [u8; 4] = [10, 0, 0, 1];

/// The host's own packets come back; what it has seen of the last, and the queue that goes up.
#[derive(Default)]
struct Ip(Rc<RefCell<Vec<u8>>>, Rc<RefCell<Option<WeakQ>>>);

impl Datagrams for Ip {
    fn module(&self) -> ModuleInfo {
        ModuleInfo::new(1, "ip")
    }

    fn info(&self) -> Info {
        Info::datagrams(65_515, 16, 16)
    }

    fn bind(&self, _: &Kernel, q: &Q, _: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        self.1.replace(Some(q.downgrade()));
        Ok(inet(ME, 0).into())
    }

    fn unbind(&self, _: &Kernel, _: &Q) {}

    fn local(&self, _: &Q) -> Vec<u8> {
        inet(ME, 0).into()
    }

    fn told(&self, _: &'static xk_core::Reason) {}

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (to, _): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        assert_eq!(inet_parts(to), Some((ME, 0)));
        let data = data.unwrap();
        *self.0.borrow_mut() = data.to_vec();
        let up = unitdata_ind(q.blocks(), &inet(ME, 0), &inet(ME, 0), data).unwrap();
        q.putnext(cx, up);
        Ok(())
    }
}

impl Streamtab for Ip {
    fn info(&self) -> ModuleInfo {
        self.module()
    }

    fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        Ok(Endpoint::new(Rc::new(Ip(Rc::clone(&self.0), Rc::clone(&self.1)))))
    }
}

#[test]
fn datagrams_go_between_ports() {
    let cx = TestKernel::new(1);
    let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
    let ip = Ip::default();
    let last = Rc::clone(&ip.0);
    let lower = xk_streams::add_line(&cx, "ip", "ip", &[], Rc::new(ip)).unwrap();
    let line = udp::add(&cx, "udp", lower).unwrap();
    cx.start().unwrap();
    let open = |port| {
        let (end, _) = tli::Endpoint::open(&cx, &streams, "udp").unwrap();
        end.stream().set_nonblocking(true);
        end.bind(&cx, Some(&inet([0; 4], port)), 0).map(|_| end)
    };
    let (a, b) = (open(2005).unwrap(), open(7).unwrap());
    assert!(format!("{:?}", open(7).err()).contains("EADDRINUSE"));
    a.sndudata(&cx, &inet(ME, 7), &[], b"hello").unwrap();
    let unit = b.rcvudata(&cx, tli::Maxima::ALL).unwrap();
    assert_eq!((unit.addr, unit.data), (inet(ME, 2005).to_vec(), b"hello".to_vec()));
    // Ports, length, and a checksum that is right.
    assert_eq!(last.borrow()[..6], [0x07, 0xd5, 0, 7, 0, 13]);
    let drops = line.head().drops();
    a.sndudata(&cx, &inet(ME, 8), &[], b"none").unwrap();
    assert_eq!(drops.of(&reason::NO_PORT), 1);
    // Damaged and cut ones.
    let packet = last.borrow().clone();
    let q = streams.attach(&cx, streams.driver("udp").unwrap(), None, Rc::new(Quiet)).unwrap();
    let bottom = streams.links_below(&streams.driver("udp").unwrap());
    assert_eq!(bottom.len(), 1);
    let request = Primitive::InfoReq.emit(q.blocks()).unwrap();
    q.putnext(&cx, request);
    assert_eq!(packet.len(), 12);
    for data in [&[0; 65_508][..], b""] {
        let sent = a.sndudata(&cx, &inet(ME, 7), &[], data);
        assert_eq!(sent.is_ok(), data.is_empty());
    }
    assert_eq!(b.rcvudata(&cx, tli::Maxima::ALL).unwrap().data, b"");
}

struct Quiet;

impl Module for Quiet {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(2, "quiet")
    }

    fn rput(&self, _: &Kernel, _: &Q, _: Mblk) {}
}
