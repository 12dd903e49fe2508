//! `toroni node doctor`: checks of what messages between hosts need. What cannot be known is said to be unknown.

use super::Finding;
use super::node::Wanted;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use toroni_net::host::address::DEFAULT_GROUP;
use toroni_net::host::arp::Ageing;
use toroni_net::host::buffers::{self, Load};
use toroni_net::host::clock::Discipline;
use toroni_net::host::counters::{self, Snapshot};
use toroni_net::host::ethtool::{Coalescing, Ethtool};
use toroni_net::host::filter::Filters;
use toroni_net::host::interface::{self, Interface};
use toroni_net::host::sysctl::{self, Change};
use toroni_net::socket::buffer::Charge;
use toroni_net::socket::leak;
use toroni_shell::human;

/// The rate for which buffers are checked, if none is given.
const USUAL_RATE: u64 = 100_000_000;
/// From these ports, the kernel chooses those of sockets that name none.
const LOCAL_PORTS: &str = "net.ipv4.ip_local_port_range";
/// A clock that may be wrong by more says little about latencies in a network of switches.
const TOLERABLE_ERROR: Duration = Duration::from_millis(1);
/// A delay of received packets that a fixed, low setting of a card stays below.
const TOLERABLE_DELAY_US: u32 = 125;

/// A greater share of TCP segments that wait for earlier ones, in percent, is high. "Topics in High-Performance Messaging" (2011), 2.2,
/// says that of 6 %; between hosts of one network nearly all come in order.
const TOLERABLE_REORDER: f64 = 1.0;
/// Of fewer TCP segments, a share says nothing.
const TELLING_SEGMENTS: u64 = 1_000;
/// With this `InterruptThrottleRate` a packet waits for at most 125 µs.
const THROTTLE_RATE: u32 = 8_000;
/// The drivers that have this parameter of the module.
const THROTTLED: [&str; 2] = ["e1000", "e1000e"];
/// For how long a kernel may know a neighbour where its addresses never change: 12 hours.
const LONG_REACHABLE_MS: u64 = 12 * 60 * 60 * 1_000;

/// What is checked.
pub(super) struct Scope {
    rate: u64,
    stall: Duration,
    /// The names of the interfaces; none: all that lead to other hosts.
    interfaces: Vec<String>,
    /// What a packet filter must let in.
    admitted: Vec<String>,
    is_verbose: bool,
}

impl Scope {
    /// Returns what is checked for any node, or for one that is wanted.
    pub(super) fn new(rate: Option<u64>, is_verbose: bool, wanted: Option<&Wanted>) -> Self {
        Self {
            rate: rate.unwrap_or(USUAL_RATE),
            stall: wanted.and_then(Wanted::stall).unwrap_or(buffers::USUAL_STALL),
            interfaces: wanted.map_or_else(Vec::new, |wanted| wanted.interfaces().to_vec()),
            admitted: wanted.and_then(Wanted::admitted).unwrap_or_else(|| {
                let mut admitted = datagrams(&[DEFAULT_GROUP]);
                admitted.push("TCP to the port of [listen], if a node has one".to_owned());
                admitted
            }),
            is_verbose,
        }
    }
}

/// Returns all checks as a lazy list. Each has one finding or more.
pub(super) fn checks(scope: Scope) -> impl Iterator<Item = Vec<Finding>> {
    let (rate, stall) = (scope.rate, scope.stall);
    let filter = packet_filter(&Filters::read(), &scope.admitted);
    let host = std::iter::once_with(move || vec![receive_limit(rate, stall)])
        .chain(std::iter::once_with(drops))
        .chain(std::iter::once(vec![filter]))
        .chain(std::iter::once_with(|| vec![reordered(), memberships(), clock()]));
    host.chain(std::iter::once_with(move || interfaces(&scope)).flatten())
}

/// Returns the checks of each interface of the scope, or one finding that there is none.
fn interfaces(scope: &Scope) -> Vec<Vec<Finding>> {
    const CHECK: &str = "interfaces";
    let all = match interface::all() {
        Ok(all) => all,
        Err(error) => return vec![vec![unknown(CHECK, &error.to_string())]],
    };
    let usable = match &scope.interfaces[..] {
        [] => interface::candidates(all),
        names => all.into_iter().filter(|one| names.contains(&one.name)).collect(),
    };
    if usable.is_empty() {
        return vec![vec![Finding::warn(
            CHECK,
            "none that is up, has an address and can multicast: no other host can be reached",
            "ip link set DEV up; ip address add ADDRESS/PREFIX dev DEV",
        )]];
    }
    let count = usable.len();
    usable.iter().map(|interface| of_interface(interface, count, scope.is_verbose)).collect()
}

