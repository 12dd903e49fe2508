//! What keys do. Knows nothing of buses and draws nothing.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// The intervals among which `+` and `-` choose.
const INTERVALS_MS: [u64; 8] = [100, 200, 500, 1000, 2000, 5000, 10_000, 60_000];

/// Which panels are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    /// All buses.
    List,
    /// Publishers, subscribers and topics of one bus.
    #[default]
    Bus,
    Topics,
    Losses,
    /// The nodes that connect the bus.
    Network,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// By rate; subscribers by lag.
    #[default]
    Rate,
    Bytes,
    Name,
}

impl Sort {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Name => "name",
        }
    }
}

/// What each key does, as the help on the screen and `--help` show it.
pub(super) const KEYS: [(&str, &str); 12] = [
    ("1 2 3 4", "bus, topics, losses, network"),
    ("/", "show only names with a text"),
    ("s", "sort by rate, by bytes, by name"),
    ("p", "pause, which also stops measuring"),
    ("+ -", "lengthen, shorten the interval"),
    ("arrows", "scroll, or choose a bus"),
    ("Enter", "open the chosen bus"),
    ("Esc", "clear the text, or list all buses"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "stop; fg continues"),
    ("? h", "show these keys, or hide them"),
    ("q", "quit; so does Ctrl-C"),
];

/// What the user has chosen.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    pub(super) view: View,
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    /// Whether the keys are shown.
    pub(super) has_help: bool,
    /// What a key could not do, until the next key.
    pub(super) note: Option<&'static str>,
    pub(super) interval: Duration,
    /// How many rows are scrolled away.
    pub(super) offset: usize,
    /// The chosen row of the list of buses.
    pub(super) selected: usize,
}

impl Choices {
    pub(super) fn new(view: View, interval: Duration) -> Self {
        Self {
            view,
            filter: String::new(),
            is_typing: false,
            sort: Sort::default(),
            is_paused: false,
            has_help: false,
            note: None,
            interval,
            offset: 0,
            selected: 0,
        }
    }

    /// Whether a row with this name is shown.
    pub(super) fn shows(&self, name: &str) -> bool {
        self.filter.is_empty() || name.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

/// What the program has to do after a key. All else is in the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    None,
    Quit,
    /// Open the chosen bus.
    Open,
    /// Return to the list of buses.
    Close,
    /// Stop the process, as Ctrl-Z does elsewhere.
    Suspend,
    /// Draw everything again.
    Redraw,
}

/// Applies a key. `page` is the number of rows that PageDown moves.
pub(super) fn apply(choices: &mut Choices, key: KeyEvent, page: usize) -> Request {
    if key.kind == KeyEventKind::Release {
        return Request::None;
    }
    choices.note = None;
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Request::Quit,
            KeyCode::Char('z') => Request::Suspend,
            KeyCode::Char('l') => Request::Redraw,
            KeyCode::Char('u') if choices.is_typing => {
                choices.filter.clear();
                Request::None
            }
            _ => Request::None,
        };
    }
    if choices.is_typing {
        type_filter(choices, key.code);
        return Request::None;
    }
    let had_help = std::mem::replace(&mut choices.has_help, false);
    match key.code {
        KeyCode::Char('q') => return Request::Quit,
        // These close the keys. Any other key does what they say it does.
        KeyCode::Char('?' | 'h') | KeyCode::Esc if had_help => {}
        KeyCode::Char('?' | 'h') => choices.has_help = true,
        KeyCode::Enter if choices.view == View::List => return Request::Open,
        KeyCode::Esc if !choices.filter.is_empty() => {
            choices.filter.clear();
            move_to(choices, 0);
        }
        KeyCode::Esc | KeyCode::Backspace if choices.view != View::List => return Request::Close,
        KeyCode::Char('1') => show(choices, View::Bus),
        KeyCode::Char('2') => show(choices, View::Topics),
        KeyCode::Char('3') => show(choices, View::Losses),
        KeyCode::Char('4') => show(choices, View::Network),
        KeyCode::Char('/') => choices.is_typing = true,
        KeyCode::Char('s') => {
            choices.sort = match choices.sort {
                Sort::Rate => Sort::Bytes,
                Sort::Bytes => Sort::Name,
                Sort::Name => Sort::Rate,
            };
        }
        KeyCode::Char('p' | ' ') => choices.is_paused = !choices.is_paused,
        KeyCode::Char('+' | '=') => choices.interval = longer(choices.interval),
        KeyCode::Char('-') => choices.interval = shorter(choices.interval),
        KeyCode::Down | KeyCode::Char('j') => move_to(choices, row(choices).saturating_add(1)),
        KeyCode::Up | KeyCode::Char('k') => move_to(choices, row(choices).saturating_sub(1)),
        KeyCode::PageDown => move_to(choices, row(choices).saturating_add(page)),
        KeyCode::PageUp => move_to(choices, row(choices).saturating_sub(page)),
        KeyCode::Home => move_to(choices, 0),
        KeyCode::End => move_to(choices, usize::MAX),
        _ => {}
    }
    Request::None
}

fn type_filter(choices: &mut Choices, key: KeyCode) {
    match key {
        KeyCode::Enter => choices.is_typing = false,
        KeyCode::Esc => {
            choices.filter.clear();
            choices.is_typing = false;
        }
        KeyCode::Backspace => {
            choices.filter.pop();
        }
        // No name is longer than 255 bytes.
        KeyCode::Char(c) if !c.is_control() && choices.filter.len() < 255 => choices.filter.push(c),
        _ => {}
    }
    (choices.offset, choices.selected) = (0, 0);
}

