//! Checks of what the multicast notifier needs: the loopback interface and buffers.

use super::{Finding, read};
use rustix::net::sockopt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};
use toroni_shell::human;

/// The kernel's default. A smaller value was configured.
const USUAL_BUFFER_BYTES: u64 = 212_992;

/// Checks `net.core.rmem_max`.
pub(super) fn receive_buffer(_: &Path) -> Finding {
    const CHECK: &str = "receive buffers";
    let setting = read("/proc/sys/net/core/rmem_max").and_then(|text| text.parse::<u64>().ok());
    match setting {
        None => Finding::ok(CHECK, "net.core.rmem_max is not visible in this network namespace"),
        Some(bytes) if bytes < USUAL_BUFFER_BYTES => Finding::warn(
            CHECK,
            format!("net.core.rmem_max is {}", human::bytes(bytes)),
            format!("sysctl -w net.core.rmem_max={USUAL_BUFFER_BYTES}"),
        ),
        Some(bytes) => Finding::ok(CHECK, format!("net.core.rmem_max is {}", human::bytes(bytes))),
    }
}

/// Checks whether `lo` is up.
pub(super) fn loopback(_: &Path) -> Finding {
    const CHECK: &str = "loopback";
    const UP: u32 = 1;
    let flags = read("/sys/class/net/lo/flags")
        .and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    match flags {
        None => Finding::ok(CHECK, "not shown in /sys; the check of multicast uses it"),
        Some(flags) if flags & UP != 0 => Finding::ok(CHECK, "up"),
        Some(_) => Finding::warn(
            CHECK,
            "down: the multicast notifier does not work",
            "ip link set lo up; or use the futex notifier",
        ),
    }
}

/// Checks that a datagram to a multicast group on the loopback interface arrives.
pub(super) fn multicast(_: &Path) -> Finding {
    const CHECK: &str = "multicast";
    match send_to_self() {
        Ok(took) => {
            Finding::ok(CHECK, format!("a datagram on loopback took {}", human::duration(took)))
        }
        Err(error) => Finding::warn(
            CHECK,
            format!("does not work on loopback: {error}"),
            "ip link set lo up; allow 239.255.0.0/16 on lo in the firewall; or use the futex notifier",
        ),
    }
}

fn send_to_self() -> io::Result<Duration> {
    let group = Ipv4Addr::new(239, 255, 84, 111);
    let receiver = UdpSocket::bind(SocketAddrV4::new(group, 0))?;
    receiver.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    let sender = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
    sockopt::set_ip_multicast_if(&sender, &Ipv4Addr::LOCALHOST)?;
    sender.set_multicast_ttl_v4(0)?;
    sender.set_multicast_loop_v4(true)?;

    // Unique, so that a datagram of another process is not mistaken for this one.
    let token = format!("toroni doctor {} {:?}", std::process::id(), Instant::now());
    let started = Instant::now();
    let deadline = started + Duration::from_secs(2);
    sender.send_to(token.as_bytes(), receiver.local_addr()?)?;
    let mut buffer = [0; 256];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no datagram within 2 s"));
        }
        receiver.set_read_timeout(Some(left))?;
        match receiver.recv(&mut buffer) {
            Ok(length) if &buffer[..length] == token.as_bytes() => return Ok(started.elapsed()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
