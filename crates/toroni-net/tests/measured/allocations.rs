//! A node that runs does not allocate: it sends, receives, repairs and sleeps in the memory that it has.

use crate::support::{PATIENCE, buses, config, group, receiving, sending, settings};
use std::time::{Duration, Instant};
use toroni::Publisher;
use toroni_net::node::{Event, Node};
use toroni_proto::arrivals;
use toroni_testkit::allocations::{Counting, allocations};
use toroni_testkit::{Directory, turn};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How much of the counters of the kernel a node reads again each second.
const EACH_SECOND: usize = 2;

/// A node that this thread runs, in turn with another one.
struct Counted {
    node: Node,
    /// Turns and waits that have allocated.
    allocating: usize,
    joined: bool,
}

impl Counted {
    fn new(node: Node) -> Self {
        Self { node, allocating: 0, joined: false }
    }

    fn turn(&mut self) {
        let (allocated, more) = allocations(|| self.node.turn());
        self.allocating += usize::from(allocated > 0);
        // Something for the other one may be in this thread.
        if !more.unwrap() {
            self.node.set_longest_sleep(Duration::from_millis(1));
            let (allocated, slept) = allocations(|| self.node.wait(None));
            slept.unwrap();
            self.allocating += usize::from(allocated > 0);
        }
        loop {
            let (allocated, event) = allocations(|| self.node.event());
            self.allocating += usize::from(allocated > 0);
            let Some(event) = event else { break };
            self.joined |= matches!(event, Event::Arrivals(arrivals::Event::Joined(_)));
        }
    }
}

/// Publishes bursts, of messages of all lengths, until the other bus has them.
fn exchange(publisher: &Publisher, nodes: &mut [Counted; 2], bursts: usize) {
    let brought = |nodes: &[Counted; 2]| {
        nodes[1].node.receiving().map(|(_, inlet)| inlet.counters().messages).sum::<u64>()
    };
    let begun = Instant::now();
    let payload = vec![7; 100_000];
    for burst in 0..bursts {
        let before = brought(nodes);
        let count = [1, 40, 300][burst % 3];
        for number in 0..count {
            let length = if number == 39 { 100_000 } else { [20, 700, 3_000][number % 3] };
            publisher.publish(&payload[..length]).unwrap();
        }
        while brought(nodes) < before + count as u64 {
            assert!(begun.elapsed() < PATIENCE, "{} of {count} came", brought(nodes) - before);
            nodes.iter_mut().for_each(Counted::turn);
        }
    }
}

#[test]
fn a_node_that_sends_and_one_that_receives_do_not_allocate() {
    let _turn = turn();
    let directory = Directory::new();
    let [from, to] = buses(&directory);
    let (group, config) = (group(), config(800_000_000));
    let _subscriber = to.subscriber().gating(false).pattern("**").build().unwrap();
    let settings = [
        sending(settings(&["lo"], "a", 1), group, &config),
        receiving(settings(&["lo"], "b", 2), group, &config),
    ];
    let [a, b] = [(&from, &settings[0]), (&to, &settings[1])]
        .map(|(bus, settings)| Counted::new(Node::new(bus, settings).unwrap()));
    let mut nodes = [a, b];
    let publisher = from.publisher("plant/a").unwrap();
    let begun = Instant::now();
    while !nodes[1].joined {
        assert!(begun.elapsed() < PATIENCE, "the node hears nothing");
        publisher.publish("first").unwrap();
        nodes.iter_mut().for_each(Counted::turn);
    }
    exchange(&publisher, &mut nodes, 60);
    assert!(nodes.iter().all(|node| node.allocating > 0), "a counter that counts nothing");
    let begun = Instant::now();
    nodes.iter_mut().for_each(|node| node.allocating = 0);
    exchange(&publisher, &mut nodes, 300);
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    for (node, name) in nodes.iter().zip(["sender", "receiver"]) {
        let most = EACH_SECOND * seconds;
        assert!(node.allocating <= most, "{name}: {} in {seconds} s", node.allocating);
    }
}
