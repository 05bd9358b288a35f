//! Worlds of graph files: a router between two links.

use crate::echo::serve;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::Duration;
use xk_world::{PROTOCOLS, World, blocking};

/// A server and a client on two links, and a router between them that can crash.
const ROUTED: &str = r#"
link near delay="1ms"
link far delay="20ms" loss="5%"
host server {
    sim link=far; eth sim; arp eth
    ip arp { address "10.0.2.1/24"; route default via="10.0.2.254"; }
    icmp ip; udp ip; tcp ip
}
host client {
    sim link=near; eth sim; arp eth
    ip arp { address "10.0.1.1/24"; route default via="10.0.1.254"; }
    icmp ip; udp ip; tcp ip
}
host router {
    sim link=near name=sim1; eth sim1 name=eth1; arp eth1 name=arp1
    sim link=far name=sim2; eth sim2 name=eth2; arp eth2 name=arp2
    ip arp1 arp2 forward=#true {
        address "10.0.1.254/24" on=arp1
        address "10.0.2.254/24" on=arp2
    }
    icmp ip
}
"#;

#[test]
fn a_stream_outlives_its_router() {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/routed.kdl");
    std::fs::write(path, ROUTED).unwrap();
    xk_world::seeds(0..3, |seed| {
        let mut world = World::from_file(seed, path, PROTOCOLS)?;
        assert_eq!(world.address("server"), Some(IpAddr::from([10, 0, 2, 1])));
        assert_eq!(world.address("router"), None, "it has no sockets");
        let refused = world.host("router", serve).unwrap_err().to_string();
        assert_eq!(refused, "host `router` has neither one `tcp` nor one `udp`");
        world.host("server", serve)?;
        world.blocking_client("client", |stack| {
            let mut stream = blocking::TcpStream::connect(&stack, "server:7")?;
            for n in 0..20 {
                let (sent, mut back) = ([n; 1000], [0; 1000]);
                stream.write_all(&sent)?;
                stream.read_exact(&mut back)?;
                assert_eq!(sent, back);
                stack.sleep(Duration::from_millis(100))?;
            }
            assert!(stack.now().as_ms() > 5000, "it has waited for the router");
            Ok(())
        })?;
        world.run_for(Duration::from_secs(1))?;
        world.crash("router")?;
        world.run_for(Duration::from_secs(4))?;
        world.restart("router")?;
        world.run(Duration::from_secs(600))
    });
}
