//! What needs one host and no privileges.

use super::{LOOPED, group, is_empty, leg, listen, receive, receive_into, send};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd};
use rustix::net::sockopt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toroni_net::endpoint::Endpoint;
use toroni_net::host::counters::{self, Snapshot};
use toroni_net::host::interface;
use toroni_net::socket::drops::{self, Overflow};
use toroni_net::socket::{Datagram, Options, Outgoing, Receiver, Sender, multicast};
use toroni_proto::reassembly::Pool;

#[test]
fn a_datagram_arrives_with_all_facts() {
    let lo = interface::named("lo").unwrap();
    let socket = listen(group("239.192.84.80:0"), "lo");
    let to = socket.address();
    assert_ne!(to.port(), 0);
    let from = leg(to.ip(), "lo", &LOOPED);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let before = now();
    send(&from, to, &["hello"]);
    let (arrival, bytes) = receive(&socket, 1).remove(0);
    assert_eq!(bytes, b"hello");
    assert_eq!((arrival.from, arrival.to), (from.address(), Some(to.ip())));
    assert_eq!((arrival.interface, arrival.ttl), (Some(lo.index), Some(16)));
    assert_eq!((arrival.dropped, arrival.is_truncated()), (0, false));
    let received = Duration::from_nanos(arrival.received_ns.unwrap());
    // The clock may be set meanwhile, but not by a minute.
    let tolerance = Duration::from_secs(60);
    assert!(before < received + tolerance && received < now() + tolerance);
}

#[test]
fn a_socket_gets_its_own_group_only_and_nothing_after_it_has_left() {
    let lo = interface::named("lo").unwrap();
    let one = listen(group("239.192.84.81:0"), "lo");
    let port = one.address().port();
    let other = listen(group(&format!("239.192.84.82:{port}")), "lo");
    let from = leg(one.address().ip(), "lo", &LOOPED);
    send(&from, one.address(), &["for one"]);
    send(&from, other.address(), &["for the other"]);
    assert_eq!(receive(&one, 1)[0].1, b"for one");
    assert_eq!(receive(&other, 1)[0].1, b"for the other");
    assert!(is_empty(&one) && is_empty(&other));

    multicast::leave(&one, one.address().ip(), &lo).unwrap();
    send(&from, one.address(), &["for no member"]);
    send(&from, other.address(), &["a mark"]);
    assert_eq!(receive(&other, 1)[0].1, b"a mark");
    assert!(is_empty(&one));
    multicast::join(&one, one.address().ip(), &lo).unwrap();
    send(&from, one.address(), &["again"]);
    assert_eq!(receive(&one, 1)[0].1, b"again");
}

#[test]
fn several_sockets_of_a_host_get_each_datagram() {
    let one = listen(group("239.192.84.83:0"), "lo");
    let other = listen(one.address(), "lo");
    let from = leg(one.address().ip(), "lo", &LOOPED);
    send(&from, one.address(), &["for both"]);
    for socket in [&one, &other] {
        assert_eq!(receive(socket, 1)[0].1, b"for both");
    }
}

#[test]
fn legs_have_ports_of_their_own_and_answer_one_another() {
    let ip = group("239.192.84.84:1").ip();
    let (one, other) = (leg(ip, "lo", &LOOPED), leg(ip, "lo", &LOOPED));
    assert_ne!(one.address().port(), other.address().port());
    send(&one, other.address(), &["NAK"]);
    let (arrival, bytes) = receive(&other, 1).remove(0);
    assert_eq!((bytes.as_slice(), arrival.from), (&b"NAK"[..], one.address()));
}

#[test]
fn datagrams_that_do_not_fit_are_cut_and_said_to_be() {
    let socket = listen(group("239.192.84.85:0"), "lo");
    let from = leg(socket.address().ip(), "lo", &LOOPED);
    send(&from, socket.address(), &[vec![7; 100], vec![8; 10], vec![]]);
    let all = receive_into(&socket, 3, 10);
    let [(long, bytes), (fits, _), (empty, nothing)] = &all[..] else { panic!("{all:?}") };
    assert!(long.is_truncated() && !fits.is_truncated() && !empty.is_truncated());
    assert_eq!((long.length, long.sent_length, bytes.len()), (10, 100, 10));
    assert_eq!((fits.length, fits.sent_length), (10, 10));
    assert_eq!((empty.length, nothing.len()), (0, 0));
    // A buffer of no bytes.
    send(&from, socket.address(), &["x"]);
    assert_eq!(receive_into(&socket, 1, 0)[0].0.sent_length, 1);
}

