-- Toroni's multicast protocol and its latency-bounded TCP, for Wireshark and tshark.
--
-- Copy this file into the folder of personal Lua plugins, which "Help > About Wireshark > Folders" names,
-- or load it once: tshark -X lua_script:toroni.lua -i eth0
--
-- The fields follow docs/protocol.md and the drawings in crates/toroni-proto/src/wire/. Nothing here
-- verifies a MAC, since the key is not known: a datagram that is shown without a complaint may still
-- have been refused.

local toroni = Proto("toroni", "Toroni")
local over_tcp = Proto("toroni_tcp", "Toroni over TCP")

toroni.prefs.port = Pref.uint("UDP port", 4479, "On other ports, datagrams are recognised by their header")
over_tcp.prefs.port = Pref.uint("TCP port", 4480, "On other ports, connections are recognised by their first frame")

local HEADER_BYTES = 32
local FRAME_HEADER_BYTES = 16
local MAC_BYTES = 16
local MAX_FRAME_BYTES = 1024 * 1024

local kinds = {
    [1] = "DATA", [2] = "SESSION", [3] = "NAK", [4] = "NCF",
    [5] = "STATUS", [6] = "TOPICS", [7] = "TOPICS_WANTED", [8] = "PROBE",
    [9] = "ECHO",
}
local frame_kinds = {
    [1] = "HELLO", [2] = "WELCOME", [3] = "DATA", [4] = "TOPICS", [5] = "GAP",
    [6] = "HEARTBEAT", [7] = "REPLAY", [8] = "BYE", [9] = "CHALLENGE",
}
local chunk_kinds = { [1] = "MESSAGE", [2] = "FRAGMENT", [3] = "TOPIC", [4] = "LOST" }
local ncf_reasons = { [1] = "gone", [2] = "ignored", [3] = "delayed", [4] = "shed" }
local lost_reasons = {
    [1] = "gone", [2] = "budget", [3] = "memory", [4] = "burst", [5] = "jump", [6] = "restart",
    [7] = "silent", [8] = "topic", [9] = "too long", [10] = "overtaken", [11] = "diverged",
}
local policies = { [1] = "bounded", [2] = "uncontrolled", [3] = "slowest" }
local probe_kinds = { [1] = "ask", [2] = "answer" }
local bounds = { [1] = "exact", [2] = "at least", [3] = "at most" }
local bye_reasons = {
    [1] = "full", [2] = "ended", [3] = "slow", [4] = "late", [5] = "refused",
    [6] = "patterns", [7] = "silent", [8] = "stalled", [9] = "lost",
}

-- The fields ------------------------------------------------------------------------------------------

local function decimal(bits, name, text, values)
    return ProtoField["uint" .. bits]("toroni." .. name, text, base.DEC, values)
end

local function hexadecimal(bits, name, text)
    return ProtoField["uint" .. bits]("toroni." .. name, text, base.HEX)
end

local function bit_of(bits, mask, name, text)
    return ProtoField.bool("toroni." .. name, text, bits, nil, mask)
end

local function text_of(name, text)
    return ProtoField.string("toroni." .. name, text, base.UNICODE)
end

local function bytes_of(name, text)
    return ProtoField.bytes("toroni." .. name, text)
end

