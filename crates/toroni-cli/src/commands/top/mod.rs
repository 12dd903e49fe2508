//! `toroni top`: a live screen of one bus, or of all of them.
//!
//! | module | contents |
//! |---|---|
//! | `source`, `topics` | take the snapshots; count the messages of topics |
//! | `nodes` | reads the notices of nodes |
//! | `sample`, `model`, `network` | rates between snapshots and notices; what is shown. No I/O |
//! | `input`, `keys` | bytes as keys; what keys do. No I/O |
//! | `view` | draws the model |
//! | `terminal` | takes the terminal over and gives it back |

mod input;
mod keys;
mod model;
mod network;
mod nodes;
pub(crate) mod options;
mod sample;
mod source;
mod terminal;
mod topics;
mod view;

use keys::{Choices, Request, View};
use model::BusModel;
use options::Top;
use source::{BusSource, ListSource};
use std::io;
use std::time::{Duration, Instant};
use terminal::Screen;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::note;
use toroni_shell::output::Output;
use toroni_shell::stop::{GracePeriod, Stop};
use view::Shown;
use view::theme::Theme;

/// The width of a screen that is printed, unless a terminal or `COLUMNS` says otherwise.
const PRINTED_COLUMNS: u16 = 120;

/// Shows the bus, or the list of buses if there is no name, until a key or a signal ends it.
pub(crate) fn run(
    location: &BusLocation,
    arguments: &Top,
    name: Option<&str>,
) -> Result<(), Failure> {
    if arguments.once || arguments.json || !terminal::is_usable() {
        print(location, arguments, name)
    } else {
        show(location, arguments, name)
    }
}

/// What is looked at.
enum Source {
    List(Box<ListSource>),
    Bus(Box<BusSource>),
}

impl Source {
    fn open(location: &BusLocation, name: Option<&str>) -> Result<Self, Failure> {
        Ok(match name {
            Some(name) => Self::Bus(Box::new(BusSource::open(location, name)?)),
            None => Self::List(Box::new(ListSource::new(location))),
        })
    }

    fn look(&mut self) {
        match self {
            Self::List(list) => list.look(),
            Self::Bus(bus) => bus.look(),
        }
    }

    fn want_network(&mut self, wanted: bool) {
        if let Self::Bus(bus) = self {
            bus.want_network(wanted);
        }
    }

    fn want_topics(&mut self, wanted: bool) {
        if let Self::Bus(bus) = self
            && bus.wants_topics() != wanted
        {
            bus.want_topics(wanted);
        }
    }

    /// Returns when topics have to be read again, if at all.
    fn read_topics(&mut self) -> Option<Instant> {
        match self {
            Self::List(_) => None,
            Self::Bus(bus) => bus.read_topics(),
        }
    }
}

/// Prints one screen, or an object for each interval.
fn print(location: &BusLocation, arguments: &Top, name: Option<&str>) -> Result<(), Failure> {
    let stop = Stop::install(GracePeriod::OneSecond(
        "writing to standard output, which its reader does not read".to_owned(),
    ))?;
    let mut output = Output::new()?;
    let mut source = Source::open(location, name)?;
    source.want_network(true);
    // A rate needs two snapshots.
    source.look();
    source.want_topics(true);
    let is_once = arguments.once || !arguments.json;
    let mut next = Instant::now();
    loop {
        next = (next + arguments.interval).max(Instant::now());
        while Instant::now() < next {
            let read_again = source.read_topics().unwrap_or(next);
            let until = next.min(read_again).min(Instant::now() + toroni_shell::stop::CHECK_EVERY);
            if !stop.sleep(until.saturating_duration_since(Instant::now())) {
                return if is_once {
                    Err(stop.interrupted("interrupted before the end of the interval"))
                } else {
                    output.flush()
                };
            }
            output.check_reader()?;
        }
        source.look();
        print_screen(&source, arguments, &mut output)?;
        output.flush()?;
        if is_once {
            return Ok(());
        }
    }
}

fn print_screen(source: &Source, arguments: &Top, output: &mut Output) -> Result<(), Failure> {
    let of_bus = |bus: &BusModel| match &bus.problem {
        Some(problem) if arguments.once || !arguments.json => Err(Failure::Failed(problem.clone())),
        _ => Ok(()),
    };
    let view = match source {
        Source::List(_) => View::List,
        Source::Bus(_) => View::Bus,
    };
    let choices = Choices::new(view, arguments.interval);
    let columns = || {
        let variable = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        terminal::width().or(variable).unwrap_or(PRINTED_COLUMNS).clamp(20, 1000)
    };
    match source {
        Source::List(list) if arguments.json => output.json(list.model()),
        Source::List(list) => {
            let text = view::as_text(Shown::List(list.model()), &choices, columns());
            output.bytes(text.as_bytes())
        }
        Source::Bus(bus) => {
            let model = bus.model();
            of_bus(&model)?;
            if arguments.json {
                return output.json(&model);
            }
            let text = view::as_text(Shown::Bus(&model), &choices, columns());
            output.bytes(text.as_bytes())
        }
    }
}

/// Shows a live screen.
fn show(location: &BusLocation, arguments: &Top, name: Option<&str>) -> Result<(), Failure> {
    // Fails on a wrong name while errors can still be read.
    let source = Source::open(location, name)?;
    let stop = Stop::install(GracePeriod::OneSecondAnd(
        "writing to the terminal, which is stopped".to_owned(),
        terminal::give_back_by_force,
    ))?;
    let view = if name.is_some() { View::Bus } else { View::List };
    let mut live = Live {
        location: location.clone(),
        source,
        choices: Choices::new(view, arguments.interval),
        theme: Theme::new(note::is_colored(true)),
        came_from: (0, String::new()),
    };
    let mut screen = Screen::take()?;
    match live.run(&mut screen, &stop) {
        // The terminal was closed.
        Err(_) if screen.is_gone() || stop.is_set() => Ok(()),
        Err(error) => {
            drop(screen);
            Err(Failure::Failed(format!("cannot use this terminal any more: {error}")))
        }
        Ok(()) => Ok(()),
    }
}

