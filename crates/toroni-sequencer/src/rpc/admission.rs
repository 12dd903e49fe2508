//! Which connections a member keeps. A connection that has not shown yet whose it is costs little, and has places of its own.
//! Afterwards the role of the caller decides which places it takes, so no kind of callers takes those of another.
//!
//! | pool | places | when it is full |
//! |---|---|---|
//! | connections that begin, from addresses of members | 32 | the oldest of the address with most of them is closed |
//! | the same from other addresses | 224, and 16 of one address | the same; the oldest of that address |
//! | members | of each id 4 with the log that the group knows, and 2 with another one | the one that asked nothing for longest is closed |
//! | hosts | 1,024, and 4 of one source and role | a newcomer is refused; the one that asked nothing for longest is closed |
//! | tools | 32, and 8 of one address | the oldest of the address with most of them is closed; the oldest of that address |
//!
//! A new connection is taken in all cases but one: otherwise, more hosts than there are places would close each other's
//! connections in turn. A caller begins within two round trips. Within that time, others have to open hundreds of connections to
//! push it out.
//!
//! This module decides, and does nothing else: it gets the time, and the server closes connections.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Instant;

use super::frame::Role;
use crate::hook::mutant;

const BEGINNING: Places = Places { all: 224, of_address: 16 };
const BEGINNING_OF_MEMBERS: Places = Places { all: 32, of_address: 32 };
const TOOLS: Places = Places { all: 32, of_address: 8 };
const OF_KNOWN_MEMBER: usize = 4;
const OF_UNKNOWN_MEMBER: usize = 2;
const HOSTS: usize = 1024;
const OF_SOURCE: usize = 4;

/// The most connections that are kept at once.
pub const MAX_CONNECTIONS: usize = BEGINNING.all
    + BEGINNING_OF_MEMBERS.all
    + TOOLS.all
    + HOSTS
    + crate::entry::MAX_MEMBERS * (OF_KNOWN_MEMBER + OF_UNKNOWN_MEMBER);

/// The places of a pool in which addresses compete.
struct Places {
    all: usize,
    of_address: usize,
}

/// A connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// There is no place for one more host.
    #[error("1,024 hosts are connected")]
    Hosts,
    /// It was closed for another one.
    #[error("others have begun since")]
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    Beginning { of_member: bool },
    Member { id: u64, is_known: bool },
    Courier { source: u32 },
    Follower { source: Option<u32> },
    Tool,
}

impl Pool {
    const fn is_host(self) -> bool {
        matches!(self, Self::Courier { .. } | Self::Follower { .. })
    }
}

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    pool: Pool,
    /// When it began, or asked something last.
    used: Instant,
}

/// The connections that are kept.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// By number: the later one has the greater.
    connections: BTreeMap<u64, Connection>,
    next: u64,
}

impl Admission {
    /// Takes a new connection. Returns its number, and that of one which has to be closed for it.
    pub(super) fn begin(
        &mut self,
        address: IpAddr,
        of_member: bool,
        now: Instant,
    ) -> (u64, Option<u64>) {
        let number = self.next;
        self.next += 1;
        let pool = Pool::Beginning { of_member };
        if mutant("one_pool_for_all") && self.connections.len() >= 256 {
            return (number, Some(number));
        }
        let places = if of_member { &BEGINNING_OF_MEMBERS } else { &BEGINNING };
        let closed = self.make_room(pool, address, places);
        self.connections.insert(number, Connection { address, pool, used: now });
        (number, closed)
    }

