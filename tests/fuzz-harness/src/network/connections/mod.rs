//! A server of latency-bounded TCP, its clients, and connections on which anything may happen: bytes arrive in parts, late,
//! changed or never, connections break at either end, strangers connect, and the server or a client starts again.
//!
//! ```text
//!   publish ──► list ──► server ══ bytes ══► client ──► oracle: the list, without what was reported, in order
//!                │          ▲  ╲
//!                └─ replay ─┘   ══ bytes ══► strangers
//! ```
//!
//! Whatever happens: nothing panics, and neither end talks without end. A client sends HELLO and what its caller asks for. A
//! server begins and ends each replay once, and sends history at its rate. Unless bytes of its own connection were changed
//! without a key, a client gets every message that it wants, once and in order, or hears how many it lost. What strangers
//! do changes nothing of that, and with a key no stranger can change anything.

mod exchange;
mod faults;
mod forge;
mod history;
mod oracle;
mod peer;
mod world;

use self::world::World;
use crate::input::Input;
use toroni_proto::time::{MILLISECOND, SECOND};

/// How long the clock is advanced, in nanoseconds.
const PAUSES: [u64; 8] = [
    0,
    100_000,
    MILLISECOND,
    5 * MILLISECOND,
    20 * MILLISECOND,
    60 * MILLISECOND,
    150 * MILLISECOND,
    SECOND,
];

/// The first byte configures the server, and says whether there is a key. Each operation is a byte, with its arguments behind
/// it.
pub fn fuzz(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(input.byte());
    while !input.is_empty() {
        match input.byte() % 24 {
            0..4 => world.publish(input.byte(), input.u16()),
            4 => world.publish_many(input.byte()),
            5 => world.flush(),
            6..9 => world.serve(input.u16()),
            9 | 10 => world.client_reads(input.byte(), input.u16()),
            11 | 12 => world.server_reads(input.byte(), input.u16()),
            13 => world.client_writes(input.byte(), input.u16()),
            14 | 15 => world.talk(),
            16 => world.advance(*input.pick(&PAUSES)),
            17 => world.ask(input.byte(), input.byte()),
            18 => world.disconnect(input.byte()),
            19 => world.change(input.byte(), input.u16(), input.byte()),
            20 => world.forge(&mut input),
            21 => world.stranger(&mut input),
            22 => world.client_starts_again(input.byte()),
            _ => world.seldom(input.byte()),
        }
        world.check();
    }
    world.finish();
}
