//! What a sender does.

use std::hint::black_box;

use toroni_proto::id::{Sequence, Session, Source};
use toroni_proto::wire::{Nak, NodeName, Range, Receiver, Status as StatusOf};

use crate::Machine;
use crate::rig::{self, MESSAGES, Packer};

/// Packs messages and takes the datagrams.
pub struct Pack {
    packer: Packer,
    ms: u64,
}

impl Pack {
    #[must_use]
    pub fn new(message_bytes: usize, signed: bool) -> Self {
        let keys = signed.then(rig::keys);
        Self { packer: Packer::new(&rig::config(), message_bytes, keys), ms: 0 }
    }
}

impl Machine for Pack {
    fn prepare(&mut self) {
        self.ms += 1;
    }

    fn run(&mut self) -> u64 {
        let now = rig::at(self.ms);
        for _ in 0..MESSAGES {
            self.packer.message(now);
        }
        self.packer.send(now, |datagram| {
            black_box(datagram);
        });
        MESSAGES
    }
}

/// Reads NAKs for one datagram each, and sends that again.
pub struct Repair {
    packer: Packer,
    naks: Vec<Vec<u8>>,
    ms: u64,
}

/// NAKs of a round.
const NAKS: u64 = 128;

impl Repair {
    #[must_use]
    #[expect(clippy::new_without_default, reason = "as the other machines")]
    pub fn new() -> Self {
        let mut packer = Packer::new(&rig::config(), 1_024, None);
        for _ in 0..NAKS {
            packer.message(rig::at(0));
        }
        packer.send(rig::at(0), |_| {});
        let receiver = Receiver { source: Source(9), session: Session(1) };
        let naks = (0..NAKS)
            .map(|at| {
                let first = Sequence::new(at).expect("below 2⁶³");
                let range = Range::new(first, 1).expect("not empty");
                encoded(|buffer| {
                    Nak::encode(&rig::header(), receiver, rig::at(0).wall, &[range], None, buffer)
                })
            })
            .collect();
        Self { packer, naks, ms: 0 }
    }
}

impl Machine for Repair {
    fn prepare(&mut self) {
        // What was sent again is sent another time after 10 ms.
        self.ms += 20;
        self.packer.send(rig::at(self.ms), |_| {});
    }

    fn run(&mut self) -> u64 {
        let now = rig::at(self.ms);
        let mut repaired = 0;
        for nak in &self.naks {
            let taken = self.packer.sender.handle_datagram(now, rig::address(9), nak);
            taken.expect("a NAK of our own making");
            while let Some(datagram) = self.packer.sender.poll_transmit(now) {
                black_box(datagram);
                repaired += 1;
            }
        }
        assert_eq!(repaired, NAKS, "each NAK is answered by one datagram");
        NAKS
    }
}

/// Reads one STATUS of each of many receivers.
pub struct Status {
    packer: Packer,
    statuses: Vec<Vec<u8>>,
    ms: u64,
}

impl Status {
    #[must_use]
    pub fn new(receivers: u16) -> Self {
        let mut packer = Packer::new(&rig::config(), 64, None);
        packer.send(rig::at(0), |_| {});
        let statuses = (0..receivers)
            .map(|host| {
                let name = format!("line-{host}");
                let status = StatusOf {
                    receiver: Receiver { source: Source(u32::from(host)), session: Session(1) },
                    window: 1 << 20,
                    required: false,
                    new: false,
                    lost: 0,
                    naks: 0,
                    echo: rig::at(0).wall,
                    held_us: 10,
                    dropped: 0,
                    count: 1,
                    nonce: 0,
                    name: NodeName::new(&name).expect("a name"),
                };
                encoded(|buffer| status.encode(&rig::header(), None, buffer))
            })
            .collect();
        Self { packer, statuses, ms: 0 }
    }
}

impl Machine for Status {
    fn prepare(&mut self) {
        self.ms += 100;
    }

    fn run(&mut self) -> u64 {
        let now = rig::at(self.ms);
        for (host, status) in (0..).zip(&self.statuses) {
            let taken = self.packer.sender.handle_datagram(now, rig::address(host), status);
            taken.expect("a STATUS of our own making");
        }
        let known = self.packer.sender.audience().members().len();
        assert_eq!(known, self.statuses.len(), "each receiver is known");
        known as u64
    }
}

fn encoded<E: std::fmt::Debug>(encode: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Vec<u8> {
    let mut buffer = vec![0; 1_408];
    let length = encode(&mut buffer).expect("a buffer of a datagram");
    buffer.truncate(length);
    buffer
}
