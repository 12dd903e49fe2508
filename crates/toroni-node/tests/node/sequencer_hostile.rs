//! A host that holds connections to all members while their leader dies, or that would be a member itself.

use crate::sequencer::{Hosts, error};
use crate::support::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;
use toroni_proto::wire::{Key, Keys};
use toroni_sequencer::raft::feed_id;
use toroni_sequencer::rpc::{Answer, Link, LinkError, Request, Role, Target, identify};
use toroni_testkit::OnDrop;
use toroni_testkit::network::Setup;

/// To each member: more than it had places for all callers once.
const HELD: u32 = 300;
/// A member keeps a few of those that say nothing. The others come again after this time: the machine is shared.
const AGAIN: Duration = Duration::from_millis(300);

/// Connects again and again, and says nothing.
async fn say_nothing(member: SocketAddr, began: Arc<AtomicU32>) {
    loop {
        if let Ok(stream) = TcpStream::connect(member).await {
            began.fetch_add(1, Ordering::Relaxed);
            until_it_ends(&stream).await;
        }
        sleep(AGAIN).await;
    }
}

async fn until_it_ends(stream: &TcpStream) {
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut [0; 32]) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Has the key, and asks now and then.
async fn behave_as_a_host(member: SocketAddr, source: u32, began: Arc<AtomicU32>) {
    let link = Link::new(Target {
        address: member.to_string(),
        feed: feed_id("orders"),
        keys: Some(Keys { first: Key::new([5; 32]), next: None }),
        role: Role::Follower { source: Some(source) },
        log: None,
        bind: None,
    });
    loop {
        if let Ok(Answer::Status(_)) = link.call(&Request::Status).await {
            began.fetch_add(1, Ordering::Relaxed);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn another_member_leads_while_a_host_holds_all_the_connections_that_it_can() {
    let Some(network) = Setup::new(4).bridged() else { return };
    // For the connections of this process.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let hosts = Hosts::on(network, 3);
    let mut nodes = hosts.begin();
    let hostile = &hosts.network.as_ref().unwrap().hosts[3];
    let (began, ends) = (Arc::new(AtomicU32::new(0)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (of_hostile, ends, members) = (Arc::clone(&began), &ends, &hosts.addresses);
        scope.spawn(move || {
            hostile.enter(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    let mut held = JoinSet::new();
                    for source in 1..=HELD {
                        for member in members {
                            if source % 3 == 0 {
                                held.spawn(say_nothing(*member, Arc::clone(&of_hostile)));
                            }
                            held.spawn(behave_as_a_host(*member, source, Arc::clone(&of_hostile)));
                        }
                    }
                    while !ends.load(Ordering::Relaxed) {
                        sleep(AGAIN).await;
                    }
                });
            });
        });
        let _end = OnDrop(|| ends.store(true, Ordering::Relaxed));
        wait_until("the connections are held", || began.load(Ordering::Relaxed) > 2 * 3 * HELD);
        for _ in 0..2 {
            let leader = hosts.wait_for_leader();
            nodes[leader].kill();
            wait_until("another one leads", || hosts.leader().is_some_and(|other| other != leader));
            wait_until("a command becomes an event", || {
                let other = (leader + 1) % 3;
                let sent = hosts.try_sequencer(other, &["send", "t", "x", "--timeout", "5s"]);
                assert!(sent.status.success() || !error(&sent).is_empty(), "{sent:?}");
                sent.status.success()
            });
            nodes[leader] = hosts.start(leader);
            hosts.wait_until_equal();
        }
    });
}

/// Their hosts would call from other addresses by themselves.
#[test]
fn without_a_key_members_know_each_other_by_the_addresses_at_which_they_listen() {
    let Some(network) = Setup::new(4).bridged() else { return };
    let mut hosts = Hosts::on(network, 3);
    hosts.keys = ["interfaces = ['eth0']".to_owned(), String::new()];
    let network = hosts.network.as_ref().unwrap();
    for (number, host) in (101..104).zip(&network.hosts) {
        let other = format!("10.77.0.{number}");
        host.namespace().ip(&[
            format!("addr add {other}/24 dev eth0"),
            format!("route change 10.77.0.0/24 dev eth0 src {other}"),
        ]);
    }
    let mut nodes = hosts.begin();
    hosts.wait_until_equal();
    // It has all the rights of a caller, but those of a member.
    let target = |role| Target {
        address: hosts.addresses[0].to_string(),
        feed: feed_id("orders"),
        keys: None,
        role,
        log: None,
        bind: None,
    };
    let (member, tool) = (target(Role::Member { id: 1, log: [7; 16] }), target(Role::Tool));
    network.hosts[3].enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        wait_until("it is refused", || match runtime.block_on(identify(&member)) {
            Err(LinkError::Refused(why)) => {
                let addresses = "10.77.0.4 is none of 10.77.0.1, 10.77.0.2, 10.77.0.3";
                assert!(why.contains(addresses), "{why}");
                true
            }
            Ok(_) => panic!("it is a member"),
            Err(_) => false,
        });
        wait_until("it is served", || runtime.block_on(identify(&tool)).is_ok());
    });
    // Also after another one leads.
    let leader = hosts.wait_for_leader();
    nodes[leader].kill();
    wait_until("another one leads", || hosts.leader().is_some_and(|other| other != leader));
}
