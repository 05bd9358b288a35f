//! Chapter 12: smoltcp's own example, changed as the chapter says, on both of its graphs.

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};
use xk_compose::HostSetup;
use xk_smoltcp::{Link, Port};

/// The module that the build script has made.
#[allow(
    clippy::all,
    clippy::todo,
    unused_mut,
    missing_docs,
    unreachable_pub,
    reason = "smoltcp's, as it is"
)]
mod client {
    include!(concat!(env!("OUT_DIR"), "/smoltcp_client.rs"));
}

const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// A port that the system's UDP has free.
fn free() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The chapter's graph with other files and ports than those that it names.
fn graph(name: &str, ports: [u16; 2]) -> (PathBuf, PathBuf) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let text = fs::read_to_string(file).unwrap();
    let at = std::env::temp_dir().join(format!("xk-guide-{}-{name}", std::process::id()));
    let capture = at.with_extension("pcapng");
    let text = text
        .replace("/tmp/client.pcapng", &capture.display().to_string())
        .replace("7001", &ports[0].to_string())
        .replace("7002", &ports[1].to_string())
        .replace("9000", &ports[0].to_string());
    fs::write(&at, text).unwrap();
    (at, capture)
}

/// Says two lines to the peer; what it says to them.
fn say(stream: impl std::io::Read + Write) -> Vec<String> {
    let mut stream = BufReader::new(stream);
    let mut heard = Vec::new();
    for line in ["hello", "out there"] {
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut back = String::new();
        stream.read_line(&mut back).unwrap();
        heard.push(back.trim_end().to_owned());
    }
    heard
}

/// Runs the chapter's program to its end.
fn talk(graph: &Path, far: String) {
    let graph = graph.to_str().unwrap().to_owned();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        client::talk(&graph, "192.168.69.100", 7, &far);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(ANSWER_TIME_MAX).expect("it ends");
}

fn captured(capture: &Path) {
    let octets = fs::read(capture).unwrap();
    assert!(octets.windows(5).any(|w| w == b"olleh"), "the capture has what was said");
    fs::remove_file(capture).unwrap();
}

#[test]
fn on_a_link_with_faults_it_talks_to_a_stack_of_ours() {
    let ports = [free(), free()];
    let (ready, is_ready) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let text = format!(
            r#"host server {{
                host-eth local="127.0.0.1:{}" peer="127.0.0.1:{}"
                eth host-eth; arp eth; ip arp {{ address "192.168.69.100/24"; }}; icmp ip; tcp ip
            }}"#,
            ports[1], ports[0]
        );
        let stack = xk_net::Stack::from_text(&text, xk_catalog::PROTOCOLS).unwrap();
        let listener = xk_net::TcpListener::bind(&stack, "192.168.69.100:7").unwrap();
        ready.send(()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
        let heard = say(&stream);
        drop(stream);
        // What is lost of the end is sent again.
        while ends.try_recv().is_err() {
            stack.run_for(Duration::from_millis(10)).unwrap();
        }
        heard
    });
    is_ready.recv().unwrap();
    let (graph, capture) = graph("smoltcp.kdl", ports);
    talk(&graph, "*".into());
    end.send(()).unwrap();
    assert_eq!(server.join().unwrap(), ["olleh", "ereht tuo"]);
    fs::remove_file(graph).unwrap();
    captured(&capture);
}

/// The other end of the connection that carries the frames: a host of smoltcp's.
fn far_end(at: u16, ready: &mpsc::Sender<()>, ends: &mpsc::Receiver<()>) -> Vec<u8> {
    let text = format!("host server {{ host-udp; tcp host-udp local=\"port{at}\"; rm tcp }}");
    let host = HostSetup::from_text(text, xk_catalog::PROTOCOLS)
        .open(
            |cx, _, _| {
                let rm = cx.find_protocol("rm").unwrap();
                let local = "port4000".parse().unwrap();
                Ok(Port::on_link(cx, "smoltcp", &rm, Link::at(local)))
            },
            |_, _| Ok(()),
        )
        .unwrap();
    let mut device = host.top.device(&host.kernel);
    let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 2]).into());
    let mut iface = Interface::new(config, &mut device, Instant::now());
    iface.update_ip_addrs(|list| {
        list.push(IpCidr::new(IpAddress::v4(192, 168, 69, 100), 24)).unwrap();
    });
    let buffer = || tcp::SocketBuffer::new(vec![0; 1500]);
    let mut sockets = SocketSet::new(vec![]);
    let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
    sockets.get_mut::<tcp::Socket<'_>>(handle).listen(7).unwrap();
    ready.send(()).unwrap();
    let (mut heard, mut said) = (Vec::new(), false);
    while ends.try_recv().is_err() {
        iface.poll(Instant::now(), &mut device, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        if socket.can_send() && !said {
            socket.send_slice(b"hello\n").unwrap();
            said = true;
        }
        while socket.can_recv() {
            socket.recv(|octets| (octets.len(), heard.extend_from_slice(octets))).unwrap();
        }
        if heard.ends_with(b"\n") {
            socket.close();
        }
        let delay = iface.poll_delay(Instant::now(), &sockets).map(Duration::from);
        let delay = delay.unwrap_or(Duration::MAX).min(Duration::from_millis(20));
        let port = Rc::clone(&host.top);
        host.runner.run(Some(delay), Rc::new(move |_| port.waiting() > 0)).unwrap();
    }
    host.kernel.stop();
    heard
}

#[test]
fn over_our_tcp_it_talks_to_another_host_of_smoltcp_s() {
    let at = free();
    let (ready, is_ready) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let server = thread::spawn(move || far_end(at, &ready, &ends));
    is_ready.recv().unwrap();
    let (graph, capture) = graph("smoltcp-tcp.kdl", [free(), 0]);
    let far = format!("port4000@port{at}@127.0.0.1");
    talk(&graph, far);
    end.send(()).unwrap();
    assert_eq!(server.join().unwrap(), b"olleh\n");
    fs::remove_file(graph).unwrap();
    captured(&capture);
}
