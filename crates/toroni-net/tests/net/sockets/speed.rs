//! What batches save. Prints figures, and asserts nothing about them: `cargo test --release -p toroni-net --test net --
//! --ignored --nocapture speed`.

use super::{LOOPED, group, leg};
use std::time::{Duration, Instant};
use toroni_net::host::interface;
use toroni_net::socket::{Datagram, Options, Outgoing, Receiver, Sender};
use toroni_testkit::network::Setup;

const ROUNDS: u32 = 300;
const BATCH: u32 = 64;

#[test]
#[ignore = "measures"]
fn speed() {
    let Some(network) = Setup::new(2).with_offload().bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let roomy = Options { receive_buffer: Some(8 << 20), ..LOOPED };
    let to = group("239.192.84.79:4479");
    let open = || Datagram::group(to, &interface::named("eth0").unwrap(), &roomy).unwrap();
    let socket = far.enter(open);
    let from = near.enter(|| leg(to.ip(), "eth0", &LOOPED));
    let bytes = [7; 1_408];
    let datagrams = [Outgoing { to, bytes: &bytes }; BATCH as usize];
    let mut memory = vec![[0; 1_500]; BATCH as usize];
    let (mut sender, mut receiver) = (Sender::new(&from), Receiver::new());
    // In turn, so that a busy machine disturbs all alike: send one at a time, or many; receive one at a time, or many.
    let mut times = [[Duration::ZERO; 2]; 2];
    // Each way to receive meets each way to send: joined datagrams lie differently in the kernel's memory.
    for round in 0..4 * ROUNDS {
        let way = usize::from(round % 2 == 1);
        let size = [1, datagrams.len()][way];
        let started = Instant::now();
        for some in datagrams.chunks(size) {
            assert_eq!(sender.send(&from, some).unwrap(), some.len());
        }
        times[0][way] += started.elapsed();
        let way = usize::from(round % 4 >= 2);
        let size = [1, datagrams.len()][way];
        let (started, mut received) = (Instant::now(), 0);
        while received < datagrams.len() {
            let buffers = memory.iter_mut().map(|buffer| &mut buffer[..]).take(size);
            received += receiver.receive(&socket, buffers).unwrap().len();
        }
        times[1][way] += started.elapsed();
    }
    for (what, [single, batch]) in ["send (and carry)", "receive"].into_iter().zip(times) {
        let each = |time: Duration| time / (2 * ROUNDS * BATCH);
        println!(
            "{what:<17} one at a time {:>8.2?}, in batches {:>8.2?} a datagram: ratio {:.2}",
            each(single),
            each(batch),
            single.as_secs_f64() / batch.as_secs_f64()
        );
    }
}
