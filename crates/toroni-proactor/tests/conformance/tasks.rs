//! Futures that the proactor's threads drive.

use super::Kind;
use super::common::*;
use std::io::{Read, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use toroni_proactor::{BufResult, Listener, Proactor, StartError, Stream};

/// Serves every client, until the listener is cancelled.
async fn serve(proactor: Proactor, listener: Listener, over: Sender<()>) {
    while let Ok((stream, _)) = listener.accept_async().await {
        proactor.spawn(echo(stream, over.clone())).unwrap();
    }
    over.send(()).unwrap();
}

async fn echo(stream: Stream, over: Sender<()>) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = Vec::with_capacity(1000);
    while let BufResult(Ok(1..), read) = stream.read_async(buffer).await {
        let BufResult(result, written) = stream.write_all_async(read).await;
        result.unwrap();
        buffer = written;
    }
    over.send(()).unwrap();
}

pub(crate) fn tasks_serve_connections(kind: Kind) {
    const CLIENTS: usize = 10;
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 3);
        let (listener, address) = listener(proactor);
        let (over, ended) = channel();
        proactor.spawn(serve(proactor.clone(), listener.clone(), over)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(move || {
                    let mut client = std::net::TcpStream::connect(address).unwrap();
                    client.set_read_timeout(Some(LOST)).unwrap();
                    let mut back = vec![0; 5000];
                    for round in 0..20 {
                        client.write_all(&[round; 5000]).unwrap();
                        client.read_exact(&mut back).unwrap();
                        assert_eq!(back, [round; 5000]);
                    }
                });
            }
        });
        (0..CLIENTS).for_each(|_| next(&ended));
        listener.cancel();
        next(&ended);
        until(|| proactor.outstanding() == 0);
    });
}

/// In a graceful stop, tasks see their operations cancelled, and end before the stop is complete.
pub(crate) fn a_graceful_stop_ends_tasks(kind: Kind) {
    const TASKS: usize = 20;
    kind.each(|proactor| {
        let crew = Crew::new(proactor, 2);
        let ended = Arc::new(AtomicUsize::new(0));
        let pairs: Vec<_> = (0..TASKS).map(|_| stream_and_peer(proactor)).collect();
        for (stream, _) in &pairs {
            let (stream, ended, clock) = (stream.clone(), Arc::clone(&ended), proactor.clone());
            let task = async move {
                let BufResult(result, _) = stream.read_async(vec![0; 8]).await;
                assert!(result.unwrap_err().is_cancelled());
                let error = clock.timer_async(Duration::ZERO).await.unwrap_err();
                assert!(error.is_cancelled(), "nothing new is started: {error}");
                ended.fetch_add(1, Ordering::Relaxed);
            };
            proactor.spawn(task).unwrap();
        }
        until(|| proactor.outstanding() == TASKS);
        proactor.finish();
        crew.join();
        assert_eq!(ended.load(Ordering::Relaxed), TASKS);
        assert_eq!(proactor.outstanding(), 0);
        let refused = proactor.spawn(async {}).unwrap_err();
        assert!(matches!(refused, StartError::Stopping { .. }));
    });
}

pub(crate) fn a_dropped_proactor_drops_its_tasks(kind: Kind) {
    kind.each(|other| {
        let proactor = Proactor::new(&same_as(other)).unwrap();
        let held = Arc::new(());
        let (stream, mut peer) = stream_and_peer(&proactor);
        let spawn = |seconds: u64| {
            let (stream, held) = (stream.clone(), Arc::clone(&held));
            // The task must not hold the proactor: it would keep it alive.
            let clock = proactor.timer_async(Duration::from_secs(seconds));
            let task = async move {
                let _held = held;
                let _ = clock.await;
                let _ = stream.read_async(vec![0; 8]).await;
            };
            proactor.spawn(task).unwrap();
        };
        // One waits for its timer, one for bytes, one has not begun.
        spawn(3600);
        spawn(0);
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            proactor.outstanding() == 2
        });
        spawn(0);
        drop(stream);
        drop(proactor);
        assert_eq!(Arc::strong_count(&held), 1, "what the tasks held is free");
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "and closed");
    });
}

/// A future on another executor, which polls it again only when it is woken.
pub(crate) fn a_dropped_proactor_wakes_futures(kind: Kind) {
    struct Told(Mutex<Sender<()>>);
    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().send(()).unwrap();
        }
    }
    kind.each(|other| {
        let proactor = Proactor::new(&same_as(other)).unwrap();
        let (woken, wakes) = channel();
        let waker = Waker::from(Arc::new(Told(Mutex::new(woken))));
        let mut context = Context::from_waker(&waker);
        let (stream, _peer) = stream_and_peer(&proactor);
        let mut read = pin!(stream.read_async(vec![0; 8]));
        assert!(read.as_mut().poll(&mut context).is_pending());
        assert!(!read.is_abandoned());
        drop(proactor);
        next(&wakes);
        assert!(read.is_abandoned());
        assert!(read.as_mut().poll(&mut context).is_pending(), "its buffer is gone");
    });
}

/// Another thread wakes the task thousands of times, while it is polled and while it is not: no wake is lost.
pub(crate) fn no_wake_of_a_task_is_lost(kind: Kind) {
    const ROUNDS: usize = 3000;
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (done, over) = channel();
        let count = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&count);
        let (wakers, to_wake) = channel::<std::task::Waker>();
        let task = async move {
            std::future::poll_fn(|context| {
                if counting.fetch_add(1, Ordering::AcqRel) + 1 == ROUNDS {
                    return std::task::Poll::Ready(());
                }
                wakers.send(context.waker().clone()).unwrap();
                std::task::Poll::Pending
            })
            .await;
            done.send(()).unwrap();
        };
        proactor.spawn(task).unwrap();
        while let Ok(waker) = to_wake.recv_timeout(LOST) {
            waker.wake();
        }
        next(&over);
        assert_eq!(count.load(Ordering::Relaxed), ROUNDS);
        until(|| proactor.outstanding() == 0);
    });
}

pub(crate) fn a_task_may_panic(kind: Kind) {
    kind.each(|proactor| {
        let held = Arc::new(());
        let holding = Arc::clone(&held);
        let task = async move {
            let _held = holding;
            std::panic::resume_unwind(Box::new("on purpose"));
        };
        proactor.spawn(task).unwrap();
        let handled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            proactor.handle_events(Some(LOST))
        }));
        assert!(handled.is_err());
        assert_eq!(Arc::strong_count(&held), 1);
        let (done, over) = channel();
        proactor.spawn(async move { done.send(()).unwrap() }).unwrap();
        proactor.handle_events(Some(LOST));
        next(&over);
        assert_eq!(proactor.outstanding(), 0);
    });
}

pub(crate) fn operations_are_limited_in_time(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let task = async move {
            let begun = Instant::now();
            let limit = Duration::from_millis(20);
            let expired = stream.read_async(vec![0; 8]).within(limit).await;
            assert!(begun.elapsed() >= limit, "early");
            let sent = stream.write_all_async("go on").within(LOST).await;
            let received = stream.read_async(vec![0; 8]).within(LOST).await;
            done.send((expired.0, sent.0, received.0)).unwrap();
        };
        proactor.spawn(task).unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
        peer.write_all(b"abc").unwrap();
        let (expired, sent, received) = next(&results);
        assert!(expired.unwrap_err().is_cancelled());
        assert_eq!((sent, received), (Ok(()), Ok(3)));
        until(|| proactor.outstanding() == 0);
    });
}