fn of_interface(on: &Interface, count: usize, is_verbose: bool) -> Vec<Finding> {
    let driver = Ethtool::open(&on.name);
    let mut all = vec![link(on, driver.as_ref().ok()), lost_on(on)];
    if let Ok(driver) = &driver {
        all.extend([pause(on, driver), coalescing(on, driver, is_verbose), ring(on, driver)]);
    }
    all.extend([reverse_path(on, count), igmp(on), arp(on), ttl(on)]);
    all
}

fn unknown(check: &'static str, why: &str) -> Finding {
    Finding::ok(check, format!("unknown: {why}"))
}

/// Checks `net.core.rmem_max` against the equations.
fn receive_limit(rate: u64, stall: Duration) -> Finding {
    const CHECK: &str = "UDP buffers";
    let charge = Charge::of(buffers::USUAL_DATAGRAM);
    let load = Load::new(rate, buffers::USUAL_DATAGRAM, charge.bytes);
    let request = load.request(stall);
    let (stall, shown) = (human::duration(stall), human::bit_rate(rate));
    let needed = format!("{stall} without reading at {shown} need {} bytes", human::count(request));
    let Some(limit) = sysctl::read(buffers::LIMIT_SETTING) else {
        return unknown(CHECK, "net.core.rmem_max is not visible in this network namespace");
    };
    let described = format!("net.core.rmem_max is {}; {needed}", human::count(limit));
    match buffers::raise_limit(request, limit) {
        None => Finding::ok(CHECK, described),
        Some(change) => Finding::warn(
            CHECK,
            described,
            format!("{change}; other rates: toroni net buffer --rate R"),
        ),
    }
}

/// Reports what the kernel has dropped since it started.
fn drops() -> Vec<Finding> {
    const CHECK: &str = "UDP drops";
    const BACKLOG: &str = "net.core.netdev_max_backlog";
    let counted = match Snapshot::read() {
        Ok(counted) => counted,
        Err(error) => return vec![unknown(CHECK, &error.to_string())],
    };
    let mut all = Vec::new();
    let mut check = |count: u64, what: &str, remedy: String| {
        if count > 0 {
            all.push(Finding::warn(CHECK, format!("{}: {what}", human::count(count)), remedy));
        }
    };
    check(
        counted.socket_buffers,
        "the buffer of a socket was full, since this network namespace exists",
        "toroni net buffer --rate R says how large it must be".to_owned(),
    );
    check(
        counted.memory,
        "all UDP sockets together had no memory left (net.ipv4.udp_mem)",
        "fewer sockets, smaller buffers, or a larger net.ipv4.udp_mem".to_owned(),
    );
    let backlog: u64 = sysctl::read(BACKLOG).unwrap_or(1_000);
    check(
        counted.softnet,
        "the backlog of a CPU was full, since the machine started",
        Change::new(BACKLOG, backlog.saturating_mul(2)).to_string(),
    );
    check(
        counted.checksums,
        "the checksum was wrong: cable, card or switch damage datagrams",
        "ethtool -S DEV shows where; replace the cable".to_owned(),
    );
    if all.is_empty() {
        all.push(Finding::ok(CHECK, "none by full buffers, backlogs or wrong checksums"));
    }
    all
}

/// Returns what a packet filter must let in for datagrams of these groups.
pub(super) fn datagrams(groups: &[SocketAddr]) -> Vec<String> {
    let reports = |is_wanted: fn(&SocketAddr) -> bool, name: &str| {
        groups.iter().any(is_wanted).then(|| name.to_owned())
    };
    let reports =
        [reports(SocketAddr::is_ipv4, "IGMP"), reports(SocketAddr::is_ipv6, "ICMPv6 (MLD)")];
    let ports: BTreeSet<u16> = groups.iter().map(SocketAddr::port).collect();
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let range = sysctl::read_list(LOCAL_PORTS).unwrap_or_default();
    let range: String = range.iter().map(|port| format!(" {port}")).collect();
    let mut all: Vec<String> = reports.into_iter().flatten().collect();
    if !ports.is_empty() {
        all.push(format!("UDP to port {} of the groups", ports.join(", ")));
    }
    all.push(format!(
        "UDP of other hosts to the ports that the kernel chooses ({LOCAL_PORTS}{range}), where answers and requests for \
         repair arrive"
    ));
    all
}

