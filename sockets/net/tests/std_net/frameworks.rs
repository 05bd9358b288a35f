//! Datagrams on UDP of other frameworks, by a line of the x-kernel's on it: the adapter below that
//! is theirs.

use crate::STEP_TIME_MAX;
use std::net::Ipv4Addr;
use xk_net::{Here, Setup, Stack, UdpSocket};

/// A host with UDP of a framework on the x-kernel's IP.
fn host(framework: &str) -> String {
    format!(
        "host alone {{
            loopback
            ip loopback {{ address \"10.0.0.1/24\"; }}
            subsystem {framework} {{ udp ip; }}
            tracer udp name=datagrams
        }}"
    )
}

fn stack(text: &str) -> Stack<Here> {
    Setup::from_text(text, xk_catalog::PROTOCOLS).udp("datagrams").here().unwrap()
}

#[test]
fn datagrams_stand_on_udp_of_another_framework() {
    for framework in ["bsd", "streams"] {
        let text = host(framework);
        let stack = stack(&text);
        let server = UdpSocket::bind(&stack, "0.0.0.0:2005").unwrap();
        let client = UdpSocket::bind(&stack, "0.0.0.0:0").unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        }
        let mut buffer = [0; 2048];
        for n in [0_usize, 1, 100, 1400] {
            let octets = vec![n as u8; n];
            client
                .send_to(&octets, "10.0.0.1:2005")
                .unwrap_or_else(|error| panic!("{framework}: {error}"));
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(
                (&buffer[..len], from.ip()),
                (&octets[..], Ipv4Addr::new(10, 0, 0, 1).into())
            );
            server.send_to(&octets, from).unwrap();
            let (len, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!((len, from.port()), (n, 2005));
        }
    }
}