    /// Takes a connection that has shown its role; `is_known` says of a member whether the group knows its log. Returns the
    /// number of one that has to be closed for it.
    pub(super) fn admit(
        &mut self,
        number: u64,
        role: Role,
        is_known: bool,
        now: Instant,
    ) -> Result<Option<u64>, Refused> {
        let Some(Connection { address, .. }) = self.connections.remove(&number) else {
            return Err(Refused::Closed);
        };
        let (pool, closed) = match role {
            Role::Member { id, .. } | Role::Signals { id, .. } => {
                let pool = Pool::Member { id, is_known };
                let places = if is_known { OF_KNOWN_MEMBER } else { OF_UNKNOWN_MEMBER };
                (pool, self.close_idle(places, |other| other.pool == pool))
            }
            Role::Courier { source } => {
                let pool = Pool::Courier { source };
                (pool, self.close_idle(OF_SOURCE, |other| other.pool == pool))
            }
            Role::Follower { source } => {
                let pool = Pool::Follower { source };
                let is_same = |other: &Connection| {
                    other.pool == pool && (source.is_some() || other.address == address)
                };
                (pool, self.close_idle(OF_SOURCE, is_same))
            }
            Role::Tool => (Pool::Tool, self.make_room(Pool::Tool, address, &TOOLS)),
        };
        let hosts = || self.connections.values().filter(|other| other.pool.is_host()).count();
        if pool.is_host() && hosts() >= HOSTS {
            return Err(Refused::Hosts);
        }
        self.connections.insert(number, Connection { address, pool, used: now });
        Ok(closed)
    }

