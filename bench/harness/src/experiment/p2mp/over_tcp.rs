//! Batches over a TCP connection to each receiver, on the loopback interface. The sender makes a batch once and sends it to
//! one receiver after the other; a receiver takes what a read returns.

use super::carrier::{Plan, Receives, Sends};
use super::objects::{OBJECT, Seen, make};
use crate::Failure;
use crate::experiment::tcp::{accept, connect};
use crate::run_directory::RunDirectory;
use std::io::{Read, Write};
use std::net::TcpStream;

pub(super) struct Sender {
    receivers: Vec<TcpStream>,
    batch: Vec<u8>,
}

impl Sender {
    pub(super) fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        let receivers = accept(directory, plan.receivers)?;
        Ok(Self { receivers, batch: vec![0; plan.batch_bytes / OBJECT * OBJECT] })
    }
}

impl Sends for Sender {
    fn send(&mut self, first: u64, left: u64) -> Result<u64, Failure> {
        let objects = usize::try_from(left).unwrap_or(usize::MAX).min(self.batch.len() / OBJECT);
        let batch = &mut self.batch[..objects * OBJECT];
        let made = make(batch, first);
        for receiver in &mut self.receivers {
            receiver.write_all(batch).map_err(Failure::of("send a batch"))?;
        }
        Ok(made)
    }
}

pub(super) struct Receiver {
    sender: TcpStream,
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that begin an object.
    begun: usize,
}

impl Receiver {
    pub(super) fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        Ok(Self {
            sender: connect(directory)?,
            buffer: vec![0; plan.batch_bytes + OBJECT],
            begun: 0,
        })
    }
}

impl Receives for Receiver {
    fn receive(&mut self, seen: &mut Seen) -> Result<(), Failure> {
        let free = &mut self.buffer[self.begun..];
        let length = self.sender.read(free).map_err(Failure::of("receive a batch"))?;
        if length == 0 {
            return Err(Failure::new("the sender has closed its connection"));
        }
        let filled = self.begun + length;
        let whole = filled / OBJECT * OBJECT;
        seen.check(&self.buffer[..whole]);
        self.buffer.copy_within(whole..filled, 0);
        self.begun = filled - whole;
        Ok(())
    }
}
