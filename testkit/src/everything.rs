//! A host of every protocol of the catalog that can stand on a wire, and one that asks all of its
//! servers, for attacks in the simulator and on real devices.

use std::fmt::Write as _;

/// The lines of a graph above `arp`, `ip` and `icmp`, of the host that serves as of the one that
/// asks.
pub const LAYERS: &str = r#"
    igmp ip
    udp ip
    fault udp
    tracer fault ring=10
    reqrep udp
    sunselect reqrep
    authsys sunselect
    authshort sunselect authsys
    authnone sunselect
    sunprog authshort authnone
    portmap sunprog
    tcp ip
    rm tcp
    reqrep rm name=stream-reqrep
    sunselect stream-reqrep name=stream-sunselect
    sunprog stream-sunselect name=stream-sunprog
    vipadv arp
    vip vipadv ip
    "null" ip
    fanout ip joins=#true
    psync ip { number "ip"=202; }
    order psync
    groupcall psync
    membership psync
    vipaddr vipadv ip
    fragment vipaddr
    vipsize vipaddr fragment
    channel vipsize
    select channel
    deadline select
    rdgram channel
    fragment ip name=ip-fragment { number "ip"=201; }
    channel ip-fragment name=ip-channel
    forward ip-channel
    objloc ip-channel
    objinv objloc
    objmove objinv
    mrpc vip
    vmtp ip
"#;

/// The lines of what serves.
pub const SERVERS: &str = r#"
    echo udp port=7
    discard udp port=9
    echo tracer name=filtered port=11
    procedures portmap at="*@version1@program536870913@port2049"
    echo tcp name=stream port=7
    procedures stream-sunprog name=stream-procedures at="*@version1@program536870914@port2050"
    echo "null" name=null-echo
    procedures deadline name=deadline-procedures
    echo rdgram name=rdgram-echo
    echo fanout name=fanout-echo
    echo psync name=psync-echo
    echo order name=order-echo local=process8
    procedures groupcall name=group-procedures at="*@process9"
    echo membership name=membership-echo local=process10
    procedures forward name=forward-procedures
    procedures mrpc name=mrpc-procedures
    procedures vmtp name=vmtp-procedures
    procedures objinv name=object at="*@eid7"
"#;

/// The kinds of the catalog that stand in no such host, and why.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("aarp", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("aep", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("asp", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("atp", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("bsd", "stands for its subsystem, whose tests attack it"),
    ("bsd-on-streams", "an adapter; its own laws try it"),
    ("bsd-on-xk", "an adapter; its own laws try it"),
    ("caller", "asks; the host that asks has it"),
    ("chatter", "asks; its own tests attack it"),
    ("ddp", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("directory", "asks, and is asked by its like; its own tests attack it"),
    ("host-eth", "a wire"),
    ("host-tcp", "a wire"),
    ("host-udp", "a wire"),
    ("llap", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("loopback", "a wire"),
    ("ltoudp", "a wire"),
    ("nbp", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("netio", "lies below `eth`; its own tests attack it"),
    ("noise", "attacks"),
    ("packet", "a wire"),
    ("pcap", "writes a file of all that passes"),
    ("print", "asks for names, and prints; the graphs of AppleTalk have it"),
    ("printer", "the graphs of AppleTalk have it"),
    ("probe", "asks; the host that asks has it"),
    ("registry", "takes no messages, and stands beside `netio`"),
    ("replica", "its own tests attack it"),
    ("replica-client", "asks; its own tests are its"),
    ("resource", "a part of a program; its own tests have all of it"),
    ("rtmp", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
    ("shm", "a wire"),
    ("sim", "a wire"),
    ("sockets", "for programs; the adapters' tests attack it"),
    ("sr", "machines have numbers of their own; its own tests attack it"),
    ("streams", "stands for its subsystem, whose tests attack it"),
    ("streams-on-bsd", "an adapter; its own laws try it"),
    ("streams-on-xk", "an adapter; its own laws try it"),
    ("tap", "a wire"),
    ("tli", "for programs; the adapters' tests attack it"),
    ("xdp", "a wire"),
    ("xk-on-bsd", "an adapter; its own laws try it"),
    ("xk-on-streams", "an adapter; its own laws try it"),
    ("zip", "AppleTalk; attacked by `strangers_apple`, not on real devices"),
];

/// An asker: the layer, its name, and which server.
const ASKERS: &[(&str, &str, &str)] = &[
    ("probe icmp", "pings", ""),
    ("probe udp", "datagrams", "port7@"),
    ("probe tracer", "filtered", "port11@"),
    ("probe tcp", "streams", "port7@"),
    ("probe \"null\"", "frames", ""),
    ("probe rdgram", "reliable", ""),
    ("probe fanout", "rooms", ""),
    ("probe psync", "members", "process7@"),
    ("probe order", "ordered", "process8@"),
    ("caller groupcall", "everyone", "procedure1@process9@"),
    ("probe membership", "counted", "process10@"),
    ("caller portmap", "calls", "procedure1@version1@program536870913@port2049@"),
    ("caller stream-sunprog", "records", "procedure1@version1@program536870914@port2050@"),
    ("caller deadline", "selects", "procedure1@"),
    ("caller forward", "forwards", "procedure1@"),
    ("caller mrpc", "sprite", "procedure1@"),
    ("caller vmtp", "transacts", "procedure1@"),
    ("caller objinv", "objects", "procedure1@eid7@"),
];

/// The names of the askers in the graph of [`askers`].
pub fn asker_names() -> impl Iterator<Item = &'static str> {
    ASKERS.iter().map(|(_, name, _)| *name)
}

/// The lines of askers of all servers of the host `to`, each with `prefix` before its name and
/// `times`, parameters such as `count=10 interval="50ms"`.
#[must_use]
pub fn askers(to: &str, prefix: &str, times: &str) -> String {
    let mut lines = String::new();
    for (layer, name, server) in ASKERS {
        let patience = match layer.starts_with("probe") {
            true => "timeout=\"2s\"",
            false => "",
        };
        let _ = writeln!(
            lines,
            "    {layer} name={prefix}{name} to=\"{server}{to}\" {times} {patience}"
        );
    }
    lines
}

/// The kinds that such a host has, on its wire.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    let lines = LAYERS.lines().chain(SERVERS.lines());
    let kinds = lines.filter_map(|line| line.split_whitespace().next());
    let below = ["eth", "arp", "ip", "icmp"];
    below.into_iter().chain(kinds).map(|kind| kind.trim_matches('"'))
}
