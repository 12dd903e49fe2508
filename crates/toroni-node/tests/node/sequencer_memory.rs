//! The memory of a member whose callers ask for much and take nothing.

use crate::sequencer::{Hosts, leave};
use crate::support::wait_until;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use toroni::BusConfig;
use toroni_sequencer::commands::Commands;
use toroni_sequencer::raft::feed_id;

const CALLERS: u32 = 200;
const QUESTIONS: u64 = 16;
/// The documentation says 256 MiB, of which requests, and members, may take a part.
const MOST_KIB: u64 = 160 << 10;

/// Connects as a follower, without a key, and asks for all events; see `rpc/frame.rs`.
fn ask(member: SocketAddr, source: u32) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let [.., last] = (source % 20).to_be_bytes();
        socket.bind((IpAddr::from([127, 0, 1, last + 1]), 0).into()).unwrap();
        socket.connect(member).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.read_exact(&mut [0; 21]).unwrap();
    let nonce = [7; 16];
    let mut bytes = nonce.to_vec();
    let mut frame = |call: u64, contents: &[u8]| {
        bytes.extend(u32::try_from(12 + contents.len()).unwrap().to_le_bytes());
        bytes.extend(call.to_le_bytes());
        bytes.extend(contents);
    };
    let mut role = vec![3];
    role.extend([0; 8]);
    role.extend(source.to_le_bytes());
    role.extend([0; 16]);
    frame(0, &[b"TNSQ\x02", &nonce[..], &feed_id("orders"), &role].concat());
    for call in 1..=QUESTIONS {
        let (from, max_bytes, wait_ms) = (0_u64, 512_u32 << 10, 0_u32);
        let fetch =
            [&[16][..], &from.to_le_bytes(), &max_bytes.to_le_bytes(), &wait_ms.to_le_bytes()];
        frame(call, &fetch.concat());
    }
    stream.write_all(&bytes).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

#[test]
fn callers_that_take_no_answers_do_not_make_a_member_grow() {
    let hosts = Hosts::new(1);
    let nodes = hosts.begin();
    let config = BusConfig::new().directory(hosts.directory(0));
    let commands = Commands::open_with(config, "orders").unwrap();
    for _ in 0..40 {
        commands.send("t", vec![7; 64 << 10]).unwrap();
    }
    wait_until("all are events", || hosts.status()["events"].as_u64() >= Some(40));
    let mut held: Vec<_> = (1..=CALLERS).map(|source| ask(hosts.addresses[0], source)).collect();
    wait_until("all are given up", || {
        // What is written is not read before the questions are answered.
        held.retain_mut(|stream| match stream.write(&[0]) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        });
        held.is_empty()
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", nodes[0].id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    println!("at most {} MiB", most >> 10);
    assert!(most <= MOST_KIB, "{most} KiB");
    nodes.into_iter().for_each(leave);
}
