//! Connections whose SYN carries data (RFC 7413), opened by Linux and by us, with cookies of the
//! other.

use std::io::{Read, Write};
use std::net::Shutdown;

use xk_kit::net::stream::StreamInfo;
use xk_net::{Stack, TcpListener, TcpStream, Thread};
use xk_peers::testbed::{LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::needs_root;

use crate::ends::{capture, graph, part_from, start};

/// SYNs with data, of either side.
const WITH_DATA: &str = "tcp.flags.syn == 1 && tcp.len > 0";
/// SYNs and their answers with a cookie.
const WITH_COOKIE: &str = "tcp.flags.syn == 1 && tcp.options.tfo.cookie";
/// Connections of one test.
const COUNT: usize = 4;

/// Opens connections one after the other with data in the SYN where it has a cookie, and tells of
/// each what came back and whether its data were taken then (`TCPI_OPT_SYN_DATA` of `tcp_info`).
const CLIENT: &str = r"
import socket, sys
for n in range(int(sys.argv[3])):
    one = socket.socket()
    one.sendto(b'question %d' % n, 0x20000000, (sys.argv[1], int(sys.argv[2])))
    one.settimeout(20)
    one.shutdown(socket.SHUT_WR)
    answer = b''
    while piece := one.recv(1000): answer += piece
    assert answer == b'question %d' % n, answer
    print(1 if one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)[5] & 32 else 0, end=' ')
    one.close()
";

/// Sends back what comes, one connection after the other; with so many that may be pending.
const SERVER: &str = r"
import socket, sys
server = socket.create_server((sys.argv[1], 5007))
if int(sys.argv[2]): server.setsockopt(socket.IPPROTO_TCP, 23, int(sys.argv[2]))
print('listening', flush=True)
while True:
    one, _ = server.accept()
    one.settimeout(20)
    while piece := one.recv(1000): one.sendall(piece)
    one.close()
";

/// Answers `COUNT` connections of Linux's; gives how each stood.
fn serve(listener: &TcpListener<Thread>) -> Vec<StreamInfo> {
    let answer = |_| {
        let (mut one, _) = listener.accept().unwrap();
        one.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
        let mut question = Vec::new();
        one.read_to_end(&mut question).unwrap();
        let info = one.info().unwrap();
        one.write_all(&question).unwrap();
        info
    };
    (0..COUNT).map(answer).collect()
}

fn fast(told: &[StreamInfo]) -> Vec<bool> {
    told.iter().map(|info| info.fast_open).collect()
}

/// Asks Linux's server `COUNT` times; gives how each connection stood.
fn ask(stack: &Stack<Thread>) -> Vec<StreamInfo> {
    let ask = |n| {
        let mut one = TcpStream::connect(stack, (LINUX, 5007)).unwrap();
        one.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
        let question = format!("question {n}");
        one.write_all(question.as_bytes()).unwrap();
        let mut answer = vec![0; question.len()];
        one.read_exact(&mut answer).unwrap();
        assert_eq!(answer, question.as_bytes());
        let info = one.info().unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(one.read(&mut [0]).unwrap(), 0);
        info
    };
    (0..COUNT).map(ask).collect()
}

/// Linux as the client: the first connection asks for a cookie, the others bring their question
/// with the SYN; of a listener that wants none each does without.
pub(crate) fn linux_opens(wire: Wire) {
    needs_root!("ip", "python3", "tshark");
    let lan = Lan::new("linux_opens_fast", wire);
    lan.linux.sysctl("net/ipv4/tcp_fastopen", "1").unwrap();
    let captured = capture(&lan, "wire");
    let stack = start(&lan, &graph(&lan, (&captured, "pcap"), "", ""));
    for (most, expected) in [(0, [false; COUNT]), (16, [false, true, true, true])] {
        let listener = TcpListener::bind(&stack, (OURS, 0)).unwrap();
        listener.set_fast_open_max(most).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let count = COUNT.to_string();
        let (said, told) = std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&listener));
            let said = lan.linux.exec(&["python3", "-B", "-c", CLIENT, OURS, &port, &count]);
            (said.unwrap(), serving.join().expect("no panic"))
        });
        let linux: Vec<bool> = said.split_whitespace().map(|word| word == "1").collect();
        assert_eq!((linux, fast(&told)), (expected.to_vec(), expected.to_vec()), "{said}");
    }
    part_from(stack);
    lan.testbed.judge(&[]);
    assert_eq!(lan.testbed.count("ours.pcapng", WITH_DATA), COUNT - 1);
    assert_eq!(lan.testbed.count("ours.pcapng", WITH_COOKIE), COUNT);
}

/// Linux as the server, likewise.
pub(crate) fn linux_answers(wire: Wire) {
    needs_root!("ip", "python3", "tshark");
    for (at, (most, expected)) in
        [("0", [false; COUNT]), ("16", [false, true, true, true])].into_iter().enumerate()
    {
        let lan = Lan::new(&format!("linux_answers_fast-{at}"), wire);
        lan.linux.sysctl("net/ipv4/tcp_fastopen", "3").unwrap();
        let captured = capture(&lan, "wire");
        let stack = start(&lan, &graph(&lan, (&captured, "pcap"), "fast_open=#true", ""));
        let server = lan.linux.spawn(&["python3", "-B", "-c", SERVER, LINUX, most]).unwrap();
        server.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
        assert_eq!(fast(&ask(&stack)), expected);
        part_from(stack);
        lan.testbed.judge(&[]);
        let with_data = expected.iter().filter(|is_fast| **is_fast).count();
        assert_eq!(lan.testbed.count("ours.pcapng", WITH_DATA), with_data);
    }
}
