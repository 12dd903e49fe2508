//! Lists of the kernel's routing tables: interfaces, addresses, neighbours (man 7 rtnetlink). And of its packet filter, nf_tables.
//!
//! ```text
//!   message:    length (4) · type (2) · flags (2) · sequence (4) · port (4) · fixed part · attributes
//!   attribute:  length (2) · type (2) · value · padding to 4
//! ```
//!
//! All numbers are in the machine's byte order. The bytes come from the kernel, and are checked all the same.

use rustix::net::netlink::NETFILTER;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::io;
use std::time::Duration;

/// A list that the kernel can give: the type of its request, and of its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    protocol: Option<Protocol>,
    request: u16,
    entry: u16,
    /// The length of the fixed part of an entry.
    fixed: usize,
}

/// NETLINK_ROUTE is 0, the default protocol of the family.
const ROUTES: Option<Protocol> = None;
pub(super) const INTERFACES: List = List { protocol: ROUTES, request: 18, entry: 16, fixed: 16 };
pub(super) const ADDRESSES: List = List { protocol: ROUTES, request: 22, entry: 20, fixed: 8 };
pub(super) const NEIGHBOURS: List = List { protocol: ROUTES, request: 30, entry: 28, fixed: 12 };

/// The subsystem 10 of NETLINK_NETFILTER: NFT_MSG_GETTABLE, and NFT_MSG_NEWTABLE (linux/netfilter/nf_tables.h).
pub(super) const FILTER_TABLES: List =
    List { protocol: Some(NETFILTER), request: 0x0a01, entry: 0x0a00, fixed: 4 };

const HEADER: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The list changed while it was read.
const INTERRUPTED: u16 = 0x10;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// The kernel sends at most 32 KiB of a list at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// A list that changes with each attempt is given up.
const MOST_ATTEMPTS: u32 = 20;

/// Calls `visit` with the fixed part and the attributes of each entry.
///
/// # Errors
/// If the kernel refuses the list, or it changes all the time.
pub(super) fn list<T>(
    list: List,
    mut visit: impl FnMut(&[u8], &[u8]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, list.protocol)?;
    // The kernel answers at once. This is for a kernel that does not.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(5)))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    for attempt in 1..=MOST_ATTEMPTS {
        send(&socket, &request(list, attempt), SendFlags::empty())?;
        let mut entries = Vec::new();
        let mut is_whole = true;
        loop {
            let length = match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => length.min(BUFFER_BYTES),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let (is_done, was_whole) =
                read(list, attempt, &buffer[..length], |fixed, attributes| {
                    entries.extend(visit(fixed, attributes));
                })?;
            is_whole &= was_whole;
            if is_done {
                break;
            }
        }
        if is_whole {
            return Ok(entries);
        }
    }
    Err(io::Error::other("the kernel's list changed each time it was read"))
}

fn request(list: List, sequence: u32) -> Vec<u8> {
    let length = u32::try_from(HEADER + list.fixed).unwrap_or(0);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(list.request.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.resize(HEADER + list.fixed, 0);
    bytes
}

/// Reads messages. Returns whether the list ended, and whether it did not change meanwhile.
fn read(
    list: List,
    sequence: u32,
    mut bytes: &[u8],
    mut entry: impl FnMut(&[u8], &[u8]),
) -> io::Result<(bool, bool)> {
    let mut is_whole = true;
    while !bytes.is_empty() {
        let cut = || io::Error::other("the kernel's list has a message that is too short");
        let length =
            number(bytes, 0).map(u32::from_ne_bytes).and_then(|all| usize::try_from(all).ok());
        let kind = number(bytes, 4).map(u16::from_ne_bytes).ok_or_else(cut)?;
        let flags = number(bytes, 6).map(u16::from_ne_bytes).ok_or_else(cut)?;
        let answers = number(bytes, 8).map(u32::from_ne_bytes).ok_or_else(cut)?;
        let length = length.ok_or_else(cut)?;
        let body = bytes.get(HEADER..length).ok_or_else(cut)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // What is left of an earlier attempt.
        if answers != sequence {
            continue;
        }
        is_whole &= flags & INTERRUPTED == 0;
        match kind {
            DONE => return Ok((true, is_whole)),
            ERROR => {
                let code = number(body, 0).map(i32::from_ne_bytes).ok_or_else(cut)?;
                return Err(io::Error::from_raw_os_error(
                    code.checked_neg().unwrap_or(libc::EINVAL),
                ));
            }
            kind if kind == list.entry && body.len() >= list.fixed => {
                let (fixed, attributes) = body.split_at(list.fixed);
                entry(fixed, attributes);
            }
            _ => {}
        }
    }
    Ok((false, is_whole))
}

/// Splits attributes: type and value of each.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Two bits of the type are flags: nested, and network byte order.
    const TYPE: u16 = 0x3FFF;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(number(bytes, 0)?));
        let kind = u16::from_ne_bytes(number(bytes, 2)?) & TYPE;
        // A length below that of the header would never end.
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the bytes of a number, if they are there.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_error_of_the_kernel_is_returned() {
        let refused = List { request: 9999, ..INTERFACES };
        let error = list(refused, |_, _| Some(())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn a_list_that_changed_is_noticed() {
        let mut bytes = request(List { request: DONE, ..INTERFACES }, 7);
        let nothing = |_: &[u8], _: &[u8]| {};
        assert_eq!(read(INTERFACES, 7, &bytes, nothing).unwrap(), (true, true));
        // An answer to an earlier request.
        assert_eq!(read(INTERFACES, 8, &bytes, nothing).unwrap(), (false, true));
        bytes[6..8].copy_from_slice(&INTERRUPTED.to_ne_bytes());
        assert_eq!(read(INTERFACES, 7, &bytes, nothing).unwrap(), (true, false));
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(INTERFACES, 0, &bytes, |_, found| {
                attributes(found).for_each(drop);
            });
            prop_assert!(attributes(&bytes).count() <= bytes.len());
        }
    }
}
