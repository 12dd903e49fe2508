//! Zenoh with values: a storage in a peer of its own, which has what a storage in memory of Zenoh's router has: a subscriber that
//! puts samples into a map, and a queryable that answers from it.
//!
//! - Samples and queries of a session are on one link, in order: a query that follows a sample finds it.
//! - A query has no consolidation, because there is one storage: each reply is passed on when it comes.
//! - A subscriber that joins declares a subscriber and then queries all values, as Zenoh's subscribers with a history do.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{About, Guarantees};
use toroni_bench_harness::values::{self, Kept, LONGEST_SILENCE, PATTERN, Values};
use zenoh::bytes::ZBytes;
use zenoh::handlers::{FifoChannel, FifoChannelHandler};
use zenoh::key_expr::KeyExpr;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::query::{ConsolidationMode, Query, Queryable, Reply};
use zenoh::sample::Sample;
use zenoh::{Session, Wait as _};

use crate::{Zenoh, declare_publisher, declare_token, endpoints, open, wait_for_tokens};

/// Dropped in this order.
pub(crate) struct Storage {
    _alive: LivelinessToken,
    _queryable: Queryable<()>,
    _subscriber: Subscriber<()>,
    _session: Session,
}

pub(crate) struct Writer {
    publishers: Vec<Publisher<'static>>,
    /// The topic that was written last.
    last: u16,
    session: Session,
}

pub(crate) struct Reader {
    topics: Vec<KeyExpr<'static>>,
    session: Session,
}

type Map = RwLock<HashMap<KeyExpr<'static>, ZBytes>>;

impl Values for Zenoh {
    const NAME: &'static str = "zenoh";
    type Host = Storage;
    type Writer = Writer;
    type Reader = Reader;

    fn about(_: &Kept) -> About {
        About {
            version: concat!("zenoh ", env!("ZENOH_VERSION")).to_owned(),
            settings: "a queryable with a map in a peer of its own, unixsock-stream, Block, Reliable, no consolidation"
                .to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(directory: &RunDirectory, _: &Kept) -> Result<Storage, Failure> {
        let session =
            open(&[("listen/endpoints", endpoints(directory, 0..1)), no_shared_memory()])?;
        let map = Arc::new(Map::default());
        let kept = Arc::clone(&map);
        let subscriber = session
            .declare_subscriber(PATTERN)
            .callback(move |sample| {
                let (key, value) = (sample.key_expr().clone(), sample.payload().clone());
                kept.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
            })
            .wait()
            .map_err(Failure::of("declare a subscriber"))?;
        let queryable = session
            .declare_queryable(PATTERN)
            .complete(true)
            .callback(move |query| answer(&query, &map))
            .wait()
            .map_err(Failure::of("declare a queryable"))?;
        Ok(Storage {
            _alive: declare_token(&session, 0)?,
            _queryable: queryable,
            _subscriber: subscriber,
            _session: session,
        })
    }

    fn writer(directory: &RunDirectory, kept: &Kept) -> Result<Writer, Failure> {
        let session = connect(directory)?;
        let publisher = |topic| declare_publisher(&session, topic);
        let publishers = keys(kept)?.into_iter().map(publisher).collect::<Result<_, _>>()?;
        Ok(Writer { publishers, last: 0, session })
    }

    fn reader(directory: &RunDirectory, kept: &Kept) -> Result<Reader, Failure> {
        Ok(Reader { topics: keys(kept)?, session: connect(directory)? })
    }
}

fn keys(kept: &Kept) -> Result<Vec<KeyExpr<'static>>, Failure> {
    let keys = kept.topics().into_iter().map(KeyExpr::try_from);
    keys.collect::<Result<_, _>>().map_err(Failure::of("name a topic"))
}

/// Values are shorter than what would travel there, and the storage would leave its segment behind when it ends.
fn no_shared_memory() -> (&'static str, String) {
    ("transport/shared_memory/enabled", "false".to_owned())
}

fn connect(directory: &RunDirectory) -> Result<Session, Failure> {
    let session = open(&[("connect/endpoints", endpoints(directory, 0..1)), no_shared_memory()])?;
    // The storage has declared its token last.
    wait_for_tokens(&session, 1)?;
    Ok(session)
}

fn answer(query: &Query, map: &Map) {
    let reply = |key: &KeyExpr<'static>, value: &ZBytes| {
        // The session that asked may have ended.
        let _ = query.reply(key.clone(), value.clone()).wait();
    };
    let map = map.read().unwrap_or_else(PoisonError::into_inner);
    let wanted = query.key_expr();
    if let Some((key, value)) = map.get_key_value(wanted) {
        reply(key, value);
    } else if wanted.is_wild() {
        map.iter()
            .filter(|(key, _)| wanted.intersects(key))
            .for_each(|(key, value)| reply(key, value));
    }
}

/// Asks the storage.
fn query(session: &Session, key: &KeyExpr<'static>) -> Result<FifoChannelHandler<Reply>, Failure> {
    session
        .get(key)
        .consolidation(ConsolidationMode::None)
        .congestion_control(CongestionControl::Block)
        .timeout(LONGEST_SILENCE)
        .with(FifoChannel::new(1024))
        .wait()
        .map_err(Failure::of("ask the storage"))
}

/// Returns the value in a reply.
fn sample(reply: Reply) -> Result<Sample, Failure> {
    let answer = reply.into_result();
    answer.map_err(|error| Failure::new(format!("the storage failed: {error}")))
}

/// Reads one value, as the storage has it now.
fn read(session: &Session, key: &KeyExpr<'static>) -> Result<Option<Sample>, Failure> {
    query(session, key)?.recv().ok().map(sample).transpose()
}

impl values::Writer for Writer {
    #[inline]
    fn write(&mut self, topic: u16, value: &[u8]) -> Result<(), Failure> {
        self.last = topic;
        self.publishers[usize::from(topic)].put(value).wait().map_err(Failure::of("put"))
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let key = self.publishers[usize::from(self.last)].key_expr().clone();
        let value = read(&self.session, &key.into_owned())?;
        value.map(drop).ok_or_else(|| Kept::missing(self.last))
    }
}

impl values::Reader for Reader {
    type Subscriber = Subscriber<FifoChannelHandler<Sample>>;

    fn get(&mut self, topic: u16, each: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let value = read(&self.session, &self.topics[usize::from(topic)])?;
        each(&value.ok_or_else(|| Kept::missing(topic))?.payload().to_bytes());
        Ok(())
    }

    fn join(&mut self, mut each: impl FnMut(&[u8])) -> Result<Self::Subscriber, Failure> {
        let pattern = KeyExpr::try_from(PATTERN).map_err(Failure::of("name all topics"))?;
        let subscriber = self.session.declare_subscriber(&pattern).with(FifoChannel::new(1024));
        let subscriber = subscriber.wait().map_err(Failure::of("declare a subscriber"))?;
        let replies = query(&self.session, &pattern)?;
        for _ in 0..self.topics.len() {
            let reply = replies.recv().map_err(Failure::of("receive all values"))?;
            each(&sample(reply)?.payload().to_bytes());
        }
        Ok(subscriber)
    }
}

toroni_bench_harness::values_conformance!(Zenoh);