/// Reports the packet filters. Whether their rules let datagrams in, only a trial shows.
fn packet_filter(found: &Filters, admitted: &[String]) -> Finding {
    const CHECK: &str = "packet filter";
    if admitted.is_empty() {
        return Finding::ok(CHECK, "this node only connects to others");
    }
    let admitted = admitted.join("; ");
    if !found.tables.is_empty() {
        let tables = found.tables.join(", ");
        return Finding::warn(
            CHECK,
            format!("this host has {tables}, and their rules may drop what comes from other hosts"),
            format!(
                "let in {admitted}. toroni net probe, run on two hosts at once, shows whether they do"
            ),
        );
    }
    let described = match &found.unknown {
        Some(error) => format!("unknown: {error}; root may list them"),
        None => "this host has none".to_owned(),
    };
    Finding::ok(CHECK, format!("{described}. One must let in {admitted}"))
}

/// Checks how many TCP segments waited for earlier ones: what order costs.
fn reordered() -> Finding {
    let late = counters::tcp_extended("TCPOFOQueue").ok().flatten();
    let all = counters::tcp("InSegs").ok().flatten();
    waited(late, all)
}

/// Judges the share of TCP segments that waited, since this network namespace exists.
fn waited(late: Option<u64>, all: Option<u64>) -> Finding {
    const CHECK: &str = "TCP order";
    match (late, all) {
        (Some(_), Some(0)) => Finding::ok(CHECK, "no TCP segment received yet"),
        (Some(late), Some(all)) => {
            let share = human::as_f64(late) * 100.0 / human::as_f64(all);
            let described = format!("{share:.3} % of TCP segments waited for earlier ones");
            if share <= TOLERABLE_REORDER || all < TELLING_SEGMENTS {
                return Finding::ok(CHECK, described);
            }
            Finding::warn(
                CHECK,
                format!("{described}, which is high: what comes over TCP is late by a repair"),
                "look for losses (nstat -az TcpRetransSegs here and on the other hosts) and for several ways through the \
                 network; what must not wait belongs into datagrams, with order = \"arrival\"",
            )
        }
        _ => unknown(CHECK, "this kernel does not count it"),
    }
}

/// Checks how many groups a socket may join. Toroni joins one with each.
fn memberships() -> Finding {
    const CHECK: &str = "multicast groups";
    const SETTING: &str = "net.ipv4.igmp_max_memberships";
    match sysctl::read::<u64>(SETTING) {
        None => unknown(CHECK, "net.ipv4.igmp_max_memberships is not visible"),
        Some(0) => {
            Finding::warn(CHECK, "no socket may join one", Change::new(SETTING, 20).to_string())
        }
        Some(limit) => Finding::ok(
            CHECK,
            format!("each socket may join {limit}, and each group has a socket of its own"),
        ),
    }
}

/// Checks whether the clock follows a better one. Latencies between hosts need that; nothing else does.
fn clock() -> Finding {
    const CHECK: &str = "synchronisation";
    const REMEDY: &str = "run chronyd, or ptp4l and phc2sys where microseconds count";
    match Discipline::read() {
        Err(error) => unknown(CHECK, &error.to_string()),
        Ok(clock) if !clock.is_synchronised => Finding::warn(
            CHECK,
            "no program keeps the clock right: latencies between hosts cannot be measured",
            REMEDY,
        ),
        Ok(clock) => {
            let (likely, most) =
                (human::duration(clock.likely_error), human::duration(clock.greatest_error));
            let described = format!("the clock is right to {likely} (likely), {most} (at most)");
            if clock.likely_error > TOLERABLE_ERROR {
                Finding::warn(CHECK, described, REMEDY)
            } else {
                Finding::ok(CHECK, described)
            }
        }
    }
}