local f = {
    -- Of both the datagram and the frame.
    version = decimal(8, "version", "Version"),
    realm = hexadecimal(32, "realm", "Realm"),
    source = hexadecimal(32, "source", "Source"),
    source_name = text_of("source_name", "Name of the source"),
    session = decimal(32, "session", "Session"),
    series = hexadecimal(32, "series", "Series"),
    stream = decimal(16, "stream", "Stream"),
    mac = bytes_of("mac", "MAC (not verified)"),
    sent_ns = decimal(64, "sent_ns", "Sent at (ns since 1970)"),
    message = decimal(64, "message", "Message"),
    number = decimal(64, "number", "Number"),
    chunks = decimal(16, "chunks", "Chunks"),
    instance = bytes_of("instance", "Instance"),
    name = text_of("name", "Name"),

    -- The header of a datagram.
    kind = decimal(8, "type", "Type", kinds),
    flags = hexadecimal(8, "flags", "Flags"),
    flag_retransmission = bit_of(8, 0x01, "flags.retransmission", "RETRANSMISSION"),
    flag_end = bit_of(8, 0x02, "flags.end", "END"),
    flag_sealed = bit_of(8, 0x10, "flags.sealed", "SEALED"),
    flag_feed = bit_of(8, 0x08, "flags.feed", "FEED"),
    flag_mac = bit_of(8, 0x80, "flags.mac", "MAC"),
    ttl = decimal(8, "ttl", "TTL when it was sent"),
    hops = decimal(8, "hops", "Hops"),
    length = decimal(16, "length", "Length"),
    sequence = decimal(64, "sequence", "Sequence"),

    -- DATA.
    behind = decimal(32, "behind", "Datagrams that can be sent again"),

    -- A chunk.
    chunk_length = decimal(16, "chunk.length", "Length"),
    chunk_kind = decimal(8, "chunk.type", "Type", chunk_kinds),
    chunk_flags = hexadecimal(8, "chunk.flags", "Flags"),
    chunk_first = bit_of(8, 0x01, "chunk.flags.first", "FIRST"),
    chunk_last = bit_of(8, 0x02, "chunk.flags.last", "LAST"),
    chunk_descendants = bit_of(8, 0x04, "chunk.flags.to_descendants", "TO_DESCENDANTS"),
    chunk_timestamp = bit_of(8, 0x08, "chunk.flags.timestamp", "TIMESTAMP"),
    chunk_origin = bit_of(8, 0x10, "chunk.flags.origin", "ORIGIN"),
    chunk_numbered = bit_of(8, 0x40, "chunk.flags.number", "NUMBER"),
    chunk_topic = decimal(32, "chunk.topic", "Topic"),
    chunk_topic_name = text_of("chunk.topic_name", "Name of the topic"),
    chunk_message = decimal(64, "chunk.message", "Message"),
    chunk_number = decimal(64, "chunk.number", "Number"),
    chunk_published_ns = decimal(64, "chunk.published_ns", "Published at (ns since 1970)"),
    origin_source = hexadecimal(32, "chunk.origin.source", "Origin: source"),
    origin_series = hexadecimal(32, "chunk.origin.series", "Origin: series"),
    origin_stream = decimal(16, "chunk.origin.stream", "Origin: stream"),
    origin_number = decimal(64, "chunk.origin.number", "Origin: number"),
    chunk_total = decimal(32, "chunk.total", "Length of the whole message"),
    chunk_offset = decimal(32, "chunk.offset", "Place in the message"),
    chunk_payload = bytes_of("chunk.payload", "Payload"),
    chunk_name = text_of("chunk.name", "Name"),
    chunk_lost = decimal(64, "chunk.lost", "Messages that the source missed"),
    chunk_until = decimal(64, "chunk.until", "Their numbers are below"),
    chunk_reason = decimal(8, "chunk.reason", "Reason", lost_reasons),

    -- SESSION.
    first = decimal(64, "first", "First sequence of the session"),
    begins = decimal(64, "begins", "No message below the number"),
    rtt_us = decimal(32, "rtt_us", "Greatest round trip (µs)"),
    receivers = decimal(16, "receivers", "Receivers"),
    listen = decimal(16, "listen", "TCP port for replay"),
    topics = decimal(32, "topics", "Names in the table"),
    data_kbit = decimal(32, "data_kbit", "Rate of data (kbit/s)"),
    retransmit_kbit = decimal(32, "retransmit_kbit", "Rate of retransmissions (kbit/s)"),
    window_ms = decimal(32, "window_ms", "Window (ms)"),
    next_ms = decimal(16, "next_ms", "Next SESSION within (ms)"),
    datagram = decimal(16, "datagram", "Longest datagram"),
    policy = decimal(8, "policy", "Policy", policies),
    patterns = decimal(16, "patterns", "Patterns"),
    unsure = decimal(16, "unsure", "Losses of unknown size before"),
    head = decimal(64, "head", "Next number when the session began"),
    prior = decimal(32, "prior", "Session before"),
    legs = decimal(8, "legs", "Addresses of the sender"),
    leg = text_of("leg", "Address of the sender"),
    repairers = decimal(8, "repairers", "Repairers"),
    repairer = text_of("repairer", "Repairer"),

    -- NAK, NCF, STATUS, TOPICS, TOPICS_WANTED, PROBE, ECHO.
    receiver = hexadecimal(32, "receiver", "Receiver"),
    receiver_session = decimal(32, "receiver_session", "Session of the receiver"),
    ranges = decimal(16, "ranges", "Ranges"),
    range_first = decimal(64, "range.first", "First sequence"),
    range_count = decimal(32, "range.count", "Count"),
    ncf_reason = decimal(8, "ncf.reason", "Reason", ncf_reasons),
    window = decimal(32, "status.window", "Bytes that it can take"),
    status_flags = hexadecimal(16, "status.flags", "Flags"),
    status_required = bit_of(16, 0x0001, "status.required", "Required"),
    status_new = bit_of(16, 0x0002, "status.new", "Asks for a SESSION"),
    lost = decimal(64, "status.lost", "Messages lost so far"),
    naks = decimal(64, "status.naks", "NAKs sent so far"),
    status_count = decimal(64, "status.count", "Grows with each STATUS"),
    drawn = hexadecimal(64, "nonce", "Nonce"),
    echo_ns = decimal(64, "echo_ns", "Echo: the last SESSION was sent at (ns since 1970)"),
    held_us = decimal(32, "status.held_us", "Echo was held for (µs)"),
    dropped = decimal(32, "status.dropped", "Datagrams that the kernel dropped"),
    table_first = decimal(32, "table.first", "First number"),
    table_count = decimal(32, "table.count", "Names"),
    table_number = decimal(32, "table.number", "Number"),
    table_name = text_of("table.name", "Name"),
    asker = hexadecimal(32, "probe.asker", "Asker"),
    probe_kind = decimal(8, "probe.type", "Probe", probe_kinds),
    probe_heard = decimal(32, "probe.heard", "Questions that were heard"),
    probe_of = decimal(32, "probe.of", "Questions since the first that was heard"),
    probe_padding = decimal(16, "probe.padding", "Bytes of padding"),

    -- The frames of TCP.
    frame_length = decimal(32, "tcp.length", "Length"),
    frame_kind = decimal(8, "tcp.type", "Type", frame_kinds),
    frame_flags = hexadecimal(8, "tcp.flags", "Flags"),
    frame_replay = bit_of(8, 0x01, "tcp.flags.replay", "REPLAY"),
    frame_end = bit_of(8, 0x02, "tcp.flags.end", "END"),
    frame_feed = bit_of(8, 0x08, "tcp.flags.feed", "FEED"),
    frame_mac = bit_of(8, 0x80, "tcp.flags.mac", "MAC"),
    frame_stream = decimal(16, "tcp.stream", "Place in WELCOME"),
    nonce = bytes_of("tcp.nonce", "Nonce"),
    message_max = decimal(32, "tcp.message_max", "Longest message that it takes"),
    pattern = text_of("tcp.pattern", "Pattern"),
    resumes = decimal(16, "tcp.resumes", "Streams that it continues"),
    resume_number = decimal(64, "tcp.resume.number", "Continues at the number"),
    streams = decimal(8, "tcp.streams", "Streams"),
    beat_streams = decimal(16, "tcp.beat.streams", "Streams"),
    set = decimal(16, "tcp.set", "Set of patterns"),
    beat_ms = decimal(16, "tcp.beat_ms", "HEARTBEAT within (ms)"),
    gap_first = decimal(64, "tcp.gap.first", "Numbers from"),
    gap_until = decimal(64, "tcp.gap.until", "Numbers below"),
    gap_count = decimal(64, "tcp.gap.count", "Messages left out"),
    gap_reason = decimal(8, "tcp.gap.reason", "Reason", lost_reasons),
    gap_bound = decimal(8, "tcp.gap.bound", "Bound", bounds),
    replay_first = decimal(64, "tcp.replay.first", "Numbers from"),
    replay_until = decimal(64, "tcp.replay.until", "Numbers below"),
    bye_reason = decimal(8, "tcp.bye.reason", "Reason", bye_reasons),
}

