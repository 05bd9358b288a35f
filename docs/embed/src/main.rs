//! A program with a stack of its own: it answers datagrams at 10.9.0.2, port 7, over a TAP device
//! whose other end is Linux at 10.9.0.1.
//!
//! The program names the protocols that it links, beside the graph that they make. A graph that
//! names another one is a mistake, told when the stack is made; the whole list, which `xk` has, is
//! `xk_catalog::PROTOCOLS`.
//!
//! `cargo build -p xk-embed && sudo target/debug/xk-embed`, then
//! `echo hello | nc -u -w 1 10.9.0.2 7`

use std::io;
use xk_net::{Entry, Stack, UdpSocket};

const PROTOCOLS: &[&Entry] = &[
    &xk_tap::ENTRY,
    &xk_eth::ENTRY,
    &xk_arp::ENTRY,
    &xk_ip::ENTRY,
    &xk_icmp::ENTRY,
    &xk_udp::ENTRY,
];

const GRAPH: &str = r#"
host embedded {
    tap device=xk0 host_address="10.9.0.1/24"
    eth tap
    arp eth
    ip arp { address "10.9.0.2/24"; }
    icmp ip
    udp ip
}
"#;

/// Sends back the next datagram; how many octets it had.
fn answer(socket: &UdpSocket) -> io::Result<usize> {
    let mut buffer = [0; 65_507];
    let (octets, from) = socket.recv_from(&mut buffer)?;
    socket.send_to(&buffer[..octets], from)
}

fn main() -> io::Result<()> {
    let stack = Stack::from_text(GRAPH, PROTOCOLS)?;
    let socket = UdpSocket::bind(&stack, "10.9.0.2:7")?;
    loop {
        let octets = answer(&socket)?;
        println!("{octets} octets answered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use xk_testkit::needs_root;
    use xk_testkit::netns::Net;

    const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

    #[test]
    fn linux_is_answered() {
        needs_root!("ip");
        let net = Net::new("embed").expect("a namespace");
        let work = || {
            let stack = Stack::from_text(GRAPH, PROTOCOLS).expect("a stack");
            let socket = UdpSocket::bind(&stack, "10.9.0.2:7").expect("a socket");
            socket.set_read_timeout(Some(ANSWER_TIME_MAX)).expect("a timeout");
            let linux = std::thread::spawn(|| {
                let linux = std::net::UdpSocket::bind("10.9.0.1:0")?;
                linux.set_read_timeout(Some(ANSWER_TIME_MAX))?;
                linux.send_to(b"hello", "10.9.0.2:7")?;
                let mut buffer = [0; 16];
                let (octets, from) = linux.recv_from(&mut buffer)?;
                io::Result::Ok((buffer[..octets].to_vec(), from.to_string()))
            });
            assert_eq!(answer(&socket).expect("a datagram"), 5);
            // The answer is on its way; the loop turns while the other end hears it.
            stack.run_for(Duration::from_millis(50)).expect("a loop");
            let heard = linux.join().expect("a thread").expect("an answer");
            assert_eq!(heard, (b"hello".to_vec(), "10.9.0.2:7".to_owned()));
        };
        net.space().expect("a namespace").enter(work).expect("to be inside");
    }

    #[test]
    fn a_protocol_that_is_not_linked_is_a_mistake() {
        let error = Stack::from_text("host a { loopback }", PROTOCOLS).err().expect("a mistake");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("`loopback`"), "{error}");
        let linked = Stack::from_text("host a { eth nothing }\nlink lan\n", PROTOCOLS);
        let error = linked.err().expect("a mistake").to_string();
        assert!(error.contains("no wire for links"), "{error}");
        let twice = Stack::from_text(GRAPH, &[&xk_udp::ENTRY, &xk_udp::ENTRY]).err();
        let error = twice.expect("a mistake").to_string();
        assert_eq!(error, "two entries of the catalog have the kind `udp`");
    }
}