/// The kernel may refuse to poll; the socket works all the same.
#[test]
fn a_socket_may_poll_the_card() {
    let lo = interface::named("lo").unwrap();
    let polling = Options { busy_poll: Duration::from_micros(50), ..LOOPED };
    let socket = Datagram::group(group("239.192.84.97:0"), &lo, &polling).unwrap();
    let quiet = listen(socket.address(), "lo");
    assert!(!quiet.polls_busily());
    let from = leg(socket.address().ip(), "lo", &polling);
    send(&from, socket.address(), &["hello"]);
    assert_eq!(receive(&socket, 1)[0].1, b"hello");
    assert_eq!(socket.polls_busily(), from.polls_busily());
}

#[test]
fn a_batch_fills_buffers_in_order_and_no_more_than_there_are() {
    let socket = listen(group("239.192.84.86:0"), "lo");
    let from = leg(socket.address().ip(), "lo", &LOOPED);
    let datagrams: Vec<_> = (0..10_u8).map(|number| [number; 20]).collect();
    send(&from, socket.address(), &datagrams);
    let mut receiver = Receiver::new();
    let mut memory = [[0xFF; 20]; 4];
    let buffers = memory.iter_mut().map(|buffer| &mut buffer[..]);
    assert_eq!(receiver.receive(&socket, buffers).unwrap().len(), 4);
    for (number, buffer) in (0..).zip(&memory) {
        assert_eq!(buffer, &[number; 20]);
    }
    assert!(receiver.receive(&socket, []).unwrap().is_empty());
    let rest: Vec<_> = receive(&socket, 6).into_iter().map(|(_, bytes)| bytes[0]).collect();
    assert_eq!(rest, [4, 5, 6, 7, 8, 9]);
}

/// As a node does: the protocol keeps what it received where the kernel put it.
#[test]
fn datagrams_are_received_into_the_buffers_of_the_protocol() {
    let socket = listen(group("239.192.84.96:0"), "lo");
    let from = leg(socket.address().ip(), "lo", &LOOPED);
    send(&from, socket.address(), &["one", "two", "three"]);
    let mut pool = Pool::new(100, 1_408);
    // Some are in use elsewhere.
    let used: Vec<_> = (0..10).filter_map(|_| pool.take()).collect();
    let free = (0..8).filter_map(|_| pool.take());
    let mut buffers: Vec<_> = used.into_iter().step_by(3).chain(free).collect();
    buffers.sort();
    let mut receiver = Receiver::new();
    let arrived = receiver.receive(&socket, pool.slices_mut(&buffers)).unwrap();
    let found: Vec<_> =
        arrived.iter().zip(&buffers).map(|(one, buffer)| &pool.get(buffer)[..one.length]).collect();
    assert_eq!(found, [&b"one"[..], b"two", b"three"]);
}

/// What was sent is what arrived and what the kernel says it dropped, exactly; and every counter tells the same.
#[test]
fn drops_of_a_full_buffer_are_counted_exactly() {
    const SENT: usize = 2_000;
    let small = Options { receive_buffer: Some(20_000), ..LOOPED };
    let lo = interface::named("lo").unwrap();
    let socket = Datagram::group(group("239.192.84.87:0"), &lo, &small).unwrap();
    assert!(socket.grant().unwrap().is_enough());
    let from = leg(socket.address().ip(), "lo", &LOOPED);
    let before = Snapshot::read().unwrap();
    let mut overflow = Overflow::default();
    let (mut received, mut dropped) = (0, 0);
    for _ in 0..2 {
        send(&from, socket.address(), &vec![[0; 100]; SENT]);
        let kernel = u64::from(drops::memory(&socket).unwrap().drops);
        assert!(kernel > dropped, "the buffer must overflow");
        // A datagram brings the counter as it was when it was queued. So the one after the last of the buffer tells all.
        let held = SENT - usize::try_from(kernel - dropped).unwrap();
        for (arrival, _) in receive(&socket, held) {
            dropped += overflow.advance(arrival.dropped);
            received += 1;
        }
        send(&from, socket.address(), &["a mark"]);
        dropped += overflow.advance(receive(&socket, 1)[0].0.dropped);
        assert_eq!(dropped, kernel);
    }
    assert_eq!(received + usize::try_from(dropped).unwrap(), 2 * SENT);
    let metadata = std::fs::metadata(format!("/proc/self/fd/{}", fd(&socket))).unwrap();
    assert_eq!(counters::of_socket(metadata.ino()).unwrap(), Some(dropped));
    // Other sockets of this host may have dropped more.
    let counted = Snapshot::read().unwrap().since(&before);
    assert!(counted.socket_buffers >= dropped, "{counted:?}");
}