fn show(choices: &mut Choices, view: View) {
    if choices.view != View::List && choices.view != view {
        choices.view = view;
        choices.offset = 0;
    }
}

fn row(choices: &Choices) -> usize {
    if choices.view == View::List { choices.selected } else { choices.offset }
}

fn move_to(choices: &mut Choices, row: usize) {
    if choices.view == View::List {
        choices.selected = row;
    } else {
        choices.offset = row;
    }
}

fn longer(interval: Duration) -> Duration {
    let steps = INTERVALS_MS.map(Duration::from_millis);
    steps.into_iter().find(|step| *step > interval).unwrap_or(interval)
}

fn shorter(interval: Duration) -> Duration {
    let steps = INTERVALS_MS.map(Duration::from_millis);
    steps.into_iter().rev().find(|step| *step < interval).unwrap_or(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(choices: &mut Choices, keys: &[KeyCode]) -> Request {
        let mut request = Request::None;
        for key in keys {
            request = apply(choices, KeyEvent::new(*key, KeyModifiers::NONE), 10);
        }
        request
    }

    fn choices(view: View) -> Choices {
        Choices::new(view, Duration::from_millis(500))
    }

    #[test]
    fn a_filter_is_typed_until_enter() {
        let mut shown = choices(View::Bus);
        press(&mut shown, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Char('2')]);
        assert!(shown.is_typing && shown.view == View::Bus, "keys are text: {shown:?}");
        assert!(shown.shows("SEQ2") && !shown.shows("seq1"));
        press(&mut shown, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((shown.filter.as_str(), shown.is_typing), ("q", false));
        // The first Esc clears the filter, the second one leaves the bus.
        assert_eq!(press(&mut shown, &[KeyCode::Esc]), Request::None);
        assert_eq!(shown.filter, "");
        assert_eq!(press(&mut shown, &[KeyCode::Esc]), Request::Close);
    }

    #[test]
    fn views_are_those_of_a_bus() {
        let mut shown = choices(View::List);
        press(&mut shown, &[KeyCode::Char('2'), KeyCode::Down, KeyCode::Down]);
        assert_eq!((shown.view, shown.selected, shown.offset), (View::List, 2, 0));
        assert_eq!(press(&mut shown, &[KeyCode::Enter]), Request::Open);
        let mut shown = choices(View::Bus);
        press(&mut shown, &[KeyCode::PageDown, KeyCode::Char('2')]);
        assert_eq!((shown.view, shown.offset), (View::Topics, 0), "each view begins at its top");
        assert_eq!(press(&mut shown, &[KeyCode::Enter]), Request::None);
    }

    #[test]
    fn the_keys_are_shown_until_another_key() {
        let mut shown = choices(View::Bus);
        for open in ['?', 'h'] {
            for close in [KeyCode::Char('?'), KeyCode::Char('h'), KeyCode::Esc] {
                assert_eq!(press(&mut shown, &[KeyCode::Char(open)]), Request::None);
                assert!(shown.has_help);
                assert_eq!(press(&mut shown, &[close]), Request::None, "it does nothing else");
                assert!(!shown.has_help && shown.view == View::Bus);
            }
        }
        press(&mut shown, &[KeyCode::Char('?'), KeyCode::Char('2')]);
        assert!(!shown.has_help && shown.view == View::Topics);
        press(&mut shown, &[KeyCode::Char('/'), KeyCode::Char('h'), KeyCode::Char('?')]);
        assert_eq!((shown.has_help, shown.filter.as_str()), (false, "h?"));
    }

    #[test]
    fn the_help_of_the_command_has_the_same_keys() {
        use clap::Args;
        let command = super::super::options::Top::augment_args(clap::Command::new("top"));
        let help = command.get_after_help().unwrap().to_string();
        for (key, effect) in KEYS {
            let is_row = |line: &str| line.trim_start().starts_with(key) && line.contains(effect);
            assert!(help.lines().any(is_row), "{key} {effect}\n{help}");
        }
    }

    #[test]
    fn the_interval_has_limits() {
        let mut shown = choices(View::Bus);
        press(&mut shown, &[KeyCode::Char('-'); 9]);
        assert_eq!(shown.interval, Duration::from_millis(100));
        press(&mut shown, &[KeyCode::Char('+'); 9]);
        assert_eq!(shown.interval, Duration::from_secs(60));
        shown.interval = Duration::from_millis(700);
        press(&mut shown, &[KeyCode::Char('+')]);
        assert_eq!(shown.interval, Duration::from_secs(1));
    }

    #[test]
    fn every_way_to_quit_quits() {
        let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
        for is_typing in [false, true] {
            let mut shown = Choices { is_typing, ..choices(View::Bus) };
            assert_eq!(apply(&mut shown, control('c'), 1), Request::Quit);
            assert_eq!(apply(&mut shown, control('z'), 1), Request::Suspend);
        }
        assert_eq!(press(&mut choices(View::List), &[KeyCode::Char('q')]), Request::Quit);
        assert_eq!(press(&mut choices(View::List), &[KeyCode::Esc]), Request::None);
    }
}
