use super::super::{InterruptType, ProcessorType};
use super::*;
use crate::operation::{OperationKind, OperationMask};

#[test]
fn every_key_is_read() {
    let config = Config::parse(
        r#"
        shards = 3
        [[processor]]
        type = "dedicated"
        provider = "select"
        wait = "epoll"
        wait-signal = 40
        interrupt = "signal"
        interrupt-signal = 12
        start-in-any-thread = false
        start-interrupts-leader = false
        max-operations = 7
        operations = ["read-file", "accept"]
        [[processor]]
        "#,
    )
    .unwrap();
    let wanted = ProcessorConfig {
        processor_type: ProcessorType::Dedicated,
        provider: ProviderType::Select,
        wait: WaitType::Epoll,
        wait_signal: Some(40),
        interrupt: InterruptType::Signal,
        interrupt_signal: Some(12),
        start_in_any_thread: Some(false),
        start_interrupts_leader: Some(false),
        max_operations: Some(7),
        operations: OperationMask::of(&[OperationKind::ReadFile, OperationKind::Accept]),
    };
    assert_eq!(config, Config::two(wanted, ProcessorConfig::default()).with_shards(3));
}

#[test]
fn every_engine_has_its_words() {
    use super::super::InterruptType::{Callback, Default, Eventfd, Pipe, Signal};
    use ProviderType::{Auto, Combined, Posix, Select, Uring};
    for (provider, word) in [
        (Auto, "auto"),
        (Combined, "combined"),
        (Uring, "uring"),
        (Select, "select"),
        (Posix, "posix"),
    ] {
        let text = format!("[[processor]]\nprovider = \"{word}\"");
        assert_eq!(Config::parse(&text).unwrap().processors()[0].provider, provider);
    }
    for (wait, word) in [
        (WaitType::Native, "native"),
        (WaitType::Epoll, "epoll"),
        (WaitType::LinuxRt, "linux-rt"),
        (WaitType::Sigwait, "sigwait"),
        (WaitType::Callback, "callback"),
    ] {
        let text = format!("[[processor]]\nwait = \"{word}\"");
        assert_eq!(Config::parse(&text).unwrap().processors()[0].wait, wait);
    }
    for (interrupt, word) in [
        (Default, "default"),
        (Pipe, "pipe"),
        (Signal, "signal"),
        (Eventfd, "eventfd"),
        (Callback, "callback"),
    ] {
        let text = format!("[[processor]]\ninterrupt = \"{word}\"");
        assert_eq!(Config::parse(&text).unwrap().processors()[0].interrupt, interrupt);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let said = |text: &str| Config::parse(text).unwrap_err().to_string();
    assert!(said("").contains("not 0"));
    assert!(said("[[processor]]\n".repeat(3).as_str()).contains("not 3"));
    assert!(
        said("[[processor]]\nengine = 1").contains("engine"),
        "{}",
        said("[[processor]]\nengine = 1")
    );
    assert!(said("[[processor]]\nprovider = \"kqueue\"").contains("kqueue"));
    assert!(said("[[processor]]\nmax-operations = 0").contains("max-operations"));
    assert!(said("processor = 3").contains("the text"));
}

#[test]
fn the_variable_holds_a_word_a_text_or_a_file() {
    assert_eq!(Config::from_value(" auto ").unwrap(), Config::default());
    assert_eq!(Config::from_value("").unwrap(), Config::default());
    assert_eq!(Config::from_value("epoll").unwrap().processors()[0].wait, WaitType::Epoll);
    let text = "[[processor]]\nmax-operations = 3";
    assert_eq!(Config::from_value(text).unwrap().processors()[0].max_operations, Some(3));
    let posix = Config::from_value("posix").unwrap();
    let [files, rest] = posix.processors() else {
        panic!("a processor for files, and one for the rest")
    };
    assert_eq!(files.provider, ProviderType::Posix);
    assert_eq!((rest.provider, rest.wait), (ProviderType::Select, WaitType::Epoll));
    let missing = Config::from_value("/nonexistent/proactor.toml").unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/proactor.toml"), "{missing}");
}

#[test]
fn a_proactor_has_one_to_256_shards() {
    let parse = |shards| Config::parse(&format!("shards = {shards}\n[[processor]]"));
    for shards in [1, 2, 256] {
        assert_eq!(parse(shards).unwrap().shards(), Some(shards));
    }
    for shards in [0, 257] {
        let error = parse(shards).unwrap_err().to_string();
        assert!(error.contains(&format!("1 to 256 shards, not {shards}")), "{error}");
    }
    assert_eq!(Config::parse("[[processor]]").unwrap().shards(), None);
}

/// A mistyped engine is not only a file that is missing.
#[test]
fn a_word_that_is_nothing_says_what_is_expected() {
    for value in ["epol", "[[processor]]\nepoll", "/no/such/file.toml"] {
        let said = Config::from_value(value).unwrap_err().to_string();
        for wanted in
            ["TORONI_PROACTOR", "auto, combined, uring, epoll, poll, posix", "TOML", "no file"]
        {
            assert!(said.contains(wanted), "{value}: {said}");
        }
    }
}
