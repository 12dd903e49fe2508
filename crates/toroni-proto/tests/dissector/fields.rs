//! The fields of a packet: those that tshark shows, and those that follow from our decoder.

use std::collections::BTreeMap;

use super::capture::ARRIVING_TTL;
use super::tshark::AGGREGATOR;
use crate::wire::chunk::{Chunk, Start};
use crate::wire::{
    Address, Body, Bound, Datagram, Flags, Placed, ProbeKind, Ranges, Receiver, SessionInfo,
    Status, tcp,
};

/// All fields that are compared, and then those that say what is wrong.
pub(super) const NAMES: &[&str] = &[
    "toroni.version",
    "toroni.type",
    "toroni.flags.retransmission",
    "toroni.flags.end",
    "toroni.flags.sealed",
    "toroni.flags.feed",
    "toroni.flags.mac",
    "toroni.ttl",
    "toroni.hops",
    "toroni.length",
    "toroni.realm",
    "toroni.stream",
    "toroni.source",
    "toroni.session",
    "toroni.sequence",
    "toroni.mac",
    "toroni.sent_ns",
    "toroni.message",
    "toroni.number",
    "toroni.behind",
    "toroni.chunks",
    "toroni.chunk.type",
    "toroni.chunk.flags.first",
    "toroni.chunk.flags.last",
    "toroni.chunk.flags.to_descendants",
    "toroni.chunk.flags.timestamp",
    "toroni.chunk.flags.origin",
    "toroni.chunk.topic",
    "toroni.chunk.message",
    "toroni.chunk.number",
    "toroni.chunk.published_ns",
    "toroni.chunk.origin.source",
    "toroni.chunk.origin.series",
    "toroni.chunk.origin.stream",
    "toroni.chunk.origin.number",
    "toroni.chunk.total",
    "toroni.chunk.offset",
    "toroni.chunk.payload",
    "toroni.chunk.name",
    "toroni.chunk.lost",
    "toroni.chunk.until",
    "toroni.chunk.reason",
    "toroni.first",
    "toroni.begins",
    "toroni.series",
    "toroni.rtt_us",
    "toroni.receivers",
    "toroni.listen",
    "toroni.topics",
    "toroni.data_kbit",
    "toroni.retransmit_kbit",
    "toroni.window_ms",
    "toroni.next_ms",
    "toroni.datagram",
    "toroni.instance",
    "toroni.policy",
    "toroni.patterns",
    "toroni.repairers",
    "toroni.repairer",
    "toroni.name",
    "toroni.receiver",
    "toroni.receiver_session",
    "toroni.ranges",
    "toroni.range.first",
    "toroni.range.count",
    "toroni.ncf.reason",
    "toroni.status.window",
    "toroni.status.required",
    "toroni.status.new",
    "toroni.status.lost",
    "toroni.status.naks",
    "toroni.echo_ns",
    "toroni.status.count",
    "toroni.nonce",
    "toroni.unsure",
    "toroni.head",
    "toroni.prior",
    "toroni.legs",
    "toroni.leg",
    "toroni.status.held_us",
    "toroni.status.dropped",
    "toroni.table.first",
    "toroni.table.count",
    "toroni.table.number",
    "toroni.table.name",
    "toroni.probe.asker",
    "toroni.probe.type",
    "toroni.probe.heard",
    "toroni.probe.of",
    "toroni.probe.padding",
    "toroni.tcp.length",
    "toroni.tcp.type",
    "toroni.tcp.flags.replay",
    "toroni.tcp.flags.end",
    "toroni.tcp.flags.feed",
    "toroni.tcp.flags.mac",
    "toroni.tcp.stream",
    "toroni.tcp.nonce",
    "toroni.tcp.message_max",
    "toroni.tcp.pattern",
    "toroni.tcp.resumes",
    "toroni.tcp.resume.number",
    "toroni.tcp.streams",
    "toroni.tcp.set",
    "toroni.tcp.beat_ms",
    "toroni.tcp.beat.streams",
    "toroni.tcp.gap.first",
    "toroni.tcp.gap.until",
    "toroni.tcp.gap.count",
    "toroni.tcp.gap.reason",
    "toroni.tcp.gap.bound",
    "toroni.tcp.replay.first",
    "toroni.tcp.replay.until",
    "toroni.tcp.bye.reason",
    MALFORMED,
    LUA_ERROR,
];

/// The contents contradict their lengths.
const MALFORMED: &str = "toroni.malformed";
/// The dissector itself has failed.
const LUA_ERROR: &str = "_ws.lua.error";