/// Checks carrier, speed and duplex.
fn link(on: &Interface, driver: Option<&Ethtool>) -> Finding {
    const CHECK: &str = "link";
    let link = driver.and_then(Ethtool::link);
    let speed = link.and_then(|link| link.speed);
    let speed = speed.map_or_else(|| "speed unknown".to_owned(), human::bit_rate);
    let described = format!("{}: {speed}, MTU {}", on.name, on.mtu);
    if on.carrier == Some(false) {
        return Finding::warn(
            CHECK,
            format!(
                "{described}, no carrier: nothing reaches other hosts, only sockets of this one"
            ),
            format!("plug in the cable of {}; for a trial on one host, use lo", on.name),
        );
    }
    match link.and_then(|link| link.is_full_duplex) {
        Some(false) => Finding::warn(
            CHECK,
            format!("{described}, half duplex: datagrams collide"),
            format!("ethtool -s {} autoneg on; and the same at the switch", on.name),
        ),
        _ => Finding::ok(CHECK, described),
    }
}

/// Reports what the interface has dropped.
fn lost_on(on: &Interface) -> Finding {
    const CHECK: &str = "interface drops";
    let counted = on.counters;
    let described = format!(
        "{}: {} by the kernel, {} and {} by the card (no buffer, queue full)",
        on.name,
        human::count(counted.dropped),
        human::count(counted.missed),
        human::count(counted.overflowed)
    );
    if counted.missed == 0 && counted.overflowed == 0 {
        // The kernel also counts here what no program wants, such as unknown protocols.
        return Finding::ok(CHECK, described);
    }
    let remedy = format!(
        "a longer receive ring: ethtool -g {0} shows, ethtool -G {0} rx N sets it",
        on.name
    );
    Finding::warn(CHECK, described, remedy)
}

/// Checks Ethernet flow control: one slow receiver may stop the sender for all.
fn pause(on: &Interface, driver: &Ethtool) -> Finding {
    const CHECK: &str = "pause frames";
    let Some(pause) = driver.pause() else {
        return unknown(CHECK, &format!("the driver of {} does not say", on.name));
    };
    let seen: Vec<String> = driver
        .counters()
        .unwrap_or_default()
        .into_iter()
        .filter(|(name, count)| {
            *count > 0 && (name.contains("pause") || name.contains("flow_control"))
        })
        .map(|(name, count)| format!("{name} {}", human::count(count)))
        .collect();
    let seen = if seen.is_empty() { "none counted".to_owned() } else { seen.join(", ") };
    if !pause.is_obeyed && !pause.is_sent {
        return Finding::ok(CHECK, format!("{}: off; {seen}", on.name));
    }
    let described = format!(
        "{}: {}; a switch may slow the sender to the slowest port ({seen})",
        on.name,
        match (pause.is_obeyed, pause.is_sent) {
            (true, true) => "obeyed and sent",
            (true, false) => "obeyed",
            _ => "sent",
        }
    );
    Finding::warn(CHECK, described, format!("ethtool -A {} autoneg off rx off tx off", on.name))
}

/// Checks how long the card delays interrupts for received packets.
fn coalescing(on: &Interface, driver: &Ethtool, is_verbose: bool) -> Finding {
    match driver.coalescing() {
        Some(found) => delays(&on.name, &found, is_verbose),
        None => undisclosed(&on.name, interface::driver(&on.name).as_deref()),
    }
}

/// Says what to do about delays that a driver does not disclose.
fn undisclosed(name: &str, driver: Option<&str>) -> Finding {
    let finding = unknown("coalescing", &format!("the driver of {name} does not say"));
    match driver.filter(|driver| THROTTLED.contains(driver)) {
        Some(driver) => finding.proposing(format!(
            "options {driver} InterruptThrottleRate={THROTTLE_RATE} in /etc/modprobe.d/toroni.conf: a packet waits up to {} µs \
             from the next load of the module on",
            1_000_000 / THROTTLE_RATE
        )),
        None => finding,
    }
}

/// Describes how a card delays interrupts: every parameter, or those that are set.
fn delays(name: &str, found: &Coalescing, is_verbose: bool) -> Finding {
    const CHECK: &str = "coalescing";
    let shown: Vec<String> = found
        .parameters()
        .filter(|(_, value)| is_verbose || *value != 0)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let worst = found.worst_delay_us();
    let described =
        format!("{name}: a packet waits up to {worst} µs for an interrupt ({})", shown.join(", "));
    let remedy = format!("ethtool -C {name} adaptive-rx off rx-usecs 8");
    if found.is_adaptive() || worst > TOLERABLE_DELAY_US {
        Finding::warn(CHECK, described, remedy)
    } else {
        Finding::ok(CHECK, described)
    }
}