fn fd(socket: &Datagram) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd())
}

#[test]
fn joined_datagrams_arrive_one_by_one() {
    let socket = listen(group("239.192.84.88:0"), "lo");
    let from = leg(socket.address().ip(), "lo", &LOOPED);
    if !from.can_segment() {
        eprintln!("SKIPPED: this kernel has no UDP_SEGMENT");
        return;
    }
    // 40 of one size and a shorter one, an odd one, and 64 KiB and more of another size.
    let mut datagrams: Vec<Vec<u8>> = (0..40).map(|number| vec![number; 1_408]).collect();
    datagrams.push(vec![40; 100]);
    datagrams.push(vec![41; 900]);
    datagrams.extend((42..=80).map(|number| vec![number; 1_408]));
    // 41 datagrams are 56 KiB; one more, of another size; and 39, after the batch of 64 ended.
    assert_eq!(send(&from, socket.address(), &datagrams), 4);
    let all = receive(&socket, datagrams.len());
    let bytes: Vec<_> = all.iter().map(|(_, bytes)| bytes.clone()).collect();
    assert!(bytes == datagrams, "{:?}", bytes.iter().map(|b| (b[0], b.len())).collect::<Vec<_>>());
    assert!(all.iter().all(|(arrival, _)| arrival.ttl == Some(16)));
}

#[test]
fn what_is_refused_for_itself_ends_no_joining() {
    let socket = listen(group("239.192.84.89:0"), "lo");
    let from = leg(socket.address().ip(), "lo", &LOOPED);
    let to = socket.address();
    let mut sender = Sender::new(&from);
    // One that is too long makes the kernel refuse; the others are sent, and the error comes when it is the first.
    let (good, long) = ([1; 1_000], vec![0; 65_508]);
    let outgoing = [
        Outgoing { to, bytes: &good },
        Outgoing { to, bytes: &good },
        Outgoing { to, bytes: &long },
        Outgoing { to, bytes: &good },
    ];
    assert_eq!(sender.send(&from, &outgoing).unwrap(), 2);
    let error = sender.send(&from, &outgoing[2..]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()));
    assert_eq!(sender.send(&from, &outgoing[3..]).unwrap(), 1);
    assert_eq!(sender.is_joining(), from.can_segment());
    assert_eq!(sender.send(&from, &[outgoing[0]; 3]).unwrap(), 3);
    assert_eq!(receive(&socket, 6).len(), 6);
}

/// Returns the DSCP of a datagram that has come to a socket.
fn class(socket: &impl AsFd) -> Option<u8> {
    let mut control = [0_u64; 32];
    // SAFETY: a header without names, buffers and control messages is valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    // SAFETY: the kernel writes at most `msg_controllen` bytes to `control`, which lives until the end.
    let received =
        unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_TRUNC) };
    assert!(received >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has filled the header, so its control messages are complete.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(found) = next.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::IPPROTO_IP, libc::IP_TOS) {
                return Some(*libc::CMSG_DATA(found) >> 2);
            }
            next = libc::CMSG_NXTHDR(&raw const header, found);
        }
    }
    None
}

#[test]
fn what_is_sent_has_the_class_of_the_file() {
    let heard = listen(group("239.192.84.98:0"), "lo");
    let (group, process) = (heard.address(), std::process::id());
    sockopt::set_ip_recvtos(&heard, true).unwrap();
    let file = format!(
        "[node]\nrealm = 'class {process}'\nname = 'a'\ninterfaces = ['lo']\ndscp = 46\n[[send]]\n\
         stream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '1Mbit/s'\nloop = true\nttl = 0\n"
    );
    let mut sender = Endpoint::open(&file, Path::new("/")).unwrap();
    sender.turn().unwrap();
    poll(&mut [PollFd::new(&heard, PollFlags::IN)], None).unwrap();
    assert_eq!(class(&heard), Some(46));
}
