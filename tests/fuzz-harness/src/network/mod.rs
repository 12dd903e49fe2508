//! The network protocol: any bytes as a datagram or on a TCP connection, and a sender and a receiver, or a server and its
//! clients, between which anything may happen.

pub mod connections;
pub mod datagrams;
pub mod frames;
pub mod streams;

use toroni_proto::id::Realm;
use toroni_proto::wire::{self, HEADER_BYTES, Key, Keys, MAC_BYTES};

const REALM: &str = "plant";
const KEYS: Keys = Keys { first: Key::new([7; Key::BYTES]), next: None };

/// Where fields lie in a header: see `crates/toroni-proto/src/wire/header.rs`.
const VERSION_AT: usize = 2;
const KIND_AT: usize = 3;
const FLAGS_AT: usize = 4;
const LENGTH_AT: usize = 6;
const REALM_AT: usize = 8;
const STREAM_AT: usize = 12;
const SOURCE_AT: usize = 16;
const SESSION_AT: usize = 20;
const SEQUENCE_AT: usize = 24;
const FLAG_MAC: u8 = 0x80;

/// Makes any bytes pass the first checks of a header, so that what lies behind them is reached. Bytes that are too short for
/// a header stay as they are.
fn completed(bytes: &[u8], signed: bool) -> Vec<u8> {
    let mut datagram = bytes.to_vec();
    if datagram.len() < HEADER_BYTES {
        return datagram;
    }
    let mac = if signed { MAC_BYTES } else { 0 };
    let Ok(length) = u16::try_from(datagram.len() + mac) else { return datagram };
    let realm = Realm::of(REALM);
    datagram[..VERSION_AT].copy_from_slice(b"TN");
    datagram[VERSION_AT] = wire::VERSION;
    datagram[LENGTH_AT..REALM_AT].copy_from_slice(&length.to_le_bytes());
    datagram[REALM_AT..REALM_AT + 4].copy_from_slice(&realm.0.to_le_bytes());
    if signed {
        datagram[FLAGS_AT] |= FLAG_MAC;
        let code = KEYS.sign(&datagram);
        datagram.extend(code);
    } else {
        datagram[FLAGS_AT] &= !FLAG_MAC;
    }
    datagram
}
