//! A graph calls the C server, and asks the system's rpcbind.

use xk_peers::stack::Stack;
use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Testbed, Wire, end};
use xk_portmap::Mappings;
use xk_testkit::netns::Space;
use xk_xdr::{Opaque, Text};

use super::trial::{End, HostEnd, call, gather, octets};
use super::{TRIAL, beside, needs_rpc, program, rpcbind, serve, trial};

const PORT: u16 = 2049;

/// ONC RPC on `tcp`, and on `udp` with credentials.
const FURTHER: &str = "tcp ip\nrm tcp\nreqrep rm name=reqrep-tcp\nsunselect reqrep-tcp name=sunselect-tcp\n\
    sunprog sunselect-tcp name=sunprog-tcp\nauthsys sunselect machine=\"xk\" user=1000 group=100\n\
    sunprog authsys name=sunprog-sys\n";

/// ONC RPC on `udp`, without credentials.
const LAYERS: &str = "reqrep udp\nsunselect reqrep\nsunprog sunselect\n";

fn at(port: u16, version: u32, procedure: u32) -> String {
    format!("procedure{procedure}@version{version}@program{TRIAL}@port{port}@{LINUX}")
}

fn refused(end: End) -> String {
    end.expect_err("a refusal")
}

pub(crate) fn calls_c_programs(wire: Wire) {
    needs_rpc!();
    let lan = Lan::new("rpc-client", wire);
    let stack = lan.start("", &[LAYERS, FURTHER].concat());
    let server = serve(&lan.linux, PORT);
    let ask = |version, procedure, arguments: Vec<u8>| {
        call(&stack, "sunprog", at(PORT, version, procedure), arguments)
    };
    assert_eq!(ask(1, 0, Vec::new()), Ok(Vec::new()));
    for size in [0, 1, 1400, 8192] {
        let sent: Opaque<8192> = (0..size).map(|at| at as u8).collect::<Vec<_>>().into();
        assert_eq!(ask(1, 1, octets(&sent)), Ok(octets(&sent)), "{size}");
    }
    assert_eq!(ask(1, 2, octets(&[2, -5])), Ok(octets(&-3)));
    assert_eq!(ask(2, 2, octets(&[2, -5])), Ok(octets(&-3)));
    let text = |text: &str| octets(&Text::<255>::from(text));
    assert_eq!(ask(1, 3, text("hello")), Ok(text("HELLO")));
    let large: Opaque<8192> = vec![7; 8192].into();
    for (procedure, arguments, results) in [
        (0, Vec::new(), Vec::new()),
        (1, octets(&large), octets(&large)),
        (2, octets(&[2, -5]), octets(&-3)),
    ] {
        let over_tcp = call(&stack, "sunprog-tcp", at(PORT, 1, procedure), arguments);
        assert_eq!(over_tcp, Ok(results), "procedure {procedure} over TCP");
    }
    let who = call(&stack, "sunprog-sys", at(PORT, 1, 4), Vec::new());
    assert_eq!(who, Ok(octets(&[1, 1000, 100])));
    // The refusals.
    let other = format!("procedure1@version1@program536871245@port{PORT}@{LINUX}");
    assert_eq!(
        refused(call(&stack, "sunprog", other, Vec::new())),
        "sunprog: the peer refused the call: no such program"
    );
    assert_eq!(
        refused(ask(9, 0, Vec::new())),
        "sunprog: the peer refused the call: no such version (it has versions 1 to 2)"
    );
    assert_eq!(
        refused(ask(1, 99, Vec::new())),
        "sunprog: the peer refused the call: no such procedure"
    );
    assert_eq!(
        refused(ask(1, 1, octets(&u32::MAX))),
        "sunprog: the peer refused the call: garbage arguments"
    );
    assert_eq!(
        refused(ask(1, 4, Vec::new())),
        "sunselect: the peer refused the call: credentials too weak"
    );
    let nobody = call(&stack, "sunprog", at(PORT + 1, 1, 0), Vec::new());
    assert_eq!(refused(nobody), "reqrep: nobody takes calls there: the port is unreachable");
    let _status = end(&server);
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(&[("Connection reset", "a server that ends")]);
}

/// Without a port, rpcbind is asked for it, in every version; and again after the server has moved.
pub(crate) fn learns_ports_of_rpcbind(wire: Wire) {
    needs_rpc!("rpcbind", "rpcinfo");
    let lan = Lan::new("rpc-bind", wire);
    lan.linux.up("lo").unwrap();
    let layers = [2, 3, 4]
        .map(|v| format!("portmap sunprog name=portmap{v} serve=#false version=\"{v}\"\n"));
    let stack = lan.start("", &format!("{LAYERS}{}", layers.concat()));
    let binder = rpcbind(&lan.linux, "");
    let id = binder.id().to_string();
    let path = program("server");
    for _ in 0..2 {
        let server = lan.linux.spawn(&beside(&id, &[&path, "0", "register"])).unwrap();
        server.wait_for("ready", PROGRAM_TIME_MAX).unwrap();
        for layer in ["portmap2", "portmap3", "portmap4"] {
            let sum = call(&stack, layer, at(0, 1, 2), octets(&[2, -5]));
            assert_eq!(sum, Ok(octets(&-3)), "{layer}");
        }
        let _status = end(&server);
    }
    // It was not unregistered; what was never registered is another matter.
    let other = format!("procedure1@version1@program536871245@port0@{LINUX}");
    for layer in ["portmap2", "portmap3", "portmap4"] {
        assert_eq!(
            refused(call(&stack, layer, other.clone(), Vec::new())),
            format!("{layer}: the peer refused the call: no such program")
        );
    }
    let _status = end(&binder);
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(&[]);
}