local listed = {}
for _, field in pairs(f) do
    listed[#listed + 1] = field
end
toroni.fields = listed

local e = {
    malformed = ProtoExpert.new("toroni.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR),
    retransmission = ProtoExpert.new("toroni.sent_again", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE),
    missing = ProtoExpert.new("toroni.missing", "A receiver misses datagrams", expert.group.SEQUENCE, expert.severity.WARN),
    lost = ProtoExpert.new("toroni.lost", "Messages are lost", expert.group.SEQUENCE, expert.severity.ERROR),
}
toroni.experts = { e.malformed, e.retransmission, e.missing, e.lost }

local ip_ttl, ipv6_hops, tcp_stream = Field.new("ip.ttl"), Field.new("ipv6.hlim"), Field.new("tcp.stream")

-- What earlier packets said: the names of sources, by source, and of topics, by stream.
local source_names, tables

function toroni.init()
    source_names, tables = {}, {}
end

local function learn(stream, topic, name)
    tables[stream] = tables[stream] or {}
    tables[stream][topic] = name
end

-- Reading ---------------------------------------------------------------------------------------------

-- Bytes that are read in order. Reading beyond the end raises an error, which `guarded` shows in the tree.
local Reader = {}
Reader.__index = Reader

local CUT = "the contents are longer than the length that is stated"

function Reader.new(tvb, from, to)
    return setmetatable({ tvb = tvb, at = from, to = to }, Reader)
end

function Reader:left()
    return self.to - self.at
end

function Reader:take(bytes)
    if bytes > self:left() then
        error({ complaint = CUT }, 0)
    end
    local range = self.tvb(self.at, bytes)
    self.at = self.at + bytes
    return range
end

-- Adds a number of this length in bytes to the tree, and returns its range and its item.
function Reader:number(tree, field, bytes)
    local range = self:take(bytes)
    return range, tree:add_le(field, range)
end

function Reader:u8(tree, field)
    return self:number(tree, field, 1):uint()
end

function Reader:u16(tree, field)
    return self:number(tree, field, 2):le_uint()
end

function Reader:u32(tree, field)
    return self:number(tree, field, 4):le_uint()
end

function Reader:u64(tree, field)
    return self:number(tree, field, 8):le_uint64()
end

function Reader:bytes(tree, field, bytes)
    if bytes > 0 then
        tree:add(field, self:take(bytes))
    end
end

function Reader:text(tree, field, bytes)
    if bytes == 0 then
        return ""
    end
    local range = self:take(bytes)
    local text = range:string(ENC_UTF_8)
    tree:add(field, range, text)
    return text
end

function Reader:skip(bytes)
    self:take(bytes)
end

-- A time in nanoseconds, with the date beside.
function Reader:time(tree, field)
    local range, item = self:number(tree, field, 8)
    local ns = range:le_uint64()
    local seconds = (ns / 1000000000):tonumber()
    if seconds > 0 and seconds < 4102444800 then -- the year 2100
        local rest = (ns % 1000000000):tonumber()
        item:append_text(os.date("! (%Y-%m-%d %H:%M:%S", seconds) .. string.format(".%09d UTC)", rest))
    end
end

function Reader:finish()
    if self:left() > 0 then
        error({ complaint = self:left() .. " bytes follow the contents" }, 0)
    end
end

-- Runs a part of the dissection. Contents that contradict their lengths are a complaint in the tree, not
-- an error of this file.
local function guarded(tree, part)
    local fine, failure = pcall(part)
    if fine then
        return
    end
    if type(failure) ~= "table" then
        error(failure, 0)
    end
    tree:add_proto_expert_info(e.malformed, failure.complaint)
end

local function set(value, mask)
    return bit.band(value, mask) ~= 0
end

local function add_source(tree, reader, field)
    local source = reader:u32(tree, field)
    local name = source_names[source]
    if name then
        tree:add(f.source_name, name):set_generated()
    end
    return source, name or string.format("%08x", source)
end

-- Chunks ----------------------------------------------------------------------------------------------

-- Shows one chunk, and returns what it tells of the next one: its message and its number.
local function chunk(tree, reader, stream, message, number)
    local from = reader.at
    local length = reader:take(8)(0, 2):le_uint()
    local body = reader.at
    if length > reader:left() then
        error({ complaint = CUT }, 0)
    end
    local item = tree:add(toroni, reader.tvb(from, 8 + length), "Chunk")
    local head = Reader.new(reader.tvb, from, body)
    reader.at = body + length
    local inner = Reader.new(reader.tvb, body, body + length)

    head:u16(item, f.chunk_length)
    local kind = head:u8(item, f.chunk_kind)
    local flags_range, flags_item = head:number(item, f.chunk_flags, 1)
    local flags = flags_range:uint()
    for _, flag in ipairs({ "first", "last", "descendants", "timestamp", "origin", "numbered" }) do
        flags_item:add(f["chunk_" .. flag], flags_range)
    end
    local topic = head:u32(item, f.chunk_topic)
    item:set_text("Chunk: " .. (chunk_kinds[kind] or "type " .. kind))

    if kind == 3 then
        local name = inner:text(item, f.chunk_name, inner:left())
        learn(stream, topic, name)
        item:append_text(" " .. topic .. " is " .. name)
        return message, number
    end
    if kind == 4 then
        item:add(f.chunk_message, message):set_generated()
        local range, lost = inner:number(item, f.chunk_lost, 8)
        local count = range:le_uint64()
        local til = inner:u64(item, f.chunk_until)
        inner:u8(item, f.chunk_reason)
        inner:finish()
        lost:add_proto_expert_info(e.lost, "The source missed " .. tostring(count) .. " messages")
        item:append_text(" " .. tostring(count))
        return message + count, til
    end
    if kind ~= 1 and kind ~= 2 then
        error({ complaint = "unknown type of chunk " .. kind }, 0)
    end

    local name = (tables[stream] or {})[topic]
    if name then
        item:add(f.chunk_topic_name, name):set_generated()
        item:append_text(" " .. name)
    end
    if kind == 2 and not set(flags, 1) then
        item:add(f.chunk_message, message - 1):set_generated()
        inner:u32(item, f.chunk_offset)
        inner:bytes(item, f.chunk_payload, inner:left())
        return message, number
    end
    item:add(f.chunk_message, message):set_generated()
    if set(flags, 0x40) then
        number = inner:u64(item, f.chunk_number)
    else
        item:add(f.chunk_number, number):set_generated()
    end
    if set(flags, 0x08) then
        inner:time(item, f.chunk_published_ns)
    end
    if set(flags, 0x10) then
        inner:u32(item, f.origin_source)
        inner:u32(item, f.origin_series)
        inner:u16(item, f.origin_stream)
        inner:number(item, f.origin_number, 6)
    end
    if kind == 2 then
        inner:u32(item, f.chunk_total)
    end
    inner:bytes(item, f.chunk_payload, inner:left())
    return message + 1, number + 1
end

local function chunks(tree, reader, count, stream, message, number)
    for _ = 1, count do
        message, number = chunk(tree, reader, stream, message, number)
    end
    reader:finish()
end

-- Datagrams -------------------------------------------------------------------------------------------

local function ranges(tree, reader, count)
    local missing = 0
    for _ = 1, count do
        local item = tree:add(toroni, reader.tvb(reader.at, math.min(12, reader:left())), "Range")
        local first = reader:u64(item, f.range_first)
        local datagrams = reader:u32(item, f.range_count)
        item:append_text(": " .. tostring(first) .. ", " .. datagrams)
        missing = missing + datagrams
    end
    reader:finish()
    return missing
end

local function receiver(tree, reader)
    reader:u32(tree, f.receiver)
    reader:u32(tree, f.receiver_session)
end

-- Each shows the body of a datagram, and returns what the column Info says beside type and stream.
local bodies = {}

function bodies.DATA(tree, reader, stream)
    reader:time(tree, f.sent_ns)
    local message = reader:u64(tree, f.message)
    local number = reader:u64(tree, f.number)
    reader:u32(tree, f.behind)
    local count = reader:u16(tree, f.chunks)
    reader:u16(tree, f.unsure)
    chunks(tree, reader, count, stream, message, number)
    return count .. (count == 1 and " chunk" or " chunks")
end

local function addresses(tree, reader, field, count)
    for _ = 1, count do
        local range = reader:take(18)
        local port = range(16, 2):le_uint()
        if range(0, 12):bytes():tohex(true) == "00000000000000000000ffff" then
            tree:add(field, range, tostring(range(12, 4):ipv4()) .. ":" .. port)
        else
            tree:add(field, range, "[" .. tostring(range(0, 16):ipv6()) .. "]:" .. port)
        end
    end
end

function bodies.SESSION(tree, reader, _, source)
    reader:time(tree, f.sent_ns)
    reader:u64(tree, f.message)
    reader:u64(tree, f.number)
    reader:u64(tree, f.first)
    reader:u64(tree, f.begins)
    reader:u32(tree, f.series)
    reader:u32(tree, f.rtt_us)
    reader:u16(tree, f.receivers)
    reader:u16(tree, f.listen)
    reader:u32(tree, f.behind)
    reader:u32(tree, f.topics)
    reader:u32(tree, f.data_kbit)
    reader:u32(tree, f.retransmit_kbit)
    reader:u32(tree, f.window_ms)
    reader:u16(tree, f.next_ms)
    reader:u16(tree, f.datagram)
    reader:bytes(tree, f.instance, 16)
    reader:u8(tree, f.policy)
    reader:number(tree, f.patterns, 1)
    local repairers = reader:u8(tree, f.repairers)
    local length = reader:take(1):uint()
    reader:u16(tree, f.unsure)
    local legs = reader:u8(tree, f.legs)
    reader:skip(1)
    reader:u64(tree, f.head)
    reader:u32(tree, f.prior)
    addresses(tree, reader, f.leg, legs)
    addresses(tree, reader, f.repairer, repairers)
    local name = reader:text(tree, f.name, length)
    reader:finish()
    source_names[source] = name
    return name
end

function bodies.NAK(tree, reader)
    receiver(tree, reader)
    reader:time(tree, f.echo_ns)
    local range, item = reader:number(tree, f.ranges, 2)
    reader:skip(2)
    local missing = ranges(tree, reader, range:le_uint())
    item:add_proto_expert_info(e.missing, missing .. " datagrams are missing")
    return "misses " .. missing
end

function bodies.NCF(tree, reader)
    local reason = reader:u8(tree, f.ncf_reason)
    reader:skip(1)
    local count = reader:u16(tree, f.ranges)
    return (ncf_reasons[reason] or reason) .. ", " .. ranges(tree, reader, count)
end

function bodies.STATUS(tree, reader)
    receiver(tree, reader)
    reader:u32(tree, f.window)
    local flags, item = reader:number(tree, f.status_flags, 2)
    item:add_le(f.status_required, flags)
    item:add_le(f.status_new, flags)
    local length = reader:take(2):le_uint()
    local lost = reader:u64(tree, f.lost)
    reader:u64(tree, f.naks)
    reader:time(tree, f.echo_ns)
    reader:u32(tree, f.held_us)
    reader:u32(tree, f.dropped)
    reader:u64(tree, f.status_count)
    reader:u64(tree, f.drawn)
    local name = reader:text(tree, f.name, length)
    reader:finish()
    return name .. ", lost " .. tostring(lost)
end

function bodies.TOPICS(tree, reader, stream)
    local first = reader:u32(tree, f.table_first)
    local range = reader:number(tree, f.table_count, 2)
    reader:skip(2)
    local count = range:le_uint()
    for topic = first, first + count - 1 do
        local length = reader:take(1):uint()
        tree:add(f.table_number, topic):set_generated()
        learn(stream, topic, reader:text(tree, f.table_name, length))
    end
    reader:finish()
    return count .. " from " .. first
end

function bodies.TOPICS_WANTED(tree, reader)
    receiver(tree, reader)
    local first = reader:u32(tree, f.table_first)
    local count = reader:u32(tree, f.table_count)
    reader:time(tree, f.echo_ns)
    reader:finish()
    return count .. " from " .. first
end

function bodies.ECHO(tree, reader)
    reader:time(tree, f.sent_ns)
    local count = 0
    while reader:left() > 0 do
        reader:u64(tree, f.drawn)
        count = count + 1
    end
    return count .. (count == 1 and " nonce" or " nonces")
end

function bodies.PROBE(tree, reader)
    reader:time(tree, f.sent_ns)
    reader:u32(tree, f.asker)
    local kind = reader:u8(tree, f.probe_kind)
    local length = reader:take(1):uint()
    reader:skip(2)
    reader:u32(tree, f.probe_heard)
    reader:u32(tree, f.probe_of)
    local name = reader:text(tree, f.name, length)
    if kind == 1 then
        tree:add(f.probe_padding, reader:left()):set_generated()
    else
        reader:finish()
    end
    return (probe_kinds[kind] or kind) .. ", " .. name
end

local function is_toroni(tvb)
    return tvb:len() >= HEADER_BYTES and tvb(0, 2):string() == "TN" and tvb(2, 1):uint() == 2
        and tvb(6, 2):le_uint() == tvb:reported_len()
end

-- Takes the MAC off the end, if there is one, and returns where the contents end.
local function before_mac(tree, tvb, flags, to)
    if not set(flags, 0x80) or to < MAC_BYTES then
        return to
    end
    tree:add(f.mac, tvb(to - MAC_BYTES, MAC_BYTES))
    return to - MAC_BYTES
end

function toroni.dissector(tvb, pinfo, root)
    if tvb:len() < HEADER_BYTES or tvb(0, 2):string() ~= "TN" then
        return 0
    end
    pinfo.cols.protocol = "Toroni"
    local tree = root:add(toroni, tvb())
    guarded(tree, function()
        local reader = Reader.new(tvb, 2, HEADER_BYTES)
        reader:u8(tree, f.version)
        local kind = reader:u8(tree, f.kind)
        local name = kinds[kind]
        local flags_range, flags_item = reader:number(tree, f.flags, 1)
        local flags = flags_range:uint()
        for _, flag in ipairs({ "retransmission", "end", "sealed", "feed", "mac" }) do
            flags_item:add(f["flag_" .. flag], flags_range)
        end
        local ttl = reader:u8(tree, f.ttl)
        local arrived = ip_ttl() or ipv6_hops()
        if arrived and arrived.value <= ttl then
            tree:add(f.hops, ttl - arrived.value):set_generated()
        end
        local length, length_item = reader:number(tree, f.length, 2)
        reader:u32(tree, f.realm)
        local stream = reader:u16(tree, f.stream)
        reader:skip(2)
        local source, source_name = add_source(tree, reader, f.source)
        local session = reader:u32(tree, f.session)
        local sequence = reader:u64(tree, f.sequence)
        pinfo.cols.info = string.format("%s %s/%d %s", name or "type " .. kind, source_name, stream, tostring(sequence))
        if length:le_uint() ~= tvb:reported_len() then
            length_item:add_proto_expert_info(e.malformed, "the datagram has " .. tvb:reported_len() .. " bytes")
        end
        if set(flags, 1) then
            flags_item:add_proto_expert_info(e.retransmission)
            pinfo.cols.info:append(" sent again")
        end
        if not name then
            error({ complaint = "unknown type " .. kind }, 0)
        end
        local body = Reader.new(tvb, HEADER_BYTES, before_mac(tree, tvb, flags, tvb:len()))
        local key = string.format("%d/%d/%d", source, session, stream)
        pinfo.cols.info:append(" " .. bodies[name](tree, body, key, source))
    end)
    return tvb:len()
end

-- Frames of TCP ---------------------------------------------------------------------------------------

local frames = {}

local function frame_patterns(tree, reader, count)
    for _ = 1, count do
        reader:text(tree, f.pattern, reader:take(1):uint())
    end
end

local function magic(tree, reader)
    reader:skip(2)
    reader:u8(tree, f.version)
end

function frames.HELLO(tree, reader, _, _, flags)
    magic(tree, reader)
    local length = reader:take(1):uint()
    reader:u32(tree, f.realm)
    local source = reader:u32(tree, f.source)
    reader:u32(tree, f.session)
    reader:bytes(tree, f.nonce, 16)
    reader:u32(tree, f.message_max)
    local patterns = reader:u16(tree, f.patterns)
    local resumes = reader:u16(tree, f.resumes)
    for _ = 1, resumes do
        local item = tree:add(toroni, reader.tvb(reader.at, math.min(20, reader:left())), "Stream that it continues")
        reader:u32(item, f.source)
        reader:u32(item, f.series)
        reader:u64(item, f.resume_number)
        reader:u16(item, f.stream)
        reader:skip(2)
    end
    frame_patterns(tree, reader, patterns)
    local name = reader:text(tree, f.name, length)
    reader:finish()
    source_names[source] = name
    return flags % 2 == 1 and name .. ", for history alone" or name
end

function frames.WELCOME(tree, reader)
    magic(tree, reader)
    local streams = reader:u8(tree, f.streams)
    reader:u32(tree, f.realm)
    local _, name = add_source(tree, reader, f.source)
    reader:u32(tree, f.session)
    reader:bytes(tree, f.instance, 16)
    reader:u16(tree, f.set)
    reader:u16(tree, f.beat_ms)
    for place = 0, streams - 1 do
        local item = tree:add(toroni, reader.tvb(reader.at, math.min(44, reader:left())), "Stream " .. place)
        reader:u32(item, f.source)
        reader:u32(item, f.session)
        reader:u32(item, f.series)
        reader:u16(item, f.stream)
        local patterns = reader:number(item, f.patterns, 1):uint()
        reader:skip(1)
        reader:u64(item, f.number)
        reader:u64(item, f.message)
        reader:u64(item, f.head)
        reader:u32(item, f.prior)
        frame_patterns(item, reader, patterns)
    end
    reader:finish()
    return name .. ", " .. streams .. (streams == 1 and " stream" or " streams")
end

function frames.DATA(tree, reader, stream, message)
    reader:time(tree, f.sent_ns)
    local number = reader:u64(tree, f.number)
    local count = reader:u16(tree, f.chunks)
    reader:skip(6)
    chunks(tree, reader, count, stream, message, number)
    return count .. (count == 1 and " chunk" or " chunks")
end

function frames.TOPICS(tree, reader, stream)
    local range = reader:number(tree, f.table_count, 2)
    reader:skip(2)
    for _ = 1, range:le_uint() do
        local topic = reader:u32(tree, f.table_number)
        learn(stream, topic, reader:text(tree, f.table_name, reader:take(1):uint()))
    end
    reader:finish()
    return tostring(range:le_uint())
end

function frames.GAP(tree, reader)
    reader:u64(tree, f.gap_first)
    reader:u64(tree, f.gap_until)
    local range, item = reader:number(tree, f.gap_count, 8)
    local reason = reader:u8(tree, f.gap_reason)
    local bound = reader:u8(tree, f.gap_bound)
    reader:skip(6)
    reader:finish()
    local lost = (bounds[bound] or bound) .. " " .. tostring(range:le_uint64())
    item:add_proto_expert_info(e.lost, "Messages that the server left out: " .. lost)
    return lost .. ", " .. (lost_reasons[reason] or reason)
end

function frames.HEARTBEAT(tree, reader, _, _, flags)
    local count = reader:u16(tree, f.beat_streams)
    reader:skip(6)
    for _ = 1, count do
        reader:u64(tree, f.number)
        reader:u64(tree, f.message)
    end
    reader:finish()
    return set(flags, 2) and "everything was sent" or ""
end

function frames.REPLAY(tree, reader)
    local first = reader:u64(tree, f.replay_first)
    reader:u64(tree, f.replay_until)
    reader:finish()
    return "from " .. tostring(first)
end

function frames.BYE(tree, reader)
    local reason = reader:u8(tree, f.bye_reason)
    reader:skip(7)
    reader:finish()
    return bye_reasons[reason] or tostring(reason)
end

function frames.CHALLENGE(tree, reader)
    reader:bytes(tree, f.nonce, 16)
    reader:finish()
    return ""
end

local function frame(tvb, pinfo, root)
    pinfo.cols.protocol = "Toroni"
    local tree = root:add(over_tcp, tvb())
    guarded(tree, function()
        local reader = Reader.new(tvb, 0, tvb:len())
        local length = reader:u32(tree, f.frame_length)
        if length < FRAME_HEADER_BYTES or length > MAX_FRAME_BYTES then
            error({ complaint = "no frame has the length " .. length }, 0)
        end
        local kind = reader:u8(tree, f.frame_kind)
        local flags_range, flags_item = reader:number(tree, f.frame_flags, 1)
        local flags = flags_range:uint()
        for _, flag in ipairs({ "replay", "end", "feed", "mac" }) do
            flags_item:add(f["frame_" .. flag], flags_range)
        end
        local stream = reader:u16(tree, f.frame_stream)
        local message = reader:u64(tree, f.message)
        local name = frame_kinds[kind]
        if not name then
            error({ complaint = "unknown type " .. kind }, 0)
        end
        reader.to = before_mac(tree, tvb, flags, tvb:len())
        local key = string.format("tcp %d/%d", tcp_stream().value, stream)
        pinfo.cols.info:append(" " .. name .. " " .. frames[name](tree, reader, key, message, flags))
        pinfo.cols.info:fence()
    end)
    return tvb:len()
end

local function frame_length(tvb, _, at)
    local length = tvb(at, 4):le_uint()
    if length < FRAME_HEADER_BYTES or length > MAX_FRAME_BYTES then
        return tvb:len() - at -- not a frame: the rest of the segment is shown with a complaint
    end
    return length
end

function over_tcp.dissector(tvb, pinfo, root)
    pinfo.cols.info = ""
    dissect_tcp_pdus(tvb, root, 4, frame_length, frame)
    return tvb:len()
end

-- A connection begins with HELLO, or with CHALLENGE where there is a key.
local function begins_connection(tvb)
    if tvb:len() < 24 then
        return false
    end
    local length, kind = tvb(0, 4):le_uint(), tvb(4, 1):uint()
    if kind == 9 then
        return length == 32 or length == 48
    end
    return (kind == 1 or kind == 2) and length <= MAX_FRAME_BYTES and tvb(16, 2):string() == "TN"
end

-- Registration ----------------------------------------------------------------------------------------

local registered = {}

local function register()
    for protocol, of in pairs({ [toroni] = "udp.port", [over_tcp] = "tcp.port" }) do
        local ports = DissectorTable.get(of)
        if registered[of] then
            ports:remove(registered[of], protocol)
        end
        registered[of] = protocol.prefs.port
        ports:add(registered[of], protocol)
    end
end

toroni.prefs_changed = register
over_tcp.prefs_changed = register
register()

toroni:register_heuristic("udp", function(tvb, pinfo, root)
    if not is_toroni(tvb) then
        return false
    end
    toroni.dissector(tvb, pinfo, root)
    return true
end)

over_tcp:register_heuristic("tcp", function(tvb, pinfo, root)
    if not begins_connection(tvb) then
        return false
    end
    pinfo.conversation = over_tcp
    over_tcp.dissector(tvb, pinfo, root)
    return true
end)
