//! A sender and a receiving node, and a network between them that does what the bytes say: it loses, doubles, delays and
//! reorders datagrams, changes their bytes, and brings forged ones.
//!
//! ```text
//!   publish ──► sender ──► in flight ──► arrivals ──► output
//!                 ▲            ▲            │            │
//!                 └────────────┼── answers ─┘          oracle: every message once, in order, or counted as lost
//!                           forged
//! ```
//!
//! Whatever happens: nothing panics, no buffer is lost, and neither end talks without end. Unless the receiver believed
//! a datagram forged in the name of the source, the oracle also knows every message's content, its place, and the count
//! of every loss. With a key nothing can be forged, so then the oracle always judges.

mod oracle;
mod world;

use self::world::World;
use crate::input::Input;
use toroni_proto::time::{MILLISECOND, SECOND};

/// How long the clock is advanced, in nanoseconds.
const PAUSES: [u64; 8] = [
    0,
    100_000,
    MILLISECOND,
    2 * MILLISECOND,
    20 * MILLISECOND,
    200 * MILLISECOND,
    SECOND,
    11 * SECOND,
];

/// The first byte says whether there is a key, in which order messages are delivered, and the seed of the receiver. Each
/// operation is a byte, with its arguments behind it.
pub fn fuzz(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(input.byte());
    while !input.is_empty() {
        match input.byte() % 16 {
            0..3 => world.publish(input.u16(), input.byte()),
            3 => world.flush(),
            4 => world.transmit(),
            5..7 => world.deliver(input.byte(), false),
            7 => world.deliver(input.byte(), true),
            8 => world.drop(input.byte()),
            9 | 10 => world.advance(*input.pick(&PAUSES)),
            11 => world.answer(!input.byte().is_multiple_of(4)),
            12 => world.change(input.byte(), input.u16(), input.byte()),
            13 => world.forge_to_arrivals(&mut input),
            14 => world.forge_to_sender(&mut input),
            _ => world.seldom(input.byte()),
        }
        world.check();
    }
    world.finish();
}
