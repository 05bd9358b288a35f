//! Hosts of all AppleTalk under attack: forged nodes say again what honest ones have said, and send
//! frames of all protocols, right ones and damaged ones. Nodes that asked before and those that
//! come while it lasts are served, and what strangers have the host keep is given back.

use crate::strangers::{client_times, drops, figure};
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::random::Random;
use xk_core::reason::Class;
use xk_sim::World;
use xk_testkit::kernel::{Bottom, Lower, TestKernel};

const SEED: u64 = 20_261_126;
/// Frames of one attack, and a second.
const FRAMES: u64 = 10_000;
const RATE: u64 = 10_000;

/// A client without its name, times and counts, and what it stands on.
const CLIENTS: &[(&str, &str)] = &[
    ("aep", r#"probe aep to="node18@net1" timeout="1s""#),
    ("atp", r#"caller atp to="socket140@node18@net1" size=45"#),
    ("asp", r#"caller asp to="socket129@node18@net1" size=45"#),
];

/// The lines of a host up to ATP and ASP.
/// One that comes while the table of requests is full is served when release timers have run out.
const LAYERS: &str = "atp ddp tries=30\n asp atp tries=30\n nbp ddp zip";

fn client_host(name: &str, node: u8, (start, end): (u64, u64)) -> String {
    let times = client_times(50, (start, end));
    let clients: String = CLIENTS
        .iter()
        .map(|(layer, asks)| format!("    {asks} name={name}-{layer} {times}\n"))
        .collect();
    format!(
        "host {name} {{\n sim link=lan\n eth sim\n aarp eth\n \
         ddp aarp net=\"1-65000\" node={node} zone=\"Here\"\n rtmp ddp\n zip ddp atp\n {}\n aep ddp\n\
         {clients}    print atp nbp name={name}-print entity=\"=:LaserWriter@*\" start=\"{start}ms\" \
         size=\"4KiB\"\n}}\n",
        LAYERS.replace("nbp ddp zip", "nbp ddp")
    )
}

/// A router with all of it, a client of before and one of meanwhile, and an attacker.
fn world((kind, sources): (&str, &str), begins: u64, ends: u64) -> String {
    format!(
        r#"
host victim {{
    sim link=lan name=sim1 address="02:00:00:00:00:01"
    sim link=behind name=sim2
    eth sim1 name=eth1
    eth sim2 name=eth2
    aarp eth1 name=aarp1
    aarp eth2 name=aarp2
    ddp aarp1 aarp2 {{
        port net="1-65000" node=18 zone="Here"
        port net="65001-65010" node=1 zone="Behind"
    }}
    rtmp ddp
    zip ddp atp
    {LAYERS}
    aep ddp
    procedures atp at=socket140 procedure=1
    procedures asp name=commands
    printer atp nbp
}}
{}{}
host attacker {{
    sim link=lan
    noise sim to="10.0.0.1" ether="02:00:00:00:00:01" node="1.18" port=140 sources="{sources}" kind={kind} rate={RATE} count={FRAMES} start="{begins}ms" seed={SEED}
}}
link lan kind=hub delay="50us" rate="1Gbit" queue=1000
link behind delay="50us"
"#,
        client_host("old", 17, (5000, ends + 1000)),
        client_host("new", 19, (ends - 300, ends + 1000)),
    )
}

/// Descriptors and buffers of a host's pool that are in use.
fn live(world: &World, host: &str) -> (u32, u32) {
    let kernel = world.find(host).and_then(|id| world.kernel(id)).expect("a kernel");
    let stats = kernel.pool().stats();
    (stats.descriptors_live, stats.buffers_live)
}

/// Attacks from these sources; answers what the victim has dropped.
fn serves(kind: &str, sources: &str) -> Vec<(String, &'static str, Class, u64)> {
    let what = format!("AppleTalk under {kind} from {sources}, seed {SEED}");
    let begins = 7000;
    let ends = begins + FRAMES * 1000 / RATE;
    let source = world((kind, sources), begins, ends);
    let checked = check(&source, kind, &xk_catalog::standard());
    let checked = checked.unwrap_or_else(|mistakes| panic!("{what}: {mistakes}"));
    let config = SimulationConfig { seed: SEED, ..SimulationConfig::default() };
    let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{what}: {e}"));
    start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{what}: {e}"));
    world.run_until(Time::from_ms(begins));
    let before = live(&world, "victim");
    world.run_until(Time::from_ms(ends + 60_000));
    let dropped = drops(&world, "victim");
    println!("{what}: {dropped:?}");
    let sent = figure(&world, "attacker", "noise", "sent");
    assert_eq!(sent, Some(FRAMES), "{what}: not all frames were sent");
    for host in ["old", "new"] {
        for (layer, _) in CLIENTS {
            let of = |line| figure(&world, host, &format!("{host}-{layer}"), line);
            let asked = of("sent").or(of("calls")).unwrap_or(0);
            let answered = of("received").or(of("replies")).unwrap_or(0);
            assert!(
                asked > 9 && asked == answered,
                "{what}: of {asked} of the {host} client's on {layer}, {answered} were answered"
            );
        }
        let printed = figure(&world, host, &format!("{host}-print"), "printed");
        assert_eq!(printed, Some(1), "{what}: {host} prints");
    }
    // Release timers have run out, and nothing waits for nodes that are not there.
    world.run_until(Time::from_ms(ends + 700_000));
    let after = live(&world, "victim");
    assert!(after.0 <= before.0 + 64 && after.1 <= before.1 + 64, "{what}: {before:?}, {after:?}");
    world.stop();
    dropped
}

#[test]
fn forged_nodes_repeat_what_honest_ones_say() {
    serves("replays", "11.0.0.0/8");
}

#[test]
fn frames_of_all_protocols_of_appletalk() {
    serves("appletalk", "11.0.0.0/8");
}

/// A node that asks without end is answered up to a limit.
#[test]
fn a_node_that_asks_without_end() {
    let dropped = serves("appletalk", "11.1.2.0/30");
    for protocol in ["nbp", "rtmp"] {
        let limited =
            dropped.iter().find(|(name, why, ..)| name == protocol && *why == "rate limited");
        assert!(limited.is_some_and(|(.., count)| *count > 50), "{protocol}: {dropped:?}");
    }
}

/// LocalTalk has no Ethernet below that the attacker could send on: frames are put in by hand.
#[test]
fn frames_of_localtalk() {
    let cx = TestKernel::new(SEED);
    let wire = Bottom::add(&cx, "wire", Lower::link(603));
    let mut lower = wire.protocol().clone();
    for (kind, number) in [("llap", 0), ("ddp", 2), ("aep", 4), ("atp", 3)] {
        let entry = xk_catalog::PROTOCOLS.iter().find(|entry| entry.kind == kind).expect(kind);
        let on = if kind == "atp" { cx.find_protocol("ddp").expect("ddp") } else { lower.clone() };
        let on = [on];
        lower = entry.add(&cx, kind, &on, &Default::default()).expect(kind);
        cx.numbers_mut().override_pair(lower.id(), on[0].id(), number);
    }
    cx.start().expect("it starts");
    cx.advance(core::time::Duration::from_secs(10));
    let before = cx.live();
    let random = Random::new(SEED);
    // An echo request of node 42 to all nodes, with the short header; then anything like it.
    let honest = [0xff, 42, 1, 0, 10, 4, 129, 4, 1, b'p', b'i', b'n', b'g'];
    for _ in 0..20_000 {
        let mut frame = honest.to_vec();
        frame[0] = random.next_u32() as u8;
        frame[1] = random.next_u32() as u8;
        frame[2] = [1, 1, 2, 0x81, 0x82, random.next_u32() as u8][random.below(6) as usize];
        for _ in 0..random.below(4) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.next_u32() as u8;
        }
        frame.truncate(random.below(16) as usize);
        wire.inject(&cx, None, cx.message(&frame));
        drop(wire.take_sent());
    }
    cx.advance(core::time::Duration::from_secs(700));
    drop(wire.take_sent());
    let after = cx.live();
    assert!(after.0 <= before.0 + 64 && after.1 <= before.1 + 64, "{before:?}, {after:?}");
    // It still claims and answers.
    wire.inject(&cx, None, cx.message(&honest));
    let sent = wire.take_sent();
    assert!(!sent.is_empty(), "an echo request is answered");
    cx.stop();
}