/// Checks the length of the card's receive ring.
fn ring(on: &Interface, driver: &Ethtool) -> Finding {
    const CHECK: &str = "receive ring";
    let Some(ring) = driver.ring() else {
        return unknown(CHECK, &format!("the driver of {} does not say, or has none", on.name));
    };
    let described = format!("{}: {} of at most {} packets", on.name, ring.length, ring.greatest);
    if ring.length < ring.greatest && on.counters.missed + on.counters.overflowed > 0 {
        let remedy = format!("ethtool -G {} rx {}", on.name, ring.greatest);
        Finding::warn(CHECK, format!("{described}, and the card has dropped some"), remedy)
    } else {
        Finding::ok(CHECK, described)
    }
}

/// Checks whether the kernel drops datagrams whose way back leads over another interface.
fn reverse_path(on: &Interface, count: usize) -> Finding {
    const CHECK: &str = "reverse path";
    let setting = |of: &str| format!("net.ipv4.conf.{}.rp_filter", of.replace('.', "/"));
    // The kernel uses the greater one.
    let values = ["all", &on.name].map(|of| sysctl::read::<u64>(&setting(of)));
    let [Some(all), Some(own)] = values else {
        return unknown(CHECK, "rp_filter is not visible");
    };
    let described = |how: &str| format!("{}: {how} (rp_filter {})", on.name, all.max(own));
    match all.max(own) {
        1 if count > 1 => Finding::warn(
            CHECK,
            described(
                "datagrams are dropped if the route back to their sender is another interface",
            ),
            format!(
                "{}; {}",
                Change::new(setting("all"), 2).command(),
                Change::new(setting(&on.name), 2).command()
            ),
        ),
        1 => Finding::ok(CHECK, described("strict, which suits a host with one interface")),
        _ => Finding::ok(CHECK, described("drops nothing that has a way back")),
    }
}

/// Reports the version of IGMP. Whether there is a querier, the kernel does not remember.
fn igmp(on: &Interface) -> Finding {
    const CHECK: &str = "IGMP";
    let forced = sysctl::read::<u64>(&format!(
        "net.ipv4.conf.{}.force_igmp_version",
        on.name.replace('.', "/")
    ));
    let version = counters::igmp_version(&on.name).ok().flatten();
    let version = version.map_or_else(
        || "version unknown".to_owned(),
        |version| format!("IGMP{}", version.to_lowercase()),
    );
    let why = match forced {
        Some(0) | None => "",
        Some(_) => ", forced",
    };
    Finding::ok(
        CHECK,
        format!(
            "{}: {version}{why}; a querier: unknown. If switches snoop, one must be there: tcpdump -ni {} igmp shows a query \
             within 130 s",
            on.name, on.name
        ),
    )
}

/// Reports how long the kernel knows its neighbours, and how it can know them for longer.
fn arp(on: &Interface) -> Finding {
    const CHECK: &str = "ARP";
    let Some(ageing) = Ageing::of(&on.name) else {
        return unknown(CHECK, "the setting is not visible");
    };
    let setting = Ageing::setting(&on.name);
    let finding = Finding::ok(
        CHECK,
        format!(
            "{}: the kernel asks a neighbour again after {} to {} ({setting})",
            on.name,
            human::duration(*ageing.reachable.start()),
            human::duration(*ageing.reachable.end()),
        ),
    );
    if *ageing.reachable.end() >= Duration::from_millis(LONG_REACHABLE_MS) {
        return finding;
    }
    finding.proposing(format!(
        "where no datagram may wait for an answer: ip neigh replace ADDRESS lladdr MAC dev {} nud permanent, for each host; or {}",
        on.name,
        Change::new(setting, LONG_REACHABLE_MS).command()
    ))
}

