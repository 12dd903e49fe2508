//! The server of a source, as the node asks it for history.

use super::super::tcp::dial::Dial;
use super::super::tcp::{TcpError, Token};
use super::AGAIN_NS;
use super::missing::Missing;
use crate::inlet::Inlet;
use std::net::SocketAddr;
use toroni_proto::arrivals::{Flow, Inbox, Opening};
use toroni_proto::bounded::client::Identity;
use toroni_proto::random::Random;
use toroni_proto::reassembly::{Loss, Message};
use toroni_proto::receiver::Mark;
use toroni_proto::time::Monotonic;
use toroni_proto::wire::{TableName, TopicNumber};

/// A connection for the history of one stream.
pub(super) struct Server {
    pub(super) index: usize,
    pub(super) dial: Dial,
    /// When it was asked last, on this connection.
    asked: Option<Monotonic>,
    /// It has brought all that it has, and is asked again then.
    again: Option<Monotonic>,
}

impl Server {
    pub(super) fn new(
        address: SocketAddr,
        index: usize,
        identity: &Identity,
        message_max_bytes: u64,
        random: &mut Random,
        now: Monotonic,
    ) -> Result<Self, TcpError> {
        let (token, random) = (Token::Connection(index), Random::new(random.number()));
        let dial = Dial::for_history(address, token, identity, message_max_bytes, random, now)?;
        Ok(Self { index, dial, asked: None, again: None })
    }

    /// Returns whether the server has this stream, with the same numbers.
    pub(super) fn serves(&mut self, wanted: Flow) -> bool {
        (self.asked, self.again) = (None, None);
        let same = |flow: Flow| {
            (flow.source, flow.stream, flow.series) == (wanted.source, wanted.stream, wanted.series)
        };
        self.dial.client.flows().any(same)
    }

    /// Asks for what is missing, if nothing is being brought.
    pub(super) fn ask(&mut self, now: Monotonic, flow: Flow, missing: &mut Missing) {
        let Some(until) = missing.until else { return };
        let Flow { source, stream, .. } = flow;
        let client = &mut self.dial.client;
        if self.asked.is_none() {
            if !missing.is_over() && client.replay(source, stream, missing.next, Some(until)) {
                (self.asked, self.again) = (Some(now), None);
            }
            return;
        }
        let Some((reached, has_ended)) = client.replayed(source, stream) else { return };
        missing.passed(reached);
        if !has_ended {
            return;
        }
        // It had not taken more from its bus, or more is missing by now.
        match self.again {
            None => self.again = Some(now.after(AGAIN_NS)),
            Some(due) if due <= now => self.asked = None,
            Some(_) => {}
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        self.dial.client.poll_timeout().into_iter().chain(self.again).min()
    }
}

/// Brings history to the inlet.
pub(super) struct Progress<'a> {
    /// The stream as it comes from the group.
    pub(super) live: Flow,
    pub(super) missing: &'a mut Missing,
    pub(super) inlet: &'a mut Inlet,
    pub(super) brought: u64,
    /// The server has another series.
    pub(super) is_other: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(live: Flow, missing: &'a mut Missing, inlet: &'a mut Inlet) -> Self {
        Self { live, missing, inlet, brought: 0, is_other: false }
    }

    fn is_wanted(&self, flow: Flow) -> bool {
        (flow.source, flow.stream) == (self.live.source, self.live.stream)
    }
}

impl Inbox for Progress<'_> {
    fn begins(&mut self, flow: Flow, _: &Opening) -> Option<Mark> {
        if self.is_wanted(flow) {
            self.is_other |= flow.series != self.live.series;
            self.inlet.begin_history(flow);
        }
        None
    }

    fn message(&mut self, flow: Flow, message: Message<'_>) {
        if self.is_wanted(flow) && !self.is_other && self.missing.brought(message.start.number) {
            self.brought += 1;
            self.inlet.history_message(flow, message);
        }
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        if self.is_wanted(flow) {
            self.inlet.history_topic(flow, number, name);
        }
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        if self.is_wanted(flow)
            && !self.is_other
            && let Some(lost) = self.missing.gone(&loss)
        {
            self.inlet.loss(self.live, lost);
        }
    }
}
