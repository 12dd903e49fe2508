//! What publishing and receiving cost in Rust, as `bindings/c/tests/measure.c` does for C: the bindings are read
//! beside these lines.

use std::error::Error;
use std::time::{Duration, Instant};
use toroni::{BusConfig, Limit, Publisher, Subscriber};

type Outcome = Result<(), Box<dyn Error>>;

struct Way {
    name: &'static str,
    send: fn(&Publisher, &[u8], usize) -> Outcome,
    reception: Option<&'static str>,
    receive: fn(&mut Subscriber, usize) -> Outcome,
}

const WAYS: [Way; 4] = [
    Way { name: "publish", send: one, reception: Some("receive"), receive },
    Way {
        name: "batch of 64",
        send: batch,
        reception: Some("receive in place"),
        receive: receive_in_place,
    },
    Way { name: "burst of 64", send: burst, reception: None, receive },
    Way { name: "in place", send: in_place, reception: None, receive },
];

fn main() -> Outcome {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |seconds| seconds.parse())?;
    let bus = BusConfig::new().capacity(64 << 20).open("measure")?;
    let publisher = bus.publisher("t")?;
    for length in [8, 1024] {
        let some = (16 << 20) / (length + 8) / 64 * 64;
        let payload = vec![0; length];
        for way in &WAYS {
            let mut subscriber = bus.subscribe("t")?;
            let (mut sending, mut receiving, mut sent) = (Duration::ZERO, Duration::ZERO, 0_u32);
            while (sending + receiving).as_secs_f64() < seconds {
                let began = Instant::now();
                (way.send)(&publisher, &payload, some)?;
                sending += began.elapsed();
                let began = Instant::now();
                (way.receive)(&mut subscriber, some)?;
                receiving += began.elapsed();
                sent += u32::try_from(some)?;
            }
            let tell = |what: &str, time: Duration| {
                println!("rust\t{what}\t{length}\t{:.0}", f64::from(sent) / time.as_secs_f64());
            };
            tell(way.name, sending);
            if let Some(reception) = way.reception {
                tell(reception, receiving);
            }
        }
    }
    Ok(())
}

fn one(publisher: &Publisher, payload: &[u8], count: usize) -> Outcome {
    for _ in 0..count {
        publisher.publish(payload)?;
    }
    Ok(())
}

fn batch(publisher: &Publisher, payload: &[u8], count: usize) -> Outcome {
    for _ in 0..count / 64 {
        publisher.publish_batch(&[payload; 64], Limit::Policy)?;
    }
    Ok(())
}

fn burst(publisher: &Publisher, payload: &[u8], count: usize) -> Outcome {
    for _ in 0..count / 64 {
        publisher.burst(&[payload; 64], Limit::Policy)?;
    }
    Ok(())
}

fn in_place(publisher: &Publisher, payload: &[u8], count: usize) -> Outcome {
    for _ in 0..count {
        publisher.publish_with(payload.len(), Limit::Policy, |bytes| bytes.write(0, payload))?;
    }
    Ok(())
}

fn receive(subscriber: &mut Subscriber, count: usize) -> Outcome {
    for _ in 0..count {
        std::hint::black_box(subscriber.receive()?.payload()[0]);
    }
    Ok(())
}

fn receive_in_place(subscriber: &mut Subscriber, count: usize) -> Outcome {
    let mut left = count;
    while left > 0 {
        let mut run = subscriber.receive_in_place()?;
        for message in &mut run {
            std::hint::black_box(message.payload().get(0));
            left -= 1;
        }
        run.validate()?;
    }
    Ok(())
}
