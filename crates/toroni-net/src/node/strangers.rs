//! Strangers: who sends to a group of this node, and cannot be believed because the keys or the versions differ.
//!
//! Every datagram that is refused is counted. One that is refused for such a reason is probably a mistake in a
//! configuration, which is easily overlooked in a counter. So it is reported as well, once for each address and reason.

use super::link::to_socket;
use std::collections::VecDeque;
use std::net::IpAddr;
use toroni_proto::id::Realm;
use toroni_proto::wire::{Address, Reject};

/// How many are remembered. An address can be forged: beyond, the first is forgotten.
const MOST: usize = 64;
/// Where a datagram has its realm.
const REALM: std::ops::Range<usize> = 8..12;

/// Someone whose datagrams are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The address from which the first of them came.
    pub address: IpAddr,
    /// Why it was refused.
    pub reason: Reject,
}

/// Those that are known, and those of them that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    known: VecDeque<Stranger>,
    unreported: VecDeque<Stranger>,
}

impl Strangers {
    /// Notes that a datagram was refused.
    #[cold]
    pub(super) fn refused(&mut self, from: Address, bytes: &[u8], realm: Realm, reason: Reject) {
        let is_about_members = match reason {
            Reject::Version => true,
            // The key is compared first. Another realm on the same group has its own, and that is no mistake.
            Reject::MacMissing | Reject::MacUnexpected | Reject::MacWrong => {
                bytes.get(REALM) == Some(&realm.0.to_le_bytes()[..])
            }
            _ => false,
        };
        let stranger = Stranger { address: to_socket(from).ip(), reason };
        if !is_about_members || self.known.contains(&stranger) {
            return;
        }
        for list in [&mut self.known, &mut self.unreported] {
            if list.len() >= MOST {
                list.pop_front();
            }
            list.push_back(stranger);
        }
    }

    /// Takes one that was not reported yet.
    pub(super) fn report(&mut self) -> Option<Stranger> {
        self.unreported.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REALM: Realm = Realm(0x0102_0304);

    fn address(last: u8) -> Address {
        super::super::link::to_address(([10, 0, 0, last], 4479).into())
    }

    fn datagram(realm: Realm) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        bytes[8..12].copy_from_slice(&realm.0.to_le_bytes());
        bytes
    }

    #[test]
    fn each_address_and_reason_is_reported_once_and_other_realms_are_not() {
        let (mut strangers, ours) = (Strangers::default(), datagram(REALM));
        let mut reported = |from, bytes: &[u8], reason| {
            strangers.refused(address(from), bytes, REALM, reason);
            strangers.report().map(|stranger| (stranger.address.to_string(), stranger.reason))
        };
        let first = Some(("10.0.0.1".to_owned(), Reject::MacWrong));
        assert_eq!(reported(1, &ours, Reject::MacWrong), first);
        assert_eq!(reported(1, &ours, Reject::MacWrong), None);
        assert!(reported(1, &ours, Reject::MacMissing).is_some());
        assert!(reported(2, &ours, Reject::MacWrong).is_some());
        assert_eq!(reported(1, &ours, Reject::Realm), None);
        assert_eq!(reported(3, &datagram(Realm(5)), Reject::MacWrong), None);
        assert_eq!(reported(3, &ours[..9], Reject::MacWrong), None);
        assert!(reported(3, &ours, Reject::Version).is_some());
    }

    #[test]
    fn forged_addresses_need_no_memory() {
        let (mut strangers, bytes) = (Strangers::default(), datagram(REALM));
        for last in 0..=255 {
            strangers.refused(address(last), &bytes, REALM, Reject::MacWrong);
        }
        assert_eq!((strangers.known.len(), strangers.unreported.len()), (MOST, MOST));
    }
}
