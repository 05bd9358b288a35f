//! LocalTalk in datagrams of UDP (LToUDP), with tailtalk-core. That is under the GPL, so it is no
//! dependency of ours: a program with it is built below `target` and is a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use xk_kit::net::appletalk::DdpCable;
use xk_peers::stack::Stack;
use xk_peers::testbed::{DEVICE, PROGRAM_TIME_MAX, Testbed, Wire, end};
use xk_testkit::netns::{Running, Space};
use xk_testkit::{await_that, needs_root, tshark};

/// Group to which LToUDP sends.
const GROUP: &str = "239.192.76.84";

/// The program, made once per run, or why it cannot be made.
fn program() -> &'static Result<PathBuf, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Testbed::scratch("localtalk-program");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/localtalk");
        let copied = std::fs::create_dir(folder.join("src")).and_then(|()| {
            std::fs::copy(sources.join("manifest.toml"), folder.join("Cargo.toml"))?;
            std::fs::copy(sources.join("main.rs"), folder.join("src/main.rs"))
        });
        copied.map_err(|error| error.to_string())?;
        // Not below the captures, which go: it is built once.
        let target = folder.ancestors().nth(3).unwrap_or(&folder).join("localtalk");
        let mut cargo = Command::new("timeout");
        cargo.args(["300", "cargo", "build", "--quiet"]).current_dir(&folder);
        let output = cargo.env("CARGO_TARGET_DIR", &target).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_made = output.status.success();
        is_made.then(|| target.join("debug/localtalk")).ok_or(said)
    })
}

/// Skips the test unless the program can be made.
macro_rules! needs_localtalk {
    () => {
        needs_root!("ip", "tcpdump", "tshark", "editcap", "cargo");
        if let Err(why) = program() {
            let line = why.lines().find(|line| line.starts_with("error")).unwrap_or("no cargo");
            xk_testkit::needs::skip(&format!("needs tailtalk-core of the registry: {line}"));
            return;
        }
    };
}

/// A node of tailtalk-core.
struct Node {
    running: Running,
    number: u8,
}

impl Node {
    /// Starts it, and waits until it has claimed a number.
    fn start(space: &Space, arguments: &[&str]) -> Self {
        let path = program().as_ref().expect("the program").display().to_string();
        let running = space.spawn(&[&[path.as_str()], arguments].concat()).unwrap();
        running.wait_for("node ", PROGRAM_TIME_MAX).unwrap();
        let said = running.output();
        let number = said.split_once("node ").and_then(|(_, rest)| rest.lines().next());
        let number = number.and_then(|number| number.trim().parse().ok()).expect("a number");
        Self { running, number }
    }

    /// Gives it a command, again and again (a datagram may be lost), until it has printed `answer`.
    fn ask(&self, command: &str, answer: &str) {
        let begun = Instant::now();
        loop {
            self.running.write(format!("{command}\n").as_bytes()).unwrap();
            match self.running.wait_for(answer, Duration::from_secs(2)) {
                Ok(()) => break,
                Err(error) => assert!(begun.elapsed() < PROGRAM_TIME_MAX, "{error}"),
            }
        }
    }
}

/// Two namespaces with a link between them, over which datagrams for the group go.
fn join(test: &str) -> (Testbed, [Space; 2]) {
    let testbed = Testbed::new(test);
    let spaces = [(); 2].map(|()| testbed.linux());
    testbed.net.veth(&spaces[0], DEVICE, &spaces[1], DEVICE).unwrap();
    for (number, space) in (1..).zip(&spaces) {
        space.address(DEVICE, &format!("10.9.0.{number}/24")).unwrap();
        space.offload_off(DEVICE).unwrap();
        space.ip(&["route", "add", &format!("{GROUP}/32"), "dev", DEVICE]).unwrap();
    }
    testbed.capture(&spaces[0], DEVICE, "linux");
    (testbed, spaces)
}