struct Live {
    location: BusLocation,
    source: Source,
    choices: Choices,
    theme: Theme,
    /// The row and the filter of the list of buses, for the way back.
    came_from: (usize, String),
}

impl Live {
    fn run(&mut self, screen: &mut Screen, stop: &Stop) -> io::Result<()> {
        let mut next_look = Instant::now();
        let mut looks = 0_u32;
        while !stop.is_set() && !screen.is_gone() {
            if screen.is_suspension_wanted() {
                self.suspend(screen)?;
            }
            if screen.take_again()? {
                self.draw(screen)?;
            }
            let now = Instant::now();
            if now >= next_look && !self.choices.is_paused {
                self.source.want_network(self.choices.view == View::Network);
                self.source.look();
                looks += 1;
                // The second look, which gives the first rates, does not wait for a long interval.
                let interval = if looks == 1 {
                    self.choices.interval.min(Duration::from_millis(500))
                } else {
                    self.choices.interval
                };
                next_look = now + interval;
                self.source.want_topics(self.wants_topics());
                self.draw(screen)?;
            }
            let mut until = next_look;
            if self.choices.is_paused {
                until = now + Duration::from_secs(60);
            } else if let Some(read_again) = self.source.read_topics() {
                until = until.min(read_again);
            }
            let limit = until.saturating_duration_since(Instant::now());
            if !screen.wait(stop, limit) {
                // Also after a change of the size.
                if limit > Duration::ZERO && Instant::now() < until {
                    self.draw(screen)?;
                }
                continue;
            }
            for key in screen.keys()? {
                let page = screen.height() / 2;
                let interval = self.choices.interval;
                match keys::apply(&mut self.choices, key, page) {
                    Request::None => {}
                    Request::Quit => return Ok(()),
                    Request::Open => {
                        if self.open() {
                            (next_look, looks) = (Instant::now(), 0);
                        }
                    }
                    Request::Close => {
                        self.close();
                        (next_look, looks) = (Instant::now(), 0);
                    }
                    Request::Suspend => self.suspend(screen)?,
                    Request::Redraw => screen.forget()?,
                }
                if self.choices.interval != interval {
                    next_look = next_look.min(Instant::now() + self.choices.interval);
                }
            }
            self.clamp();
            self.source.want_topics(self.wants_topics());
            self.source.want_network(self.choices.view == View::Network);
            self.draw(screen)?;
        }
        Ok(())
    }

    /// Stops this process until it is continued, and draws the screen again.
    fn suspend(&mut self, screen: &mut Screen) -> io::Result<()> {
        self.source.want_topics(false);
        if !screen.suspend()? {
            self.choices.note = Some("Ctrl-Z has no effect: no shell could continue top");
        }
        self.source.want_topics(self.wants_topics());
        self.draw(screen)
    }

    /// Messages are read only while what they tell is shown.
    fn wants_topics(&self) -> bool {
        let has_none = matches!(self.choices.view, View::List | View::Network);
        !self.choices.is_paused && !has_none
    }

    /// Opens the chosen bus. Returns `false` if there is none, or it cannot be opened.
    fn open(&mut self) -> bool {
        let Source::List(list) = &self.source else { return false };
        let shown = view::buses::shown(list.model(), &self.choices);
        let Some(row) = shown.get(self.choices.selected) else { return false };
        // If it cannot be opened, its row says why.
        let Ok(source) = BusSource::open(&self.location, &row.name) else { return false };
        self.came_from = (self.choices.selected, self.choices.filter.clone());
        self.source = Source::Bus(Box::new(source));
        self.choices =
            Choices { view: View::Bus, offset: 0, filter: String::new(), ..self.choices.clone() };
        true
    }

    fn close(&mut self) {
        let (selected, filter) = std::mem::take(&mut self.came_from);
        self.source = Source::List(Box::new(ListSource::new(&self.location)));
        self.choices =
            Choices { view: View::List, offset: 0, selected, filter, ..self.choices.clone() };
    }

    /// Keeps the chosen row and the scrolled rows within what there is.
    fn clamp(&mut self) {
        match &self.source {
            Source::List(list) => {
                let rows = view::buses::shown(list.model(), &self.choices).len();
                self.choices.selected = self.choices.selected.min(rows.saturating_sub(1));
            }
            Source::Bus(bus) => {
                let model = bus.model();
                let topics = model.topics.as_ref().map_or(0, |topics| topics.rows.len());
                let rows = match self.choices.view {
                    View::Topics => topics,
                    View::Losses => model.losses.len(),
                    View::Network => model.network.as_ref().map_or(0, |it| it.most_rows()),
                    View::Bus | View::List => topics
                        .max(model.publishers.as_ref().map_or(0, Vec::len))
                        .max(model.subscribers.as_ref().map_or(0, Vec::len)),
                };
                self.choices.offset = self.choices.offset.min(rows.saturating_sub(1));
            }
        }
    }

    fn draw(&self, screen: &mut Screen) -> io::Result<()> {
        let (choices, theme) = (&self.choices, &self.theme);
        match &self.source {
            Source::List(list) => screen.draw(|area, buffer| {
                view::draw(Shown::List(list.model()), choices, theme, true, area, buffer);
            }),
            Source::Bus(bus) => {
                let model = bus.model();
                screen.draw(|area, buffer| {
                    view::draw(Shown::Bus(&model), choices, theme, true, area, buffer);
                })
            }
        }
    }
}
