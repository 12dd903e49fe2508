//! Which members are known, and at which addresses they are: from the group, and from the file of the node.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{Instant, sleep, timeout};

use super::server::Serve;

/// How often new names are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How often a name is looked up again: its host may have another address.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(10);
/// No name keeps the others waiting for longer.
const LOOK_UP_TIME: Duration = Duration::from_secs(5);

/// A member that the group knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMember {
    /// Its id in the group.
    pub id: u64,
    /// The random id of its log.
    pub log: [u8; 16],
    /// Its address, or the name of its host, and its port.
    pub address: String,
}

/// The members that are known.
pub(super) struct Known {
    serve: Arc<dyn Serve>,
    /// The addresses that the file of the node lists.
    listed: Vec<String>,
    /// The addresses of names, as they were looked up last.
    of_names: Mutex<HashMap<String, Vec<IpAddr>>>,
}

impl Known {
    pub(super) fn new(serve: Arc<dyn Serve>, listed: Vec<String>) -> Self {
        Self { serve, listed, of_names: Mutex::default() }
    }

    /// Returns whether the group knows this log of this member.
    pub(super) fn has(&self, id: u64, log: [u8; 16]) -> bool {
        self.serve.members().iter().any(|member| member.id == id && member.log == log)
    }

    /// Returns the addresses of all members that the group or the file knows.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let of_names = self.of_names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses = vec![];
        for place in self.places() {
            match (place.parse::<SocketAddr>(), of_names.get(&place)) {
                (Ok(address), _) => addresses.push(address.ip().to_canonical()),
                (Err(_), Some(found)) => addresses.extend(found),
                (Err(_), None) => {}
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn places(&self) -> impl Iterator<Item = String> {
        let members = self.serve.members().into_iter().map(|member| member.address);
        members.chain(self.listed.iter().cloned())
    }

    /// Looks up the names of members, again and again. Here, so that no caller can make the resolver work.
    pub(super) async fn look_up_names(&self) {
        let mut due: HashMap<String, Instant> = HashMap::new();
        loop {
            for place in self.places().filter(|place| place.parse::<SocketAddr>().is_err()) {
                if due.get(&place).is_some_and(|due| Instant::now() < *due) {
                    continue;
                }
                let found = timeout(LOOK_UP_TIME, lookup_host(place.clone())).await;
                due.insert(place.clone(), Instant::now() + LOOK_UP_AGAIN);
                // If it is not found, it probably still has the addresses that it had.
                if let Ok(Ok(found)) = found {
                    let found = found.map(|address| address.ip().to_canonical()).collect();
                    let mut of_names = self.of_names.lock().unwrap_or_else(PoisonError::into_inner);
                    of_names.insert(place, found);
                }
            }
            sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Answer, Request};
    use super::super::server::{Answering, Caller};
    use super::*;

    struct Group;

    impl Serve for Group {
        fn serve(&self, _: Caller, _: Request) -> Answering {
            Box::pin(std::future::ready(Answer::Done))
        }

        fn members(&self) -> Vec<KnownMember> {
            let member =
                |id, address: &str| KnownMember { id, log: [1; 16], address: address.to_owned() };
            vec![member(0, "10.0.0.1:1"), member(1, "localhost:1")]
        }
    }

    #[tokio::test]
    async fn members_are_known_by_log_and_by_address_or_name() {
        let listed = ["10.0.0.2:1", "[::ffff:10.0.0.1]:1", "no-such-host.invalid:1"];
        let known = Known::new(Arc::new(Group), listed.map(str::to_owned).to_vec());
        assert!(known.has(0, [1; 16]));
        assert!(!known.has(0, [2; 16]) && !known.has(2, [1; 16]));
        let expected: Vec<IpAddr> =
            ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address")).to_vec();
        assert_eq!(known.addresses(), expected);
        let looked_up = async {
            while known.addresses() == expected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = looked_up => {}
            () = known.look_up_names() => {}
            () = sleep(toroni_testkit::wait::LIMIT) => panic!("the name was not looked up"),
        }
        assert!(known.addresses().iter().any(IpAddr::is_loopback));
    }
}