/// Lets `tshark` judge the captured LocalTalk, which it does not look for in UDP.
fn judge(testbed: &Testbed) {
    let (outer, inner) = (testbed.folder().join("linux.pcap"), testbed.folder().join("llap.pcap"));
    let only = testbed.folder().join("udp.pcap");
    let run = |command: &mut Command| assert!(command.output().unwrap().status.success());
    run(tshark::reader(&outer).args(["-Y", "udp.port == 1954", "-F", "pcap", "-w"]).arg(&only));
    // Headers of Ethernet, IP and UDP, and the sender's four octets.
    let mut chop = Command::new("editcap");
    run(chop.args(["-F", "pcap", "-T", "ltalk", "-C", "46", "-L"]).args([&only, &inner]));
    let report = tshark::check(&inner, &[]).unwrap();
    assert!(report.frames > 0 && report.is_clean(), "{report}");
}

pub(crate) fn programs_understand_each_other(_: Wire) {
    needs_localtalk!();
    let (testbed, [left, right]) = join("localtalk-system");
    let printer = Node::start(&left, &["1", "laser:LaserWriter@*", "130"]);
    let other = Node::start(&right, &["2"]);
    assert_ne!(printer.number, other.number);
    other.ask("find =:LaserWriter@*", &format!("found {} 130", printer.number));
    other.ask(
        &format!("echo {} hello", printer.number),
        &format!("echoed {} hello", printer.number),
    );
    // One that wants the number of another has to take the next.
    let _status = end(&other.running);
    assert_ne!(Node::start(&right, &["1"]).number, printer.number);
    let _status = end(&printer.running);
    testbed.judge(&[]);
    judge(&testbed);
}

/// Our node on the cable, in `space`, which is `10.9.0.2`; `ddp` are parameters, and `uppers` lines
/// above.
fn graph(space: &Space, ddp: &str, uppers: &str) -> Stack {
    let source = format!(
        "host xk {{\nltoudp interface=\"10.9.0.2\"\nllap ltoudp\nddp llap net=\"10\" {ddp}\naep ddp\n\
         {uppers}\n}}\n"
    );
    Stack::start(space, &source)
}

/// Claims a number beside it, and defends it; echoes both ways.
pub(crate) fn a_graph_is_a_node(_: Wire) {
    needs_localtalk!();
    let (testbed, [left, right]) = join("localtalk-graph");
    let first = Node::start(&left, &["1"]);
    // Its number, which it defends.
    let stack = graph(&right, &format!("node={}", first.number), "");
    std::thread::sleep(Duration::from_secs(3));
    assert!(!stack.ask("ddp", DdpCable::default()).is_ready);
    drop(stack);
    // tshark takes shorter ones for malformed: it looks for as many octets as the long header has.
    let sizes = [16, 100, 585];
    let probes: String = sizes
        .iter()
        .map(|size| {
            format!(
                "probe aep name=probe{size} to=\"node{}@net10\" start=\"3s\" count=5 \
                 interval=\"50ms\" timeout=\"10s\" size={size}\n",
                first.number
            )
        })
        .collect();
    let stack = graph(&right, "", &probes);
    for report in stack.finish(PROGRAM_TIME_MAX) {
        assert_eq!(report.figure("received"), 5, "{report:?}");
    }
    let known = stack.ask("ddp", DdpCable::default());
    assert!(known.is_ready && known.node != first.number, "{known:?}");
    first.ask(&format!("echo {} hello", known.node), &format!("echoed {} hello", known.node));
    stack.assert_drops_only(&["llap: not mine"]);
    drop(stack);
    // It comes again, and wants the number that is ours now.
    let _status = end(&first.running);
    let stack = graph(&right, &format!("node={}", first.number), "");
    await_that!(
        PROGRAM_TIME_MAX,
        stack.ask("ddp", DdpCable::default()).is_ready,
        "it takes too long"
    );
    let second = Node::start(&left, &["1"]);
    assert_ne!(second.number, first.number);
    let ours = first.number;
    second.ask(&format!("echo {ours} again"), &format!("echoed {ours} again"));
    stack.assert_drops_only(&["llap: not mine"]);
    drop(stack);
    testbed.judge(&[]);
    judge(&testbed);
}
