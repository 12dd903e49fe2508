//! What the processes of one run do.

use super::{Audience, Plan};
use crate::Failure;
use crate::child::Child;
use crate::clock::{cpu_ns, now_ns};
use crate::job::{Job, Role};
use crate::run_directory::RunDirectory;
use crate::transport::{About, Guarantees};
use serde::{Deserialize, Serialize};
use std::path::Path;
use toroni::{Bus, BusConfig, Policy, Publisher, Subscriber};

/// What the publisher says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    /// When it began, and when the last message was published; see [`now_ns`].
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// CPU time of that.
    pub(super) cpu_ns: u64,
}

/// What a subscriber says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Received {
    /// When it saw the end; see [`now_ns`].
    pub(super) ended_ns: u64,
    /// CPU time from when it was ready.
    pub(super) cpu_ns: u64,
    /// Messages, without the end.
    pub(super) messages: u64,
    /// Those that were not the next one.
    pub(super) wrong: u64,
}

const BUS: &str = "scale";
/// The last message goes to all, on a topic of its own.
const END: &str = "end";

pub(crate) fn perform(child: &mut Child, job: &Job, plan: &Plan) -> Result<(), Failure> {
    match job.role {
        Role::Host => {
            let _host = host(&job.directory, plan)?;
            child.host(About {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                settings: format!("{plan:?}"),
                guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
            })
        }
        Role::Sender(_) => {
            let bus = open(&job.directory)?;
            let publisher =
                |topic: &str| bus.publisher(topic).map_err(Failure::of("make a publisher"));
            let publishers: Vec<Publisher> = (0..plan.topics)
                .map(|number| publisher(&format!("scale/{number}")))
                .collect::<Result<_, _>>()?;
            let end = publisher(END)?;
            child.ready()?;
            child.wait_at_gate()?;
            let sent = send(&publishers, &end, plan)?;
            child.finish()?;
            child.result(&sent)
        }
        Role::Receiver(_) => {
            let mut subscriber = subscribe(&open(&job.directory)?, plan)?;
            child.ready()?;
            let received = receive(&mut subscriber)?;
            child.finish()?;
            child.result(&received)
        }
    }
}

fn send(publishers: &[Publisher], end: &Publisher, plan: &Plan) -> Result<Sent, Failure> {
    let mut message = vec![0x5a; plan.message_bytes];
    let (began_ns, cpu_before_ns) = (now_ns(), cpu_ns());
    let mut turn = publishers.iter().cycle();
    for number in 0..plan.messages {
        if let Some(first) = message.first_chunk_mut::<8>() {
            *first = number.to_le_bytes();
        }
        if let Some(publisher) = turn.next() {
            publisher.publish(&message).map_err(Failure::of("publish"))?;
        }
    }
    let (ended_ns, cpu_ns) = (now_ns(), cpu_ns() - cpu_before_ns);
    end.publish([]).map_err(Failure::of("publish the end"))?;
    Ok(Sent { began_ns, ended_ns, cpu_ns })
}

fn receive(subscriber: &mut Subscriber) -> Result<Received, Failure> {
    let cpu_before_ns = cpu_ns();
    let (mut messages, mut wrong) = (0, 0);
    loop {
        let message = subscriber.receive().map_err(Failure::of("receive"))?;
        // Only the end is empty.
        let Some(number) = message.payload().first_chunk::<8>() else { break };
        wrong += u64::from(u64::from_le_bytes(*number) != messages);
        messages += 1;
    }
    let (ended_ns, cpu_ns) = (now_ns(), cpu_ns() - cpu_before_ns);
    Ok(Received { ended_ns, cpu_ns, messages, wrong })
}

/// The patterns that match come last.
fn subscribe(bus: &Bus, plan: &Plan) -> Result<Subscriber, Failure> {
    let mut builder = bus.subscriber().pattern(END);
    let others = match plan.audience {
        Audience::Wanting => plan.patterns.saturating_sub(1),
        Audience::NotWanting => plan.patterns,
    };
    for number in 0..others {
        builder = builder.pattern(format!("other/{number}/*"));
    }
    if plan.audience == Audience::Wanting {
        builder = builder.pattern("scale/*");
    }
    builder.build().map_err(Failure::of("subscribe"))
}

fn host(directory: &RunDirectory, plan: &Plan) -> Result<Bus, Failure> {
    config(&directory.path)
        .capacity(plan.capacity_bytes)
        // 64 bytes for each name are more than it takes.
        .topic_table_bytes((u64::from(plan.topics) * 64).max(1 << 20).next_power_of_two())
        .policy(Policy::Wait { limit: None })
        .create(BUS)
        .map_err(Failure::of("create the bus"))
}

fn open(directory: &RunDirectory) -> Result<Bus, Failure> {
    config(&directory.path).open_existing(BUS).map_err(Failure::of("open the bus"))
}

fn config(directory: &Path) -> BusConfig {
    BusConfig::new().directory(directory).prefault(true)
}