/// Names of fields, with their values in the order of the packet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(BTreeMap<&'static str, Vec<String>>);

impl Fields {
    /// Reads a line of tshark, which has all of [`NAMES`].
    pub(super) fn of_line(line: &str) -> Self {
        let values: Vec<&str> = line.split('\t').collect();
        assert_eq!(values.len(), NAMES.len(), "{line}");
        let there = NAMES.iter().zip(values).filter(|(_, value)| !value.is_empty());
        Self(
            there
                .map(|(name, values)| {
                    (*name, values.split(AGGREGATOR).map(str::to_owned).collect())
                })
                .collect(),
        )
    }

    /// Returns the values of a field.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// Whether the dissector itself failed.
    pub(super) fn has_failed(&self) -> bool {
        self.0.contains_key(LUA_ERROR)
    }

    /// Whether tshark prints all values as they are, so that they can be compared.
    pub(super) fn is_printable(&self) -> bool {
        let is_plain = |value: &String| {
            !value.contains([AGGREGATOR, '\\']) && !value.contains(char::is_control)
        };
        self.0.values().flatten().all(is_plain)
    }

    /// What our decoder finds in a datagram. `mac` are the bytes of its MAC, if it has one.
    pub(super) fn of_datagram(datagram: &Datagram<'_>, length: usize, mac: Option<&[u8]>) -> Self {
        let mut fields = Self::default();
        let header = &datagram.header;
        fields.decimal("toroni.version", crate::wire::VERSION);
        fields.decimal("toroni.type", kind_of(&datagram.body) as u8);
        for (flag, name) in [
            (Flags::RETRANSMISSION, "toroni.flags.retransmission"),
            (Flags::END, "toroni.flags.end"),
            (Flags::SEALED, "toroni.flags.sealed"),
            (Flags::FEED, "toroni.flags.feed"),
        ] {
            fields.bit(name, header.flags.has(flag));
        }
        fields.bit("toroni.flags.mac", mac.is_some());
        fields.decimal("toroni.ttl", header.ttl);
        if let Some(hops) = header.ttl.checked_sub(ARRIVING_TTL) {
            fields.decimal("toroni.hops", hops);
        }
        fields.decimal("toroni.length", length);
        fields.hexadecimal("toroni.realm", header.realm.0);
        fields.decimal("toroni.stream", header.stream.0);
        fields.hexadecimal("toroni.source", header.source.0);
        fields.decimal("toroni.session", header.session.0);
        fields.decimal("toroni.sequence", header.sequence.get());
        if let Some(mac) = mac {
            fields.bytes("toroni.mac", mac);
        }
        match &datagram.body {
            Body::Data(data) => {
                fields.decimal("toroni.sent_ns", data.sent.ns());
                fields.decimal("toroni.message", data.message.get());
                fields.decimal("toroni.number", data.number.get());
                fields.decimal("toroni.behind", header.sequence.since(data.trail));
                fields.decimal("toroni.chunks", data.chunk_count());
                fields.decimal("toroni.unsure", data.unsure);
                data.chunks().for_each(|placed| fields.chunk(&placed));
            }
            Body::Session(session) => {
                fields.session(session, header.sequence.since(session.trail));
            }
            Body::Nak(nak) => {
                fields.receiver(nak.receiver);
                fields.decimal("toroni.echo_ns", nak.echo.ns());
                fields.ranges(nak.ranges);
            }
            Body::Ncf(ncf) => {
                fields.decimal("toroni.ncf.reason", ncf.reason as u8);
                fields.ranges(ncf.ranges);
            }
            Body::Status(status) => fields.status(status),
            Body::Topics(topics) => {
                fields.decimal("toroni.table.first", topics.first.get());
                for (at, name) in (topics.first.get()..).zip(topics.names()) {
                    fields.decimal("toroni.table.number", at);
                    fields.text("toroni.table.name", name.as_str());
                }
                fields.decimal("toroni.table.count", topics.names().count());
            }
            Body::TopicsWanted(wanted) => {
                fields.receiver(wanted.receiver);
                fields.decimal("toroni.table.first", wanted.first.get());
                fields.decimal("toroni.table.count", wanted.count);
                fields.decimal("toroni.echo_ns", wanted.echo.ns());
            }
            Body::Probe(probe) => {
                fields.decimal("toroni.sent_ns", probe.sent.ns());
                let (kind, asker, [heard, of]) = match probe.kind {
                    ProbeKind::Ask { padding } => {
                        fields.decimal("toroni.probe.padding", padding);
                        (1, 0, [0; 2])
                    }
                    ProbeKind::Answer { asker, heard, of } => (2, asker.0, [heard, of]),
                };
                fields.hexadecimal("toroni.probe.asker", asker);
                fields.decimal("toroni.probe.type", kind);
                fields.decimal("toroni.probe.heard", heard);
                fields.decimal("toroni.probe.of", of);
                fields.text("toroni.name", probe.name.as_str());
            }
            Body::Echo(echo) => {
                fields.decimal("toroni.sent_ns", echo.sent.ns());
                echo.nonces().for_each(|nonce| fields.nonce(nonce));
            }
        }
        fields
    }

