//! The processes of a run.

use super::{Audience, Plan};
use crate::Failure;
use crate::child::Child;
use crate::clock::{cpu_ns, now_ns};
use crate::job::Role;
use crate::registry::Work;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Guarantees, Transport};
use serde::{Deserialize, Serialize};
use std::path::Path;
use toroni::{Bus, BusConfig, Policy, Publisher, Subscriber};

/// The result of the publisher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// When it began, and when the last message was published, by [`now_ns`].
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// CPU time between the two.
    pub(super) cpu_ns: u64,
}

/// The result of a subscriber.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Received {
    /// When it got the end message, by [`now_ns`].
    pub(super) ended_ns: u64,
    /// CPU time since it was ready.
    pub(super) cpu_ns: u64,
    /// Number of messages, without the end message.
    pub(super) messages: u64,
    /// Number of messages that were not the next one.
    pub(super) wrong: u64,
}

const BUS: &str = "scale";
/// Topic of the end message, the last one, which all subscribers get.
const END: &str = "end";

impl Work for Plan {
    const NAME: &'static str = "scale";
    type Sent = Sent;
    type Received = Received;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _host = host(&job.directory, self)?;
                child.host(About {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    settings: format!("{self:?}"),
                    guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
                })
            }
            Role::Sender(_) => {
                let bus = open(&job.directory)?;
                let publisher =
                    |topic: &str| bus.publisher(topic).map_err(Failure::of("make a publisher"));
                let publishers: Vec<Publisher> = (0..self.topics)
                    .map(|number| publisher(&format!("scale/{number}")))
                    .collect::<Result<_, _>>()?;
                let end = publisher(END)?;
                child.ready()?;
                child.wait_at_gate()?;
                let sent = send(&publishers, &end, self)?;
                child.finish()?;
                child.result(&sent)
            }
            Role::Receiver(_) => {
                let mut subscriber = subscribe(&open(&job.directory)?, self)?;
                child.ready()?;
                let received = receive(&mut subscriber)?;
                child.finish()?;
                child.result(&received)
            }
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
        // Only the end message is empty.
        let Some(number) = message.payload().first_chunk::<8>() else { break };
        wrong += u64::from(u64::from_le_bytes(*number) != messages);
        messages += 1;
    }
    let (ended_ns, cpu_ns) = (now_ns(), cpu_ns() - cpu_before_ns);
    Ok(Received { ended_ns, cpu_ns, messages, wrong })
}

/// Subscribes, with the matching patterns last.
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
        // 64 bytes are more than a name takes.
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
