//! Long answers that their callers do not take.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use toroni_testkit::wait::LIMIT;

use super::super::connection::WRITE_TIME;
use super::super::memory::HOST_ANSWER_BYTES;
use super::super::{frame, *};
use super::serve_with;

const LONG_BYTES: usize = 1 << 20;

/// Answers with a long state, and notes when.
#[derive(Default)]
struct Long(Mutex<Vec<Instant>>);

impl Serve for Long {
    fn serve(&self, _: Caller, _: Request) -> Answering {
        self.0.lock().expect("no panic").push(Instant::now());
        Box::pin(async { Answer::State(Some(vec![7; LONG_BYTES].into())) })
    }
}

async fn connect_from(last: u8, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((IpAddr::from([127, 0, 0, last]), 0).into()).expect("an address of this host");
    socket.connect(address.parse().expect("an address")).await.expect("connected")
}

/// Connects from this address, asks for eight long answers, and takes none.
async fn ask_and_take_nothing(source: u32, last: u8, address: &str) -> TcpStream {
    let mut stream = connect_from(last, address).await;
    let role = Role::Follower { source: Some(source) };
    let begun = frame::call(&mut stream, None, [1; 16], role).await;
    let (mut to, ..) = begun.expect("the same feed");
    let mut request = vec![];
    Request::State.encode(&mut request);
    for call in 1..=8 {
        to.write(&mut stream, call, &request).await.expect("sent");
    }
    stream
}

/// Waits until the server has ended a connection, though nothing of it is read.
async fn until_it_is_given_up(stream: &mut TcpStream) {
    let ended = async {
        while stream.write_all(&[0; 64]).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, ended).await.expect("it is given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_take_no_answer_hold_little_and_not_for_long() {
    let (address, long) = serve_with(None, Arc::new(Long::default())).await;
    let mut streams = vec![];
    for (source, last) in (1..=64).zip((10..26).cycle()) {
        streams.push(ask_and_take_nothing(source, last, &address).await);
    }
    for stream in &mut streams {
        until_it_is_given_up(stream).await;
    }
    let answers = long.0.lock().expect("no panic").clone();
    let first = answers[0];
    // None can be given up before its time is over.
    let at_once = answers.iter().filter(|at| at.duration_since(first) < WRITE_TIME).count();
    assert!(at_once <= HOST_ANSWER_BYTES / LONG_BYTES, "{at_once} answers at once");
    // Two of each connection.
    assert!(answers.len() <= 2 * streams.len(), "{} answers", answers.len());
}

/// All of one address wait for what that address may take, and another one does not wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_has_its_answers_while_those_at_another_address_take_none() {
    let (address, _) = serve_with(None, Arc::new(Long::default())).await;
    let mut good = connect_from(2, &address).await;
    let (mut to, mut back, _) =
        frame::call(&mut good, None, [1; 16], Role::Follower { source: None })
            .await
            .expect("the same feed");
    let silent_ones_are_there = Arc::new(AtomicBool::new(true));
    let there = Arc::clone(&silent_ones_are_there);
    let mut streams = vec![];
    for source in 1..=40 {
        streams.push(ask_and_take_nothing(source, 3, &address).await);
    }
    let good = tokio::spawn(async move {
        let mut request = vec![];
        Request::State.encode(&mut request);
        let mut answers = 0_u32;
        while there.load(Ordering::Relaxed) {
            to.write(&mut good, 1, &request).await.expect("it is not given up");
            let answer = timeout(LIMIT, back.read(&mut good, frame::MAX_FRAME_BYTES)).await;
            let (_, bytes) = answer.expect("in time").expect("it is not given up");
            assert!(bytes.len() > LONG_BYTES);
            answers += 1;
            sleep(Duration::from_millis(10)).await;
        }
        answers
    });
    for stream in &mut streams {
        until_it_is_given_up(stream).await;
    }
    silent_ones_are_there.store(false, Ordering::Relaxed);
    let answers = good.await.expect("no panic");
    // Behind the others it would have one in some seconds.
    let least = 8;
    assert!(answers > least, "{answers} answers");
}