/// All hosts of a link are called at once: their rpcbinds themselves, and by way of those a program
/// that each has at another port.
pub(crate) fn finds_servers_by_broadcast(_: Wire) {
    needs_rpc!("rpcbind", "rpcinfo");
    let testbed = Testbed::new("rpc-many");
    let (hub, ours) = (testbed.linux(), testbed.linux());
    hub.ip(&["link", "add", "hub", "type", "bridge"]).unwrap();
    hub.up("hub").unwrap();
    let join = |space: &Space, device: &str, at: &str| {
        testbed.net.veth(&hub, at, space, device).unwrap();
        hub.ip(&["link", "set", at, "master", "hub"]).unwrap();
        space.offload_off(device).unwrap();
    };
    join(&ours, "x0", "port0");
    let servers = ["10.9.0.1", "10.9.0.3"].map(|host| {
        let space = testbed.linux();
        join(&space, DEVICE, &format!("port{}", &host[7..]));
        space.address(DEVICE, &format!("{host}/24")).unwrap();
        space.up("lo").unwrap();
        // On behalf of others it calls only if it is told to.
        let binder = rpcbind(&space, "-r");
        let id = binder.id().to_string();
        let path = program("server");
        let server = space.spawn(&beside(&id, &[&path, "0", "register"]));
        let server = server.unwrap();
        server.wait_for("ready", PROGRAM_TIME_MAX).unwrap();
        (host, binder, server)
    });
    let layers = [2, 3, 4]
        .map(|v| format!("portmap sunprog name=portmap{v} serve=#false version=\"{v}\"\n"));
    let file = testbed.capture_file("ours");
    let stack = Stack::start(
        &ours,
        &format!(
            "host xk {{\npacket device=x0 offload=#false\npcap packet file=\"{}\"\neth pcap\narp eth\n\
             ip arp {{ address \"{OURS}/24\"; }}\nicmp ip\nudp ip\n{LAYERS}{}}}\n",
            file.display(),
            layers.concat()
        ),
    );
    let hosts = |replies: &[HostEnd]| -> Vec<String> {
        let all = replies.iter();
        all.map(|(peer, _)| peer.host.to_string()).collect()
    };
    let meant = servers.each_ref().map(|(host, ..)| *host);
    let null = "procedure0@version2@program100000@port111@10.9.0.255";
    let there = gather(&stack, "sunprog", (null.into(), Vec::new()), 2);
    assert_eq!(hosts(&there), meant);
    for layer in ["portmap2", "portmap3", "portmap4"] {
        let add = format!("procedure2@version1@program{TRIAL}@port0@10.9.0.255");
        let sums = gather(&stack, layer, (add, octets(&[2, -5])), 2);
        assert_eq!(hosts(&sums), meant, "{layer}");
        for ((peer, sum), (_, _, server)) in sums.iter().zip(&servers) {
            assert_eq!(*sum, octets(&-3), "{layer}");
            let ready = format!("ready {} ", peer.port);
            assert!(server.output().contains(&ready), "{layer}: {peer:?}");
        }
    }
    stack.assert_drops_only(&["reqrep: no such call", "reqrep: repeated reply"]);
    drop(stack);
    testbed.judge(&[]);
    let asked = testbed.count("ours.pcapng", "portmap && rpc.msgtyp == 0 && ip.dst == 10.9.0.255");
    // What others have executed rpcbind sends from a port of its own, which is not taken for ONC
    // RPC here.
    let answered = testbed.count("ours.pcapng", "udp && ip.dst == 10.9.0.2");
    assert!(asked >= 4 && answered >= 8, "{asked} {answered}");
    for (_, binder, server) in &servers {
        let _status = (end(server), end(binder));
    }
}

/// Programs served by xk are registered with rpcbind, which takes registrations from other hosts
/// only if it is told to.
pub(crate) fn is_registered_with_rpcbind(wire: Wire) {
    needs_rpc!("rpcbind", "rpcinfo");
    let lan = Lan::new("rpc-register", wire);
    lan.linux.up("lo").unwrap();
    for (version, is_open) in [(2, true), (4, true), (3, false)] {
        let layer =
            format!("portmap sunprog serve=#false register=\"{LINUX}\" version=\"{version}\"\n");
        let binder = rpcbind(&lan.linux, if is_open { "-i" } else { "" });
        let stack = lan.start("", &format!("{LAYERS}{layer}"));
        trial::serve(&stack, "portmap", PORT);
        let done = wait_for(&stack, |m| m.accepted + m.refused == 2);
        let told = (done.accepted, done.refused);
        let said = lan.linux.exec(&["rpcinfo", "-p", "127.0.0.1"]).unwrap();
        assert_eq!(said.contains(TRIAL), is_open, "{said}");
        assert_eq!(told, if is_open { (2, 0) } else { (0, 2) });
        drop(stack);
        let _status = end(&binder);
    }
    lan.testbed.judge(&[]);
}

fn wait_for(stack: &Stack, is_done: impl Fn(&Mappings) -> bool) -> Mappings {
    let begun = std::time::Instant::now();
    loop {
        let mappings = stack.ask("portmap", Mappings::default());
        if is_done(&mappings) {
            return mappings;
        }
        assert!(begun.elapsed() < PROGRAM_TIME_MAX, "{mappings:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