    /// What our decoder finds in a frame.
    pub(super) fn of_frame(frame: &tcp::Frame<'_>, length: usize, mac: Option<&[u8]>) -> Self {
        let mut fields = Self::default();
        let header = &frame.header;
        fields.decimal("toroni.tcp.length", length);
        fields.decimal("toroni.tcp.type", header.kind as u8);
        for (flag, name) in [
            (tcp::Flags::REPLAY, "toroni.tcp.flags.replay"),
            (tcp::Flags::END, "toroni.tcp.flags.end"),
            (tcp::Flags::FEED, "toroni.tcp.flags.feed"),
        ] {
            fields.bit(name, header.flags.has(flag));
        }
        fields.bit("toroni.tcp.flags.mac", mac.is_some());
        fields.decimal("toroni.tcp.stream", header.stream);
        fields.decimal("toroni.message", header.message.get());
        if let Some(mac) = mac {
            fields.bytes("toroni.mac", mac);
        }
        match &frame.body {
            tcp::Body::Hello(hello) => fields.hello(hello),
            tcp::Body::Welcome(welcome) => fields.welcome(welcome),
            tcp::Body::Data(data) => {
                fields.decimal("toroni.sent_ns", data.sent.ns());
                fields.decimal("toroni.number", data.number.get());
                fields.decimal("toroni.chunks", data.chunks().count());
                data.chunks().for_each(|placed| fields.chunk(&placed));
            }
            tcp::Body::Topics(names) => {
                for (number, name) in names.entries() {
                    fields.decimal("toroni.table.number", number.get());
                    fields.text("toroni.table.name", name.as_str());
                }
                fields.decimal("toroni.table.count", names.entries().count());
            }
            tcp::Body::Gap(gap) => {
                fields.decimal("toroni.tcp.gap.first", gap.first.get());
                fields.decimal("toroni.tcp.gap.until", gap.until.get());
                fields.decimal("toroni.tcp.gap.count", gap.count);
                fields.decimal("toroni.tcp.gap.reason", gap.reason as u8);
                let bound = match gap.bound {
                    Bound::Exact => 1,
                    Bound::AtLeast => 2,
                    Bound::AtMost => 3,
                };
                fields.decimal("toroni.tcp.gap.bound", bound);
            }
            tcp::Body::Heartbeat(beat) => {
                fields.decimal("toroni.tcp.beat.streams", beat.streams().len());
                for reached in beat.streams() {
                    fields.decimal("toroni.number", reached.number.get());
                    fields.decimal("toroni.message", reached.message.get());
                }
            }
            tcp::Body::Replay(replay) => {
                fields.decimal("toroni.tcp.replay.first", replay.first.get());
                fields.decimal("toroni.tcp.replay.until", replay.until.get());
            }
            tcp::Body::Bye(bye) => fields.decimal("toroni.tcp.bye.reason", *bye as u8),
            tcp::Body::Challenge(challenge) => fields.bytes("toroni.tcp.nonce", &challenge.0),
        }
        fields
    }

