//! How connections are dealt to threads that own theirs. One thread pool serves any end in any thread instead.
//!
//! In one process, both ends of a connection are here. If one thread owns both, what it sends stays in the cache of its
//! core, and no other thread has to wake. On two machines that cannot be. So a report shows both.

use super::sockets::ConnectionEnd;

/// Which thread owns an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// One thread owns both ends of a connection.
    Pairs,
    /// With at least two threads, no thread owns both ends of a connection.
    Apart,
}

impl Deal {
    /// Both, in the order of the columns.
    pub const BOTH: [Self; 2] = [Self::Pairs, Self::Apart];

    /// Returns the last word of the name of a column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Apart => "apart",
        }
    }

    /// Splits the name of a column; `None` if its threads own nothing.
    #[must_use]
    pub fn of_column(column: &str) -> Option<(&str, Self)> {
        let (name, last) = column.rsplit_once(' ')?;
        Self::BOTH.into_iter().find(|deal| deal.name() == last).map(|deal| (name, deal))
    }

    /// Deals the ends, which are client, server, client, server, …, to this number of threads.
    #[must_use]
    pub fn deal(self, connections: Vec<ConnectionEnd>, threads: u16) -> Vec<Vec<ConnectionEnd>> {
        let mut dealt: Vec<Vec<ConnectionEnd>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, end) in connections.into_iter().enumerate() {
            let turn = if self == Self::Pairs { number / 2 } else { number };
            dealt[turn % usize::from(threads)].push(end);
        }
        dealt
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::super::sockets::connect;
    use super::*;
    use std::net::TcpStream;

    fn is_of(end: &ConnectionEnd, other: &ConnectionEnd) -> bool {
        let addresses =
            |stream: &TcpStream| (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let (local, peer) = addresses(&end.stream);
        addresses(&other.stream) == (peer, local)
    }

    #[test]
    fn a_pair_is_together_or_apart() {
        for threads in 1..=5 {
            for deal in Deal::BOTH {
                let dealt = deal.deal(connect(&Plan::short(7, threads, 1, 0)).unwrap(), threads);
                let of_both = dealt.iter().map(|own| {
                    own.iter().filter(|end| own.iter().any(|other| is_of(end, other))).count()
                });
                let together = if deal == Deal::Pairs || threads == 1 { 14 } else { 0 };
                assert_eq!(of_both.sum::<usize>(), together, "{deal:?}, {threads} threads");
                let counts = dealt.iter().map(Vec::len);
                let most = counts.clone().max().unwrap() - counts.min().unwrap();
                assert!(most <= 2, "{deal:?}, {threads} threads: {most}");
            }
        }
    }

    #[test]
    fn the_name_of_a_column_says_how_it_deals() {
        assert_eq!(Deal::of_column("compio pairs"), Some(("compio", Deal::Pairs)));
        assert_eq!(Deal::of_column("reactor apart"), Some(("reactor", Deal::Apart)));
        assert_eq!(Deal::of_column("epoll shared"), None);
        assert_eq!(Deal::of_column("auto"), None);
    }
}
