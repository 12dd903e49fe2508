//! A small exchange that is the same on all hosts: each applies the orders as events, in their one order, and comes to the
//! same trades.
//!
//! ```console
//! $ printf 'buy 100 5\nsell 99 3\ncancel 1\n' | cargo run -p toroni-sequencer --example order_book
//! ```
//!
//! Each line of the standard input is sent as a command: `buy PRICE AMOUNT`, `sell PRICE AMOUNT`, or `cancel ORDER`. An order's
//! number is that of its event. Trades are printed, and after each event the digest of the book: it is equal on all hosts.
//! The feed is `TORONI_FEED` (default: `orders`); the host's node brings commands to the leader and events to the bus.
//! `TORONI_DIR` is the directory of buses.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;

use toroni::{Bus, Start};
use toroni_sequencer::commands::Commands;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Buy,
    Sell,
}

/// Orders that wait: (side, how far from the best price, number) → (price, amount). The best of a side comes first, and of
/// equal ones the oldest.
#[derive(Default)]
struct Book(BTreeMap<(Side, i64, u64), (i64, u64)>);

impl Book {
    /// Applies an order, and calls `trade` with each trade: the waiting order, its price and the amount. It depends on the
    /// book and the order alone: neither on a clock, nor on anything random, nor on who asks.
    fn apply(
        &mut self,
        number: u64,
        order: &str,
        mut trade: impl FnMut(u64, i64, u64),
    ) -> Option<()> {
        let mut words = order.split(' ');
        let (what, first) = (words.next()?, words.next()?);
        let side = match what {
            "buy" => Side::Buy,
            "sell" => Side::Sell,
            "cancel" => {
                let number: u64 = first.parse().ok()?;
                self.0.retain(|(_, _, waiting), _| *waiting != number);
                return Some(());
            }
            _ => return None,
        };
        let price: i64 = first.parse().ok().filter(|price| (0..1 << 40).contains(price))?;
        let mut amount: u64 = words.next()?.parse().ok()?;
        while amount > 0 {
            let other = if side == Side::Buy { Side::Sell } else { Side::Buy };
            let best = self.0.range_mut((other, i64::MIN, 0)..=(other, i64::MAX, u64::MAX)).next();
            let Some((key, (waiting, left))) = best else { break };
            let meets = if side == Side::Buy { *waiting <= price } else { *waiting >= price };
            if !meets {
                break;
            }
            let (key, taken) = (*key, amount.min(*left));
            trade(key.2, *waiting, taken);
            amount -= taken;
            *left -= taken;
            if *left == 0 {
                self.0.remove(&key);
            }
        }
        if amount > 0 {
            let distance = if side == Side::Buy { -price } else { price };
            self.0.insert((side, distance, number), (price, amount));
        }
        Some(())
    }

    fn digest(&self) -> String {
        // FNV-1a: a few lines in each language.
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for ((side, _, number), (price, amount)) in &self.0 {
            let numbers = [*number, price.cast_unsigned(), *amount];
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            for byte in [*side as u8].into_iter().chain(bytes) {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{digest:016x}")
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let feed = std::env::var("TORONI_FEED").unwrap_or_else(|_| "orders".to_owned());
    let bus = Bus::open(&feed)?;
    // From the oldest event in the ring: start before it is overwritten, or read a bus that was rewound. A loss is an error of
    // `receive`. Then the book would be wrong, and the program ends.
    let mut events = bus.subscriber().pattern("order").start(Start::Oldest).build()?;
    let commands = Commands::open(&feed)?;
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let sent = line
                .map_err(|error| error.to_string())
                .and_then(|line| commands.send("order", line).map_err(|error| error.to_string()));
            if let Err(error) = sent {
                eprintln!("order_book: {error}");
                return;
            }
        }
    });
    let mut book = Book::default();
    loop {
        let event = events.receive()?;
        let number = event.number().unwrap_or(0);
        let applied = book.apply(number, &event.text(), |waiting, price, amount| {
            println!("{number} trade {amount} at {price} with {waiting}");
        });
        let what = if applied.is_some() { "digest" } else { "no order, digest" };
        println!("{number} {what} {}", book.digest());
    }
}