    /// Notes that a connection asks something.
    pub(super) fn touch(&mut self, number: u64, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.used = now;
        }
    }

    /// Returns whether a connection is kept.
    pub(super) fn keeps(&self, number: u64) -> bool {
        self.connections.contains_key(&number)
    }

    /// Notes that a connection has ended.
    pub(super) fn end(&mut self, number: u64) {
        self.connections.remove(&number);
    }

    /// Makes room for one more of an address, if there is none.
    fn make_room(&mut self, pool: Pool, address: IpAddr, places: &Places) -> Option<u64> {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        let mut all = 0;
        for other in self.connections.values().filter(|other| other.pool == pool) {
            *of_address.entry(other.address).or_default() += 1;
            all += 1;
        }
        let greediest = if of_address.get(&address).is_some_and(|own| *own >= places.of_address) {
            address
        } else if all >= places.all {
            let most = of_address.values().max().copied();
            let is_greedy = |address: &IpAddr| of_address.get(address).copied() == most;
            let mut others = self.connections.values().filter(|other| other.pool == pool);
            others.find(|other| is_greedy(&other.address))?.address
        } else {
            return None;
        };
        let mut others = self.connections.iter();
        let oldest = others
            .find(|(_, other)| other.pool == pool && other.address == greediest)
            .map(|(number, _)| *number)?;
        self.connections.remove(&oldest);
        Some(oldest)
    }

    /// Makes room for one more among those that are the same: closes the one that asked nothing for longest.
    fn close_idle(&mut self, places: usize, is_same: impl Fn(&Connection) -> bool) -> Option<u64> {
        let same = || self.connections.iter().filter(|(_, other)| is_same(other));
        if same().count() < places {
            return None;
        }
        let idle = same().min_by_key(|(_, other)| other.used).map(|(number, _)| *number)?;
        self.connections.remove(&idle);
        Some(idle)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use toroni_testkit::Random;

    use super::*;

    fn address(host: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, host])
    }

    /// Takes a connection through its beginning.
    fn connect(
        admission: &mut Admission,
        from: IpAddr,
        role: Role,
        now: Instant,
    ) -> (u64, Result<Option<u64>, Refused>) {
        let (number, closed) = admission.begin(from, false, now);
        assert_eq!(closed, None);
        let admitted = admission.admit(number, role, true, now);
        (number, admitted)
    }

    #[test]
    fn the_oldest_of_the_greediest_address_is_closed_for_a_new_one() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let one = admission.begin(address(1), false, now).0;
        // An address has 16.
        let first = admission.begin(address(2), false, now).0;
        for _ in 1..16 {
            assert_eq!(admission.begin(address(2), false, now).1, None);
        }
        assert_eq!(admission.begin(address(2), false, now).1, Some(first));
        // Until there is no room for any, and then one of those that have most has to go.
        let mut closed = vec![];
        for _ in 0..8 {
            for host in 3..=40 {
                closed.extend(admission.begin(address(host), false, now).1);
            }
        }
        assert_eq!(admission.connections.len(), 224);
        assert_eq!(closed.first(), Some(&(first + 1)));
        assert!(!closed.contains(&one), "one of few is closed");
    }

    #[test]
    fn no_others_take_the_places_of_members() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let random = &mut Random::from_environment();
        let mut members = vec![];
        for id in 0..8 {
            let (number, closed) = admission.begin(address(200), true, now);
            assert_eq!(closed, None);
            let role = Role::Member { id, log: [1; 16] };
            assert_eq!(admission.admit(number, role, true, now), Ok(None));
            members.push(number);
        }
        let begins = admission.begin(address(200), true, now).0;
        for _ in 0..4000 {
            let from = address(u8::try_from(random.below(200)).expect("small"));
            let (number, closed) = admission.begin(from, false, now);
            assert!(!closed.is_some_and(|closed| closed == begins || members.contains(&closed)));
            let source = u32::try_from(random.below(3000)).expect("small");
            let role = match random.below(5) {
                0 => Role::Courier { source },
                1 => Role::Follower { source: (source > 100).then_some(source) },
                2 => Role::Tool,
                // Without the log that the group knows.
                3 => Role::Member { id: random.below(8), log: [9; 16] },
                _ => continue,
            };
            let closed = admission.admit(number, role, false, now);
            assert!(!closed.is_ok_and(|closed| closed.is_some_and(|it| members.contains(&it))));
            assert!(admission.connections.len() <= MAX_CONNECTIONS);
        }
        assert!(members.iter().all(|number| admission.connections.contains_key(number)));
        assert!(admission.connections.contains_key(&begins));
        // There is room for what makes a member reachable, whatever the others do.
        let (number, _) = admission.begin(address(201), false, now);
        assert!(admission.admit(number, Role::Tool, false, now).is_ok());
    }

    #[test]
    fn the_connection_of_a_source_that_is_idle_for_longest_is_closed_first() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        let role = Role::Follower { source: Some(7) };
        let numbers: Vec<_> =
            (0..4).map(|ms| connect(&mut admission, address(1), role, at(ms)).0).collect();
        admission.touch(numbers[0], at(10));
        assert_eq!(connect(&mut admission, address(2), role, at(11)).1, Ok(Some(numbers[1])));
        // Another role or source has other places, and without a source, another address has.
        let others = [
            (address(1), Role::Courier { source: 7 }),
            (address(1), Role::Follower { source: Some(8) }),
            (address(1), Role::Follower { source: None }),
            (address(2), Role::Follower { source: None }),
        ];
        for (address, role) in others {
            for _ in 0..4 {
                assert_eq!(connect(&mut admission, address, role, at(12)).1, Ok(None));
            }
        }
        let (_, closed) = connect(&mut admission, address(1), others[2].1, at(13));
        assert!(matches!(closed, Ok(Some(_))), "{closed:?}");
    }

    #[test]
    fn a_host_beyond_the_last_place_is_refused_until_one_ends() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let courier = |source| Role::Courier { source };
        let first = connect(&mut admission, address(1), courier(0), now).0;
        for source in 1..1024 {
            assert_eq!(connect(&mut admission, address(1), courier(source), now).1, Ok(None));
        }
        let refused = connect(&mut admission, address(2), courier(2000), now).1;
        assert_eq!(refused, Err(Refused::Hosts));
        assert_eq!(Refused::Hosts.to_string(), "1,024 hosts are connected");
        // Also one that has fewer than four.
        assert_eq!(connect(&mut admission, address(1), courier(1), now).1, refused);
        admission.end(first);
        assert_eq!(connect(&mut admission, address(2), courier(2000), now).1, Ok(None));
        assert_eq!(admission.connections.len(), 1024);
    }

    #[test]
    fn a_member_with_another_log_has_few_places_and_none_of_the_known_ones() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let role = Role::Member { id: 2, log: [1; 16] };
        let mut member = |is_known| {
            let number = admission.begin(address(1), false, now).0;
            (number, admission.admit(number, role, is_known, now))
        };
        for _ in 0..4 {
            assert_eq!(member(true).1, Ok(None));
        }
        let first = member(false);
        assert_eq!((first.1, member(false).1), (Ok(None), Ok(None)));
        assert_eq!(member(false).1, Ok(Some(first.0)));
    }

    #[test]
    fn a_connection_that_was_closed_while_it_began_is_not_admitted() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let first = admission.begin(address(1), false, now).0;
        for _ in 0..16 {
            admission.begin(address(1), false, now);
        }
        assert_eq!(admission.admit(first, Role::Tool, false, now), Err(Refused::Closed));
    }
}