/// Checks that datagrams with a TTL of 0 stay on this host.
fn ttl(on: &Interface) -> Finding {
    const CHECK: &str = "TTL 0";
    match leak::leaves_host(on, 0, true) {
        Ok(false) => Finding::ok(
            CHECK,
            format!(
                "{}: such datagrams stay on this host while one of its sockets is in the group; otherwise Linux sends them",
                on.name
            ),
        ),
        Ok(true) => Finding::warn(
            CHECK,
            format!("{}: datagrams with a TTL of 0 leave this host", on.name),
            "use the interface lo for what must stay on this host",
        ),
        Err(error) => unknown(CHECK, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_filter_is_named_with_what_it_must_let_in() {
        let admitted =
            datagrams(&["239.1.2.3:4479", "239.1.2.4:5000"].map(|it| it.parse().unwrap()));
        assert_eq!(admitted[..2], ["IGMP", "UDP to port 4479, 5000 of the groups"]);
        assert!(admitted[2].contains("net.ipv4.ip_local_port_range"), "{admitted:?}");
        let six = datagrams(&["[ff18::1]:4479".parse().unwrap()]);
        assert_eq!(six[0], "ICMPv6 (MLD)");
        let wanted = admitted.join("; ");
        let none = packet_filter(&Filters::default(), &admitted);
        assert_eq!(none.message, format!("this host has none. One must let in {wanted}"));
        let tables = vec!["iptables filter".to_owned(), "nft inet filter".to_owned()];
        let some = packet_filter(&Filters { tables, unknown: None }, &admitted);
        assert!(some.message.starts_with("this host has iptables filter, nft inet filter, and "));
        assert!(some.remedy.unwrap().starts_with(&format!("let in {wanted}. ")));
        let unknown = Some(std::io::Error::from(std::io::ErrorKind::PermissionDenied));
        let unknown = packet_filter(&Filters { tables: vec![], unknown }, &admitted);
        assert!(unknown.message.starts_with("unknown: "), "{}", unknown.message);
    }

    #[test]
    fn the_order_of_tcp_is_judged() {
        let message = |late, all| waited(Some(late), Some(all));
        for (late, all) in [(0, 0), (172, 285), (10, 1_000), (0, 1_000_000)] {
            assert!(message(late, all).remedy.is_none(), "{late} of {all}");
        }
        // The example of the source.
        let high = message(172, 2_854);
        assert!(high.message.starts_with("6.027 % of TCP segments waited"), "{}", high.message);
        assert!(high.remedy.unwrap().contains("TcpRetransSegs"));
        assert!(waited(None, Some(1)).message.starts_with("unknown"));
    }

    #[test]
    fn a_driver_that_does_not_say_its_delay_may_have_a_parameter_of_its_module() {
        let found = undisclosed("eth0", Some("e1000e"));
        assert_eq!(found.message, "unknown: the driver of eth0 does not say");
        assert_eq!(
            found.remedy.as_deref(),
            Some(
                "options e1000e InterruptThrottleRate=8000 in /etc/modprobe.d/toroni.conf: a packet waits up to 125 µs from \
                 the next load of the module on"
            )
        );
        for driver in [None, Some("virtio_net")] {
            assert!(undisclosed("eth0", driver).remedy.is_none());
        }
        assert_eq!(interface::driver("lo"), None);
    }

    #[test]
    fn every_parameter_of_coalescing_is_shown_on_demand() {
        let slow = Coalescing::of(&[("rx-usecs", 250), ("rx-frames", 16)]);
        let found = delays("eth0", &slow, false);
        assert_eq!(
            found.message,
            "eth0: a packet waits up to 250 µs for an interrupt (rx-usecs 250, rx-frames 16)"
        );
        assert_eq!(found.remedy.as_deref(), Some("ethtool -C eth0 adaptive-rx off rx-usecs 8"));
        let found = delays("eth0", &slow, true).message;
        for name in [
            "rx-usecs 250",
            "rx-usecs-low 0",
            "rx-usecs-high 0",
            "rx-usecs-irq 0",
            "rx-frames 16",
            "rx-frames-low 0",
            "rx-frames-high 0",
            "rx-frames-irq 0",
            "tx-usecs 0",
            "tx-usecs-low 0",
            "tx-usecs-high 0",
            "tx-usecs-irq 0",
            "tx-frames 0",
            "tx-frames-low 0",
            "tx-frames-high 0",
            "tx-frames-irq 0",
            "adaptive-rx 0",
            "adaptive-tx 0",
            "pkt-rate-low 0",
            "pkt-rate-high 0",
            "sample-interval 0",
        ] {
            assert!(found.contains(name), "{name}: {found}");
        }
        let fast = Coalescing::of(&[("rx-usecs", 8)]);
        assert!(delays("eth0", &fast, false).remedy.is_none());
        let adaptive = Coalescing::of(&[("rx-usecs", 8), ("adaptive-rx", 1)]);
        assert!(delays("eth0", &adaptive, false).remedy.is_some());
    }
}