    fn chunk(&mut self, placed: &Placed<'_>) {
        let (kind, first, last, start) = match &placed.chunk {
            Chunk::Message { start, .. } => (1, false, false, Some(start)),
            Chunk::First { start, .. } => (2, true, false, Some(start)),
            Chunk::Rest { last, .. } => (2, false, *last, None),
            Chunk::Topic { .. } => (3, false, false, None),
            Chunk::Lost { .. } => (4, false, false, None),
        };
        self.decimal("toroni.chunk.type", kind);
        self.bit("toroni.chunk.flags.first", first);
        self.bit("toroni.chunk.flags.last", last);
        let has = |of: fn(&Start) -> bool| start.is_some_and(of);
        self.bit("toroni.chunk.flags.to_descendants", has(|start| start.to_descendants));
        self.bit("toroni.chunk.flags.timestamp", has(|start| start.published.is_some()));
        self.bit("toroni.chunk.flags.origin", has(|start| start.origin.is_some()));
        if kind != 3 {
            self.decimal("toroni.chunk.message", placed.message.get());
        }
        if let Some(start) = start {
            self.decimal("toroni.chunk.number", start.number.get());
            if let Some(published) = start.published {
                self.decimal("toroni.chunk.published_ns", published.ns());
            }
            if let Some(origin) = start.origin {
                self.hexadecimal("toroni.chunk.origin.source", origin.source.0);
                self.hexadecimal("toroni.chunk.origin.series", origin.series.0);
                self.decimal("toroni.chunk.origin.stream", origin.stream.0);
                self.decimal("toroni.chunk.origin.number", origin.number.get());
            }
        }
        let topic = match &placed.chunk {
            Chunk::Message { start, payload } => {
                self.bytes("toroni.chunk.payload", payload);
                start.topic.get()
            }
            Chunk::First { start, total, payload } => {
                self.decimal("toroni.chunk.total", total);
                self.bytes("toroni.chunk.payload", payload);
                start.topic.get()
            }
            Chunk::Rest { topic, offset, payload, .. } => {
                self.decimal("toroni.chunk.offset", offset);
                self.bytes("toroni.chunk.payload", payload);
                topic.get()
            }
            Chunk::Topic { number, name } => {
                self.text("toroni.chunk.name", name.as_str());
                number.get()
            }
            Chunk::Lost { count, until, reason } => {
                self.decimal("toroni.chunk.lost", count);
                self.decimal("toroni.chunk.until", until.get());
                self.decimal("toroni.chunk.reason", *reason as u8);
                0
            }
        };
        self.decimal("toroni.chunk.topic", topic);
    }

    fn session(&mut self, session: &SessionInfo<'_>, behind: u64) {
        self.decimal("toroni.sent_ns", session.sent.ns());
        self.decimal("toroni.message", session.message.get());
        self.decimal("toroni.number", session.number.get());
        self.decimal("toroni.first", session.first.get());
        self.decimal("toroni.begins", session.begins.get());
        self.hexadecimal("toroni.series", session.series.0);
        self.decimal("toroni.rtt_us", session.rtt_us);
        self.decimal("toroni.receivers", session.receivers);
        self.decimal("toroni.listen", session.listen);
        self.decimal("toroni.behind", behind);
        self.decimal("toroni.topics", session.topics);
        self.decimal("toroni.data_kbit", session.data_kbit);
        self.decimal("toroni.retransmit_kbit", session.retransmit_kbit);
        self.decimal("toroni.window_ms", session.window_ms);
        self.decimal("toroni.next_ms", session.next_ms);
        self.decimal("toroni.datagram", session.datagram);
        self.bytes("toroni.instance", &session.instance);
        self.decimal("toroni.policy", session.policy as u8);
        self.decimal("toroni.patterns", session.patterns);
        self.decimal("toroni.repairers", session.repairers.iter().count());
        self.decimal("toroni.unsure", session.unsure);
        self.decimal("toroni.head", session.past.head.get());
        self.decimal("toroni.prior", session.past.prior.0);
        self.decimal("toroni.legs", session.legs.iter().count());
        for (name, addresses) in
            [("toroni.leg", session.legs), ("toroni.repairer", session.repairers)]
        {
            for Address { ip, port } in addresses.iter() {
                let ip = std::net::Ipv6Addr::from(ip).to_canonical();
                self.text(name, &std::net::SocketAddr::new(ip, port).to_string());
            }
        }
        self.text("toroni.name", session.name.as_str());
    }

    fn status(&mut self, status: &Status<'_>) {
        self.receiver(status.receiver);
        self.decimal("toroni.status.window", status.window);
        self.bit("toroni.status.required", status.required);
        self.bit("toroni.status.new", status.new);
        self.decimal("toroni.status.lost", status.lost);
        self.decimal("toroni.status.naks", status.naks);
        self.decimal("toroni.echo_ns", status.echo.ns());
        self.decimal("toroni.status.held_us", status.held_us);
        self.decimal("toroni.status.dropped", status.dropped);
        self.decimal("toroni.status.count", status.count);
        self.nonce(status.nonce);
        self.text("toroni.name", status.name.as_str());
    }

