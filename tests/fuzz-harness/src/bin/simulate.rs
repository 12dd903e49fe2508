//! The simulator: performs lists of operations from seeds, with deaths, for a given time or a given number of lists.
//! `cargo xtask simulate` builds and starts it.
//!
//! It shortens the first list that fails as far as possible, and prints it with its seed.

#![allow(clippy::unwrap_used, reason = "`cargo xtask simulate` gives numbers")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;
use toroni_fuzz_harness::operations::{Fixture, Tally};
use toroni_oracle::{Operation, Scenario};

/// Operations in a list, for each of these in turn: some happens only in the beginning, some only late.
const LENGTHS: [usize; 4] = [12, 40, 120, 400];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [length, seed] = &arguments[..] else {
        panic!("simulate seconds=NUMBER|lists=NUMBER SEED");
    };
    let seed: u64 = seed.parse().unwrap();
    let (most, seconds) = match length.split_once('=').unwrap() {
        ("lists", lists) => (lists.parse().unwrap(), f64::INFINITY),
        ("seconds", seconds) => (u64::MAX, seconds.parse().unwrap()),
        _ => panic!("{length}: neither seconds nor lists"),
    };
    let began = Instant::now();

    let fixture = Fixture::new();
    let mut tally = Tally::default();
    let (mut lists, mut operations) = (0_u64, 0);
    loop {
        let this = seed.wrapping_add(lists);
        let scenario = of(this);
        match catch_unwind(AssertUnwindSafe(|| fixture.perform(&scenario))) {
            Ok(more) => tally = tally.plus(more),
            Err(_) => {
                show(&fixture, &scenario, this);
                return ExitCode::FAILURE;
            }
        }
        lists += 1;
        operations += scenario.operations.len();
        if lists >= most || began.elapsed().as_secs_f64() >= seconds {
            break;
        }
    }
    let Tally { published, received, refused, lapses, lost, deaths, .. } = tally;
    let Tally { exclusive, kept_out, reigns, brought, losses, dropped, taken, told, .. } = tally;
    let Tally { values, missing, joined, healed, .. } = tally;
    println!("seeds              {seed} to {}", seed.wrapping_add(lists - 1));
    println!("lists              {lists}");
    println!("operations         {operations}");
    println!("published          {published}");
    println!("  exclusively      {exclusive}, by {reigns} exclusive publishers");
    println!(
        "  by inlets        {brought}, {losses} of them losses; {dropped} dropped as duplicates"
    );
    println!("received           {received}, and {told} losses told");
    println!("  values           {joined}, {healed} of them after losses");
    println!("read               {values} values, {missing} of them missing");
    println!("refused, rightly   {refused}");
    println!("  kept out         {kept_out} by exclusive publishers, {taken} by other inlets");
    println!("lapses, reported   {lapses}");
    println!("lost, reported     {lost}");
    println!("deaths             {deaths}");
    println!("not as the model   0");
    ExitCode::SUCCESS
}

fn of(seed: u64) -> Scenario {
    let length = LENGTHS[usize::try_from(seed % 4).unwrap()];
    Scenario::from_seed(seed, length)
}

/// The list without what is not needed for it to fail, and how it fails then.
fn show(fixture: &Fixture, scenario: &Scenario, seed: u64) {
    let fails =
        |scenario: &Scenario| catch_unwind(AssertUnwindSafe(|| fixture.perform(scenario))).is_err();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut shortest = scenario.clone();
    let mut part = shortest.operations.len();
    while part > 0 {
        let mut at = 0;
        while at < shortest.operations.len() {
            let mut shorter = shortest.clone();
            shorter.operations.drain(at..(at + part).min(shortest.operations.len()));
            if fails(&shorter) {
                shortest = shorter;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    std::panic::set_hook(hook);
    eprintln!("\n{:?}", shortest.setup);
    shortest.operations.iter().for_each(|operation: &Operation| eprintln!("{operation:?}"));
    let _ = fails(&shortest);
    eprintln!("\nTORONI_SEED={seed} cargo xtask simulate --minutes 0    repeats it");
}