    fn nonce(&mut self, nonce: u64) {
        self.push("toroni.nonce", format!("0x{nonce:016x}"));
    }

    fn receiver(&mut self, receiver: Receiver) {
        self.hexadecimal("toroni.receiver", receiver.source.0);
        self.decimal("toroni.receiver_session", receiver.session.0);
    }

    fn ranges(&mut self, ranges: Ranges<'_>) {
        self.decimal("toroni.ranges", ranges.iter().count());
        for range in ranges.iter() {
            self.decimal("toroni.range.first", range.first().get());
            self.decimal("toroni.range.count", range.count());
        }
    }

    fn hello(&mut self, hello: &tcp::Hello<'_>) {
        self.decimal("toroni.version", crate::wire::VERSION);
        self.hexadecimal("toroni.realm", crate::wire::samples::RULES.realm.0);
        self.hexadecimal("toroni.source", hello.source.0);
        self.decimal("toroni.session", hello.session.0);
        self.bytes("toroni.tcp.nonce", &hello.nonce);
        self.decimal("toroni.tcp.message_max", hello.message_max);
        self.decimal("toroni.patterns", hello.patterns().count());
        self.decimal("toroni.tcp.resumes", hello.resumes().count());
        for resume in hello.resumes() {
            self.hexadecimal("toroni.source", resume.source.0);
            self.hexadecimal("toroni.series", resume.series.0);
            self.decimal("toroni.tcp.resume.number", resume.next.get());
            self.decimal("toroni.stream", resume.stream.0);
        }
        hello.patterns().for_each(|pattern| self.text("toroni.tcp.pattern", pattern.as_str()));
        self.text("toroni.name", hello.name.as_str());
    }

    fn welcome(&mut self, welcome: &tcp::Welcome<'_>) {
        self.decimal("toroni.version", crate::wire::VERSION);
        self.decimal("toroni.tcp.streams", welcome.streams().count());
        self.hexadecimal("toroni.realm", crate::wire::samples::RULES.realm.0);
        self.hexadecimal("toroni.source", welcome.source.0);
        self.decimal("toroni.session", welcome.session.0);
        self.bytes("toroni.instance", &welcome.instance);
        self.decimal("toroni.tcp.set", welcome.set);
        self.decimal("toroni.tcp.beat_ms", welcome.beat_ms);
        for stream in welcome.streams() {
            self.hexadecimal("toroni.source", stream.source.0);
            self.decimal("toroni.session", stream.session.0);
            self.hexadecimal("toroni.series", stream.series.0);
            self.decimal("toroni.stream", stream.stream.0);
            self.decimal("toroni.patterns", stream.patterns().count());
            self.decimal("toroni.number", stream.number.get());
            // After that of the frame's header.
            self.decimal("toroni.message", stream.message.get());
            self.decimal("toroni.head", stream.past.head.get());
            self.decimal("toroni.prior", stream.past.prior.0);
            stream.patterns().for_each(|pattern| self.text("toroni.tcp.pattern", pattern.as_str()));
        }
    }

    fn push(&mut self, name: &'static str, value: String) {
        assert!(NAMES.contains(&name), "{name} is not asked for");
        self.0.entry(name).or_default().push(value);
    }

    fn decimal(&mut self, name: &'static str, value: impl ToString) {
        self.push(name, value.to_string());
    }

    fn hexadecimal(&mut self, name: &'static str, value: u32) {
        self.push(name, format!("0x{value:08x}"));
    }

    fn bit(&mut self, name: &'static str, value: bool) {
        self.push(name, u8::from(value).to_string());
    }

    /// A text, or bytes below, of length 0 has no field.
    fn text(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.push(name, value.to_owned());
        }
    }

    fn bytes(&mut self, name: &'static str, value: &[u8]) {
        if !value.is_empty() {
            self.push(name, crate::wire::samples::hexadecimal(value));
        }
    }
}

fn kind_of(body: &Body<'_>) -> crate::wire::Kind {
    use crate::wire::Kind;
    match body {
        Body::Data(_) => Kind::Data,
        Body::Session(_) => Kind::Session,
        Body::Nak(_) => Kind::Nak,
        Body::Ncf(_) => Kind::Ncf,
        Body::Status(_) => Kind::Status,
        Body::Topics(_) => Kind::Topics,
        Body::TopicsWanted(_) => Kind::TopicsWanted,
        Body::Probe(_) => Kind::Probe,
        Body::Echo(_) => Kind::Echo,
    }
}
